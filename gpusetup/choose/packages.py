"""Chooses torch together with packages that need it, by an index or by the companion table.

Without an index, the newest torch is taken that the table allows. An index is asked about at most
five builds, in this order:

    1. the installed torch if it works, then the nearest newer one;
    2. the newest torch that fits;
    3. the torch that uv names if it may choose one, on the indexes of up to three backends;

first with the newest release of each package that is asked for without a version, then with any.

Only what depends on torch can fail the question. A package without a wheel is left out and built
when it is installed. Packages of a project whose conflict has nothing to do with torch are left to
the installer. The companion table rules out combinations that an index accepts although they do
not work. Pure apart from the index, which the caller passes in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.builds import INDEX_ROOT, Catalog, index_url
from gpusetup.catalog.companion_table import companion_table, row_of
from gpusetup.catalog.facts import EXTENSION_TOOLS
from gpusetup.choose.compatibility import (
    exact_version,
    limits_for_build,
    names_on_torch_index,
    rows_allowed,
    uses_torch,
    why_no_release_works,
    why_not_on_gpus,
    why_not_on_host,
    why_release_differs,
    why_row_differs,
)
from gpusetup.choose.constraints import (
    best_build,
    fitting_builds,
    main_reason,
    nearest_build,
    newest_first_key,
    preference,
)
from gpusetup.choose.host import BuildQuestion, Host, question_of
from gpusetup.choose.installed import public_version
from gpusetup.choose.newest import newest_fitting, nothing_fits
from gpusetup.choose.wish import Wish, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, JointPackage, TorchBuild
from gpusetup.model.frozen import Frozen, Text, replace
from gpusetup.model.shell import OWN_SYSTEM, setting, shell_line
from gpusetup.model.versions import parsed

OLDEST = "2.5"
"""Older torch versions are only tried if one of them, or a release of a package, is named."""
MOST_TRIES, MOST_BACKENDS = 5, 3
"""How many builds are tried before uv names no more, and for how many backends it may name one."""
MOST_ROUNDS = 20
"""How often packages are left out of one question; each round leaves out at least one."""
MOST_OF_A_REASON = 800
"""In characters: ten lines of a terminal. An index may hold names and versions of any length."""


class PackageQuestion(Frozen):
    """The question which torch builds and package versions work together on a host."""

    wish: Wish
    host: Host
    catalog: Catalog
    by_table: bool = False
    """Whether no index is asked, so that only the companion table can tell."""

    @property
    def of_torch(self) -> BuildQuestion:
        """The question for torch alone."""
        return question_of(self.wish, self.host, self.catalog)

    @property
    def newest_alone(self) -> TorchBuild | None:
        """The newest build that fits if packages are ignored; None if no build fits."""
        return next(iter(candidates(replace(self, wish=self.wish.of_torch_alone))), None)

    def why_not(self, build: TorchBuild) -> str | None:
        """The first reason why a package has no release for a build; None if every one has."""
        reasons = (
            why_no_release_works(word, build, self.host.facts, self.catalog, by_table=self.by_table)
            for word in self.wish.words
        )
        return next(filter(None, reasons), None)


class PackageSet(Frozen):
    """A build with the packages that work with it."""

    build: TorchBuild
    packages: tuple[JointPackage, ...]
    why_older: Text = None
    """The reason why torch is not the newest that fits; None if it is."""
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """The names of requested packages that are installed after the set."""


def candidates(question: PackageQuestion) -> tuple[TorchBuild, ...]:
    """The builds for which each package may have a release, newest torch first. Among builds of the
    same torch version, the best one for the host comes first."""
    wish = question.wish
    names_version = wish.torch or any(Requirement(word).specifier for word in wish.words)
    oldest = parsed("0" if names_version else OLDEST)
    fitting = [
        build
        for build in fitting_builds(question.of_torch)
        if parsed(build.torch) >= oldest and question.why_not(build) is None
    ]
    rank = preference(question.of_torch)
    return tuple(sorted(fitting, key=lambda build: (newest_first_key(build.torch), rank(build))))


# --- by the table ---------------------------------------------------------------------------------


def set_by_table(question: PackageQuestion) -> PackageSet:
    """The set with the newest torch that works with every package, according to the companion table
    and the catalog. No index is asked. Raises Unsatisfiable if no torch does."""
    builds = candidates(question)
    if not builds:
        raise nothing_goes_together(question)
    build, catalog, packages = builds[0], question.catalog, list[JointPackage]()
    index = index_url(build.backend)
    for word in ("torch", *question.wish.words):
        name, requirement = name_of(word), Requirement(word)
        family_version = build.family().get(name)
        # A version that was requested for torchvision or torchaudio has already decided the torch.
        if family_version:
            exact, asked = build.labelled_version(family_version), name != "torch"
            packages.append(JointPackage(name=name, version=exact, index_url=index, asked=asked))
            continue
        limits, project = requirement.specifier, companion_table().project(name)
        if project:
            rows = rows_allowed(project, limits, by_table=True)
            fitting = (
                row
                for row in rows
                if not why_row_differs(project, row, build, catalog, by_table=True)
            )
            newest = next(fitting, None)
            # A row that names neither torch nor CUDA holds for every build, so it is no limit.
            if newest and (newest.torch or newest.cuda):
                limits &= SpecifierSet(newest.versions)
        package = JointPackage(
            name=name,
            version=None,
            index_url=index if names_on_torch_index((name,), build, catalog) else None,
            limits=str(limits) or None,
            asked=True,
            extras=tuple(sorted(requirement.extras)),
        )
        packages.append(package)
    of_table = f"gpusetup's own table of {companion_table().as_of}"
    note = f"offline: these versions come only from {of_table}"
    notes = (note,) if question.wish.offline else ()
    return PackageSet(build=build, packages=tuple(packages), notes=notes)


def source_only(question: PackageQuestion) -> dict[str, str]:
    """The requirements, by name, for the requested packages that no index has as a wheel, according
    to the table; empty if nothing else was requested, or if no torch fits."""
    build, without_wheel = question.newest_alone, dict[str, str]()
    # If nothing fits even without packages, the error is about torch.
    if build is None:
        return {}
    for word in question.wish.words:
        project = companion_table().project(name_of(word))
        if project is None:
            continue
        rows = rows_allowed(project, Requirement(word).specifier)
        # Without a row, nothing is known about the wheels of these releases.
        if not rows or any(map(project.has_wheels, rows)):
            continue
        # What cannot run here is refused with that reason instead.
        if why_not_on_host(project, build, question.host.facts) is None:
            without_wheel[name_of(word)] = word
    # Something must remain to be chosen now. `words` contains no torch, and a project gets one.
    remains = len(question.wish.words) > len(without_wheel) or "torch" in question.wish.family
    return without_wheel if remains or question.wish.from_project else {}


def notes_on_sources(words: Mapping[str, str], question: PackageQuestion) -> Iterator[str]:
    """Yields a note with the command for packages that are built from source after torch."""
    os = question.host.machine.os.family
    others = {}
    for name, word in words.items():
        # The table's packages are built against the installed torch, any other by uv alone.
        if companion_table().project(name):
            advice = build_advice(word, os)
            yield f"{name} has no wheel on an index, so install it after torch: {advice}"
        else:
            others[name] = word
    if others:
        command = shell_line(("uv", "pip", "install", *others.values()), os)
        yield f"no wheel exists for {', '.join(others)}, so install from source: `{command}`"


# --- by an index ----------------------------------------------------------------------------------


class SetQuestion(Frozen):
    """A question: which releases meet these requirements, alone or together with a torch?"""

    words: tuple[str, ...]
    torch: str | None = None
    """The torch versions, as a specifier such as `==2.9.1`; None to ask without torch."""
    backend: str = ""
    """The backend of torch's index from which torch and its family come."""
    limits: tuple[str, ...] = ()
    """Constraints, such as `torchcodec<0.14`."""
    of_torch_index: tuple[str, ...] = ()
    """The packages outside torch's family that come from torch's index, if they are in the set."""
    python: str | None = None
    """Another Python version than the machine's."""
    with_dependencies: bool = True


class IndexAnswer(Frozen):
    """The packages that an index has for some requirements, or the reason why there are none."""

    packages: Mapping[str, str] = {}
    """Their names with the chosen versions, such as `2.9.1+cu124`."""
    on_torch_index: tuple[str, ...] = ()
    """The names of those packages that come from torch's own index."""
    reason: str | None = None
    unknown: tuple[str, ...] = ()
    """The packages that no index has in any version, if there is no set because of them."""
    without_wheel: tuple[str, ...] = ()
    """The packages without a wheel for this machine, if there is no set because of them."""


class AnsweringIndex(Protocol):
    """The package indexes that the user has configured."""

    @property
    def torch_root(self) -> str:
        """The root URL of torch's own indexes, without a login."""

    def ask(self, question: SetQuestion) -> IndexAnswer:
        """The newest releases that answer the question, or the reason why there are none. Raises
        `Blocked` if an index does not respond."""


class Search:
    """A search in an index, with the packages that it left out and the reasons that it met."""

    def __init__(self, question: PackageQuestion, index: AnsweringIndex) -> None:
        self.question, self.index = question, index
        self.requested = {name_of(word): word for word in question.wish.words}
        self.tried = 0
        self.from_source: dict[str, str] = {}
        """The packages that are built from source: their requirements by name."""
        self.left_to_installer: dict[str, str] = {}
        """The packages that are left to the installer: uv's reasons by name."""
        self.failures: dict[tuple[TorchBuild, tuple[str, ...]], str] = {}
        """uv's reasons, by the build and the requirements that were tried."""
        self.reason_against_any_torch: str | None = None
        """uv's reason if no torch of a backend works with the packages."""

    def best(self, start: TorchBuild | None) -> PackageSet:
        """The set of packages from the index. `start` is the build of the least change to the
        installed torch; None if torch is not installed. Raises Unsatisfiable if no set works."""
        builds, words = candidates(self.question), self.question.wish.words
        if not builds:
            raise nothing_goes_together(self.question)
        first_answer: IndexAnswer | None = None
        # First with each package at its newest release, and only then with any: without pins, uv
        # looks through years of older releases, until one fits this torch.
        for requirements in dict.fromkeys((self._pinned_to_newest(words), words)):
            # What changes the environment least comes first.
            likely = dict.fromkeys((*self._of_least_change(start, builds), builds[0]))
            for build in chain(likely, self._named_by_uv(builds, requirements)):
                answer = self._try(build, requirements)
                if not answer.reason:
                    return self._set(build, answer)
                first_answer = first_answer or answer
                # No other torch helps if no index has a package in any version.
                if first_answer.unknown:
                    raise self._nothing_found(build, first_answer)
        assert first_answer is not None, "the newest build was tried"
        raise self._nothing_found(builds[0], first_answer)

    def _of_least_change(
        self, start: TorchBuild | None, builds: Sequence[TorchBuild]
    ) -> list[TorchBuild]:
        """The build `start` and the nearest newer one, which change the environment least; none if
        torch is not installed."""
        if start is None:
            return []
        nearest = []
        # A nightly or a vendor's build is not among `builds`, but only the packages can exclude it.
        if start in builds or not self.question.why_not(start):
            nearest.append(start)
        newer = [build for build in builds if parsed(build.torch) > parsed(start.torch)]
        # `builds` is newest first, so the last one has the nearest version, its best build first.
        of_next_version = [build for build in newer if build.torch == newer[-1].torch]
        return [*nearest, *of_next_version[:1]]

    def _pinned_to_newest(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The requirements, each pinned to its newest release, except those that name a version,
        pre-releases, companions (which follow torch), and a project's that do not use torch."""
        names = []
        for name, word in self.requested.items():
            may_be_old = self.question.wish.from_project and not uses_torch(name)
            if not (may_be_old or Requirement(word).specifier or name in FAMILY):
                names.append(name)
        if not names:
            return words
        alone = SetQuestion(words=tuple(names), with_dependencies=False)
        newest = self._ask_leaving_out(alone).packages
        pinned = []
        for word in words:
            version = newest.get(name_of(word))
            # A version cannot follow a marker, and one of a pre-release would request pre-releases.
            if version is None or Requirement(word).marker or parsed(version).is_prerelease:
                pinned.append(word)
            else:
                pinned.append(f"{word}=={public_version(version)}")
        return tuple(pinned)

    def _named_by_uv(
        self, builds: Sequence[TorchBuild], words: tuple[str, ...]
    ) -> Iterator[TorchBuild]:
        """Yields the builds whose torch uv names if it may choose, for one backend after the
        other: `builds` is newest first."""
        for backend in [*dict.fromkeys(build.backend for build in builds)][:MOST_BACKENDS]:
            of_backend = [build for build in builds if build.backend == backend]
            span = f">={of_backend[-1].torch},<={of_backend[0].torch}"
            answer = self._ask_leaving_out(SetQuestion(words=words, torch=span, backend=backend))
            self.reason_against_any_torch = self.reason_against_any_torch or answer.reason
            torch = answer.packages.get("torch")
            # After the last try, uv is only asked for its reason.
            if torch is None or self.tried >= MOST_TRIES:
                continue
            # If the companion table excludes the torch that uv names, the next older one is tried.
            for build in of_backend:
                is_not_newer = parsed(build.torch) <= parsed(torch)
                if is_not_newer and (build, words) not in self.failures:
                    yield build
                    break

    def _try(self, build: TorchBuild, words: tuple[str, ...]) -> IndexAnswer:
        """The packages that work with a build, or the reason why there are none. Releases that the
        companion table excludes do not count."""
        self.tried += 1
        catalog = self.question.catalog
        projects = (project.name for project in companion_table().projects)
        of_torch_index = names_on_torch_index(projects, build, catalog)
        question = SetQuestion(
            words=words,
            torch=f"=={build.torch}",
            backend=build.backend,
            limits=limits_for_build(catalog, build, of_torch_index),
            of_torch_index=of_torch_index,
        )
        answer = self._ask_leaving_out(question)
        # A mirror may have only torch itself, so try again with all others from the default index.
        if answer.reason and any(_mentions(name, answer.reason) for name in of_torch_index):
            question = replace(question, limits=limits_for_build(catalog, build), of_torch_index=())
            answer = self._ask_leaving_out(question)
        if answer.reason:
            self.failures[build, words] = answer.reason
        return answer

    def _ask_leaving_out(self, question: SetQuestion) -> IndexAnswer:
        """The index's answer. If a package that has nothing to do with torch prevents one, it is
        left out, and the index is asked again."""
        for _ in range(MOST_ROUNDS):
            left_out = {*self.from_source, *self.left_to_installer}
            words = tuple(word for word in question.words if name_of(word) not in left_out)
            answer = self.index.ask(replace(question, words=words))
            if not answer.reason or not self._leave_out(answer, question, words):
                break
        return answer

    def _leave_out(
        self, answer: IndexAnswer, question: SetQuestion, words: tuple[str, ...]
    ) -> bool:
        """Leave out the packages because of which there is no answer, if torch is not the reason;
        False if none was left out. Raises Unsatisfiable for a pin with wheels only for another
        Python."""
        reason, is_project = answer.reason or "", self.question.wish.from_project
        remaining = {name_of(word) for word in words} - {*FAMILY}
        culprits = {
            name: word
            for name, word in self.requested.items()
            if name in remaining and _mentions(name, reason)
        }
        without_wheel = {*answer.without_wheel} - {*FAMILY}
        for name, word in culprits.items():
            if name in without_wheel:
                self._refuse_other_python(word)
        # Something that the user typed must remain. A project also gets torch by itself.
        if not culprits or (len(culprits) == len(words) and not is_project):
            return False
        if without_wheel:
            # If only a dependency has no wheel, all that may bring it are left out.
            direct = {name: word for name, word in culprits.items() if name in without_wheel}
            self.from_source.update(direct or culprits)
            return True
        # uv's reason is a proof: if torch is not in it, nothing about torch can change it.
        of_torch = (*FAMILY, *map(name_of, question.limits))
        if not is_project or any(_mentions(name, reason) for name in of_torch):
            return False
        self.left_to_installer.update(dict.fromkeys(culprits, reason))
        return True

    def _set(self, build: TorchBuild, answer: IndexAnswer) -> PackageSet:
        """The set of an answer: torch's family, the requested packages, then the rest; with notes
        on the packages that were left out of the question, and on why torch is not the newest."""
        torch_index = index_url(build.backend, self.index.torch_root)
        packages = []
        for name, version in answer.packages.items():
            is_of_torch_index = name in (*FAMILY, *answer.on_torch_index)
            extras = Requirement(self.requested[name]).extras if name in self.requested else ()
            package = JointPackage(
                name=name,
                version=build.labelled_version(version) if name in FAMILY else version,
                index_url=torch_index if is_of_torch_index else None,
                asked=name in self.requested,
                extras=tuple(sorted(extras)),
            )
            packages.append(package)
        packages.sort(key=lambda one: (one.name not in FAMILY, not one.asked, one.name))
        notes = [*notes_on_sources(self.from_source, self.question)]
        for reason in dict.fromkeys(self.left_to_installer.values()):
            names = ", ".join(name for name, why in self.left_to_installer.items() if why == reason)
            notes.append(
                f"{names}: not resolved by gpusetup, because torch is not the reason: {reason}"
            )
        why_older = self._why_older(build)
        if why_older:
            notes.append(f"torch {build.torch} is not the newest: {why_older}")
        return PackageSet(
            build=build,
            packages=tuple(packages),
            why_older=why_older,
            notes=tuple(notes),
            left_out=(*self.from_source, *self.left_to_installer),
        )

    def _why_older(self, build: TorchBuild) -> str | None:
        """The reason why a build's torch is not the newest that fits; None if it is."""
        newest = self.question.newest_alone or build
        if parsed(newest.torch) <= parsed(build.torch):
            return None
        reasons = (self.question.why_not(newest), *self.failures.values())
        unknown = f"torch {newest.torch} works only with other releases of these packages"
        return self._reason_for_user(next(filter(None, reasons), unknown))

    def _reason_for_user(self, reason: str) -> str:
        """uv's reason, cut to a screen's length. It names the torch that was tried as a requirement
        of the user, which is only right if they named one."""
        shown = reason[:MOST_OF_A_REASON]
        if self.question.wish.torch:
            return shown
        return re.sub(r"you require torch==([\w.+]+)", r"gpusetup tried torch==\1", shown)

    def _refuse_other_python(self, word: str) -> None:
        """Raise Unsatisfiable if a pinned release has wheels only for another Python, with that
        Python and the torch that comes with it there."""
        python = self.question.host.facts.python
        if exact_version(Requirement(word).specifier) is None or python is None:
            return
        # `3.13t` is free-threaded. Few packages have wheels for such a Python, so none is tried.
        minor = parsed(python.rstrip("t")).minor
        # Few, because each is a question to the index, and mostly older ones, because a package
        # that is no longer built has wheels for those.
        for other_minor in (minor - 1, minor - 2, minor + 1, minor - 3):
            other = f"3.{other_minor}"
            on_other = SetQuestion(words=(word,), python=other, with_dependencies=False)
            if self.index.ask(on_other).reason:
                continue
            facts = replace(self.question.host.facts, python=other)
            build = best_build(replace(self.question.of_torch, host=facts))
            gives = f", which gives torch {build.torch} from {build.backend}" if build else ""
            step = f"`uv venv --python {other}`, then run this again with `--python .venv`{gives}"
            title = f"{word} has no wheel for Python {python}, but one for Python {other}"
            raise refusal(title, steps=[step])

    def _nothing_found(self, build: TorchBuild, first_answer: IndexAnswer) -> Unsatisfiable:
        """The error that no set of packages works, with the cause. `build` is one that was tried:
        the newest, unless its first answer already names packages that no index has."""
        if first_answer.unknown:
            by_uv = setting("UV_INDEX", "URL", OWN_SYSTEM)
            return refusal(
                f"None of the indexes has {' or '.join(first_answer.unknown)}",
                f"searched {self.index.torch_root} for torch's packages, uv's indexes for others",
                steps=[f"check the spelling, or add the index that has it: `{by_uv}`"],
            )
        # The reason of the question with any torch is about the packages, not about one torch.
        reason = self.reason_against_any_torch or first_answer.reason or ""
        culprits = [name for name in self.requested if _mentions(name, reason)]
        words = " and ".join(self.requested[name] for name in culprits or self.requested)
        without_wheel, excluded = first_answer.without_wheel, self._excluded_by_table(build)
        # The most certain cause is the title: the table's, then torch, then a missing wheel.
        title = f"No release fits: {words}"
        if excluded:
            # The table's reasons end with their source in brackets.
            title = excluded[0].partition(" (")[0]
        elif any(_mentions(name, reason) for name in FAMILY):
            title = f"No torch for this machine works with {words}"
        elif without_wheel:
            title = f"No wheel for this machine: {' and '.join(without_wheel)}"
        steps = ["change one of these versions to fit, then run this command again"]
        if without_wheel:
            os = self.question.host.machine.os.family
            advice = (f"{build_advice(name, os)}; check the spelling" for name in without_wheel)
            steps = ["run `gpusetup install` first, then build the package", *advice]
        steps += alternatives_to(without_wheel or culprits, build, self.index.torch_root)
        return refusal(title, *excluded, self._reason_for_user(reason), steps=steps)

    def _excluded_by_table(self, build: TorchBuild) -> list[str]:
        """The table's reasons against the releases that uv would install with a build.

        gpusetup's own limits, such as `torchcodec<0.17`, are not what the user required. uv only
        sees that they exclude what the packages bring, so it is asked again without them."""
        words = tuple(self.requested.values())
        without_limits = SetQuestion(words=words, torch=f"=={build.torch}", backend=build.backend)
        reasons = (
            why_release_differs(name, public_version(version), build, self.question.catalog)
            for name, version in self.index.ask(without_limits).packages.items()
        )
        return [*filter(None, reasons)]


def _mentions(name: str, reason: str) -> bool:
    """Whether uv's reason names a package: `vllm==0.9` names vllm, but `vllm-flash` does not."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", reason) is not None


def refusal(cause: str, *more: str, steps: Iterable[str] = ()) -> Unsatisfiable:
    """An error with the cause in its first line, and the steps as its hint."""
    hint = "\n  ".join(("nothing was changed", *steps))
    return Unsatisfiable("\n  ".join((cause, *more)), hint=hint)


def nothing_goes_together(question: PackageQuestion) -> Unsatisfiable:
    """The error if no build has a release of every package, with what to do instead."""
    host, newest = question.host, question.newest_alone
    if newest is None:
        return nothing_fits(newest_fitting(question.of_torch))
    steps = []
    for word in question.wish.words:
        project = companion_table().project(name_of(word))
        alone = replace(question, wish=replace(question.wish, packages=(word,), family=()))
        # Only packages that cause the failure need a workaround.
        if project is None or not alone.why_not(newest):
            continue
        # A pin that cannot run here is the whole answer.
        refused_pin = _refusal_of_pin(word, question)
        if refused_pin:
            return refused_pin
        has_wheels = any(project.has_wheels(row) for row in project.rows)
        # Do not suggest an hour of compiling for a package that cannot compute on these GPUs.
        runs_here = why_not_on_gpus(project, newest, host.facts) is None
        if runs_here and not has_wheels:
            steps.append(build_advice(project.name, host.machine.os.family))
        steps += alternatives_to((project.name,), newest)
    version = host.machine.driver.version
    driver = f" (driver {version})" if version else ""
    return refusal(
        question.why_not(newest) or "no single torch works with all of these packages",
        f"the newest torch that fits here{driver} is {newest.torch} ({newest.backend})",
        steps=steps,
    )


def _refusal_of_pin(word: str, question: PackageQuestion) -> Unsatisfiable | None:
    """The error if a pinned companion needs a torch that cannot run on this host, with the nearest
    release that works; None if the pin is not the cause."""
    of_torch, project = question.of_torch, companion_table().project(name_of(word))
    version = exact_version(Requirement(word).specifier)
    row = row_of(project, version) if project and version else None
    torch = exact_version(SpecifierSet(row.torch or "")) if row else None
    if project is None or torch is None:
        return None
    of_pin = replace(of_torch, wish=replace(of_torch.wish, torch=torch))
    if fitting_builds(of_pin):
        return None
    near = nearest_build(torch, replace(of_torch, wish=replace(of_torch.wish, torch=None)))
    steps = []
    if near:
        # By the table alone, so that a release without a wheel does not count.
        releases = [
            other.versions.removeprefix("==")
            for other in project.rows
            if not why_row_differs(
                project, other, near, question.catalog, by_table=True, of_torch_index=False
            )
        ]
        if releases:
            # The table is sorted from new to old. The nearest to the pin is the oldest release for
            # a newer torch, and the newest for an older one.
            release = releases[-1] if parsed(near.torch) > parsed(torch) else releases[0]
            steps.append(
                f"{project.name} {release} works, with torch {near.torch} from {near.backend}: "
                "change the pin, then run this again"
            )
    return refusal(f"{word} needs torch {torch}, which {main_reason(of_pin)}", steps=steps)


def build_advice(word: str, os: str | None) -> str:
    """The advice that builds a package for torch, or downloads a wheel that no index has."""
    name, project = name_of(word), companion_table().project(name_of(word))
    tools = shell_line(("uv", "pip", "install", *EXTENSION_TOOLS), os)
    build = shell_line(("uv", "pip", "install", "--no-build-isolation", word), os)
    command = f"`{tools}`, then `{build}`"
    if project and project.wheels_page:
        return (
            f"wheels for some torch versions are at {project.wheels_page}: {command} downloads "
            "the one that matches your torch, or compiles it if there is none, which needs nvcc"
        )
    return f"to compile {name} for your torch, run {command} (CUDA code needs nvcc)"


def alternatives_to(
    names: Iterable[str], build: TorchBuild, root: str = INDEX_ROOT
) -> Iterator[str]:
    """Yields what to use instead of these packages with a build, according to the table."""
    for name in names:
        project = companion_table().project(name)
        listed = project.way_out(build, index_url(build.backend, root)) if project else ""
        yield from (f"alternative to {name}: {one}" for one in listed.split("; ") if one)
