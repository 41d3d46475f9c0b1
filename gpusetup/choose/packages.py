"""Chooses torch together with packages that need it, by asking an index at most a few times.

These builds are tried, until an index has a set with one of them:

    1. the installed torch if it works, then the nearest newer one;
    2. the newest torch that fits, with the newest release of each package that is asked for
       without a version;
    3. the torch that uv names if it may choose one, on the indexes of up to three backends;
    4. the newest torch with any releases of the packages.

Only what depends on torch can fail the question. A package without a wheel is left out and built
when it is installed. Packages of a project whose conflict has nothing to do with torch are left to
the installer. The companion table rules out combinations that an index accepts although they do
not work. Pure apart from the index, which the caller passes in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import Requirement

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import companion_table
from gpusetup.choose.candidates import (
    PackageQuestion,
    PackageSet,
    candidates,
    first_line,
    how_to_build,
    labelled,
    newest_alone,
    notes_on_sources,
    nothing_goes_together,
    way_to_build,
)
from gpusetup.choose.compatibility import (
    exact_version,
    limits_beside,
    names_on_torch_index,
    uses_torch,
    why_release_differs,
)
from gpusetup.choose.constraints import pick
from gpusetup.choose.host import question_of
from gpusetup.choose.index import AnsweringIndex, IndexAnswer, Released, SetQuestion
from gpusetup.choose.wish import extras_of, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, HeldBack, JointPackage, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.shell import own_setting
from gpusetup.model.versions import parsed

MOST_TRIES = 5
"""How many builds an index is asked about; uv takes seconds for each."""
MOST_BACKENDS = 3
MOST_ROUNDS = 20
"""How often packages are left out of one question; each round leaves out at least one."""
YEAR = 365
"""In days. A release that is older than its package's newest by more than this is not chosen
silently."""
USUAL_GLIBC = "2.35"
"""The glibc that is assumed if the C library is unknown: the one of Ubuntu 22.04."""


def set_by_index(
    question: PackageQuestion, index: AnsweringIndex, prefer: TorchBuild | None = None
) -> PackageSet:
    """The set of packages from an index. `prefer` is the installed build if it works.

    Raises Unsatisfiable if no set works, or only one with an old release of a requested package.
    """
    return _Search(question, index).best(prefer)


class _Search:
    """A search in an index, with the packages that it left out and the reasons that it met."""

    def __init__(self, question: PackageQuestion, index: AnsweringIndex) -> None:
        self.question, self.index = question, index
        self.tried = 0
        self.sources: dict[str, str] = {}
        """The packages that are built from source: their requirements by name."""
        self.others: dict[str, str] = {}
        """The packages that are left to the installer: uv's reasons by name."""
        self.failures: dict[tuple[TorchBuild, tuple[str, ...]], str] = {}
        self.with_any_torch: str | None = None
        """uv's reason if no torch of a backend works with the packages."""
        self.newest: Mapping[str, Released] = {}

    def best(self, prefer: TorchBuild | None) -> PackageSet:
        builds = candidates(self.question, prefer)
        if not builds:
            raise nothing_goes_together(self.question)
        words = self.question.words
        self.newest = self._newest_releases()
        for build in self._installed_first(builds, prefer):
            answer = self._try(build, words)
            if not answer.reason and not self._years_behind(answer):
                return self._set(build, answer)
        pinned = tuple(map(self._at_newest, words))
        first = self._try(builds[0], pinned)
        if not first.reason:
            return self._set(builds[0], first)
        if first.unknown:
            raise self._nothing_found(first)
        for build in self._named_by_uv(builds, pinned):
            answer = self._try(build, pinned)
            if not answer.reason:
                return self._set(build, answer)
        if pinned != words:
            for build in (builds[0], *self._named_by_uv(builds, words)):
                answer = self._try(build, words)
                if not answer.reason:
                    self._refuse_old(build, answer)
                    return self._set(build, answer)
        raise self._nothing_found(first)

    def _installed_first(
        self, builds: Sequence[TorchBuild], prefer: TorchBuild | None
    ) -> Iterator[TorchBuild]:
        """Yields the installed torch if it is a candidate, and the nearest newer one, because it
        changes the environment least."""
        if prefer is None:
            return
        if prefer in builds or not self.question.why_not(prefer):
            yield prefer
        newer = [build for build in builds if parsed(build.torch) > parsed(prefer.torch)]
        if newer:
            torch = newer[-1].torch
            yield next(build for build in newer if build.torch == torch)

    def _named_by_uv(
        self, builds: Sequence[TorchBuild], words: tuple[str, ...]
    ) -> Iterator[TorchBuild]:
        """Yields the builds whose torch uv names if it may choose, for one backend after the
        other: the one of the newest build first."""
        newest: dict[str, TorchBuild] = {}
        for build in builds:
            newest.setdefault(build.backend, build)
        for backend in [*newest][:MOST_BACKENDS]:
            here = [build for build in builds if build.backend == backend]
            span = f">={here[-1].torch},<={here[0].torch}"
            answer = self._without_culprits(SetQuestion(words=words, torch=span, backend=backend))
            self.with_any_torch = self.with_any_torch or answer.reason
            named = answer.packages.get("torch")
            for build in here:
                # The limits of the companion table may exclude what uv names, then an older torch.
                if named is None or parsed(build.torch) > parsed(named.public):
                    continue
                if (build, words) not in self.failures and self.tried < MOST_TRIES:
                    yield build
                    break

    # --- asking ---

    def _try(self, build: TorchBuild, words: tuple[str, ...]) -> IndexAnswer:
        """The packages that work with a build. Releases that the companion table excludes are left
        out."""
        self.tried += 1
        catalog = self.question.catalog
        names = [project.name for project in companion_table().projects]
        own = names_on_torch_index(names, build, catalog)
        question = SetQuestion(
            words=words,
            torch=f"=={build.torch}",
            backend=build.backend,
            limits=limits_beside(catalog, build, own),
            of_torch_index=own,
        )
        answer = self._without_culprits(question)
        # A mirror may have only torch itself, so try again with all others from the default index.
        if answer.reason and any(_names(name, answer.reason) for name in own):
            question = replace(question, limits=limits_beside(catalog, build), of_torch_index=())
            answer = self._without_culprits(question)
        if answer.reason:
            self.failures[build, words] = answer.reason
        return answer

    def _without_culprits(self, question: SetQuestion) -> IndexAnswer:
        """The index's answer, after the packages that torch does not concern are left out."""
        for _ in range(MOST_ROUNDS):
            left = {*self.sources, *self.others}
            words = tuple(word for word in question.words if name_of(word) not in left)
            answer = self.index.ask(replace(question, words=words))
            if not answer.reason or not self._leave_out(answer, question, words):
                break
        return answer

    def _leave_out(
        self, answer: IndexAnswer, question: SetQuestion, words: tuple[str, ...]
    ) -> bool:
        """Whether packages were left out because of this answer. Raises Unsatisfiable for a pin
        that has wheels only for another Python."""
        reason, is_project = answer.reason or "", self.question.wish.from_project
        left = {name_of(word) for word in words} - {*FAMILY}
        culprits = {
            name: word
            for name, word in self._asked_words().items()
            if name in left and _names(name, reason)
        }
        wheelless = {*answer.without_wheel} - {*FAMILY}
        for name in wheelless & {*culprits}:
            self._refuse_other_python(culprits[name])
        # Something that the user typed must remain.
        if not culprits or (len(culprits) == len(words) and not is_project):
            return False
        if wheelless:
            # If only a dependency has no wheel, all that may bring it are left out.
            direct = {name: word for name, word in culprits.items() if name in wheelless}
            self.sources.update(direct or culprits)
            return True
        # uv's reason is a proof: if torch is not in it, nothing about torch can change it.
        of_torch = (*FAMILY, *map(name_of, question.limits))
        if not is_project or any(_names(name, reason) for name in of_torch):
            return False
        self.others.update(dict.fromkeys(culprits, reason))
        return True

    def _asked_words(self) -> dict[str, str]:
        return {name_of(word): word for word in self.question.words}

    def _newest_releases(self) -> Mapping[str, Released]:
        """The newest release of each package that was asked for without a version. Of a project,
        only those that use torch count: the others need not be at their newest."""
        is_typed = not self.question.wish.from_project
        names = [
            name_of(word)
            for word in self.question.words
            if not Requirement(word).specifier
            and name_of(word) not in FAMILY
            and (is_typed or uses_torch(name_of(word)))
        ]
        if not names:
            return {}
        answer = self.index.ask(SetQuestion(words=tuple(names), with_dependencies=False))
        if answer.reason and len(names) > 1:
            # Those without a wheel are left out later, with a note.
            without = {*answer.without_wheel, *answer.unknown}
            rest = tuple(name for name in names if name not in without)
            answer = self.index.ask(SetQuestion(words=rest, with_dependencies=False))
        return answer.packages

    def _at_newest(self, word: str) -> str:
        """The requirement, pinned to the newest release if it names no version.

        Otherwise uv looks through years of older releases, until one fits the newest torch.
        """
        requirement = Requirement(word)
        newest = self.newest.get(name_of(word))
        is_plain = not requirement.specifier and not requirement.marker and not requirement.url
        # Naming a pre-release by its version would count as a request for one.
        if newest is None or not is_plain or parsed(newest.version).is_prerelease:
            return word
        return f"{word}=={newest.public}"

    # --- the answer ---

    def _set(self, build: TorchBuild, answer: IndexAnswer) -> PackageSet:
        left = (*self.sources, *self.others)
        notes = [*notes_on_sources(self.sources, self.question)]
        reasons: dict[str, list[str]] = {}
        for name, reason in self.others.items():
            reasons.setdefault(reason, []).append(name)
        notes += [
            f"left to your installer, because torch is not the reason: {', '.join(names)}: {reason}"
            for reason, names in reasons.items()
        ]
        os = self.question.host.machine.os
        if os.family == "linux" and not (os.libc or "").startswith("glibc "):
            notes.append(
                f"the C library is unknown, so gpusetup assumes glibc {USUAL_GLIBC}; to set "
                "another version, add `--glibc`"
            )
        return PackageSet(
            build=build,
            packages=tuple(self._packages(build, answer)),
            held_back=tuple(self._held_back(build, answer)),
            notes=(*notes, *answer.notes),
            left_out=left,
        )

    def _packages(self, build: TorchBuild, answer: IndexAnswer) -> list[JointPackage]:
        """The packages of a set: torch and its companions, then the requested packages, then the
        rest, each sorted by name."""
        torch_index = index_url(build.backend, self.index.torch_root)
        asked = self._asked_words()
        packages = []
        for name, release in answer.packages.items():
            project = companion_table().project(name)
            is_of_torch_index = name in (*FAMILY, *answer.on_torch_index)
            packages.append(
                JointPackage(
                    name=name,
                    version=labelled(name, release.version, build),
                    index_url=torch_index if is_of_torch_index else None,
                    # Packages that the table does not know declare their requirements themselves.
                    declared=project is None or project.declares,
                    asked=name in asked,
                    extras=extras_of(self.question.words, name),
                )
            )
        packages.sort(key=lambda one: (one.name not in FAMILY, not one.asked, one.name))
        return packages

    def _held_back(self, build: TorchBuild, answer: IndexAnswer) -> Iterator[HeldBack]:
        """Yields torch and each package that is not at its newest release, with the reason."""
        newest = newest_alone(self.question) or build
        if parsed(newest.torch) > parsed(build.torch):
            failures = (one for (tried, _), one in self.failures.items() if tried == newest)
            reason = self.question.why_not(newest) or next(failures, None)
            reason = reason or next(iter(self.failures.values()), None)
            reason = reason or f"torch {newest.torch} goes with other releases of them"
            yield HeldBack(package="torch", at=build.torch, by=_as_seen(reason, self.question))
        for name, release in self.newest.items():
            found = answer.packages.get(name)
            if found is None or parsed(found.public) >= parsed(release.public):
                continue
            of_index = name in answer.on_torch_index
            reason = why_release_differs(
                name, release.public, build, self.question.catalog, of_torch_index=of_index
            )
            # What holds for any torch is the better reason.
            met = filter(None, (self.with_any_torch, *self.failures.values()))
            failures = (one for one in met if _names(name, one))
            reason = reason or next(failures, f"{name} {release.public} goes with other releases")
            yield HeldBack(package=name, at=found.public, by=_as_seen(reason, self.question))

    def _years_behind(self, answer: IndexAnswer) -> list[str]:
        """The requested packages whose release is over a year older than their newest one."""
        old = []
        for name, newest in self.newest.items():
            found = answer.packages.get(name)
            if found is None or not found.published or not newest.published:
                continue
            if (newest.published - found.published).days > YEAR:
                old.append(name)
        return old

    # --- refusals ---

    def _refuse_old(self, build: TorchBuild, answer: IndexAnswer) -> None:
        """Raise Unsatisfiable if a set has an old release of a package that the user named. It
        names the requirements that ask for it anyway."""
        old = self._years_behind(answer)
        if not old:
            return
        reasons = [held for held in self._held_back(build, answer) if held.package in old]
        shown = "; ".join(f"{held.package} only at {held.at}" for held in reasons)
        words = " ".join(f"'{held.package}=={held.at}'" for held in reasons)
        lines = first_line(f"Only an old release goes together here: {shown}")
        raise Unsatisfiable(
            "\n  ".join((*lines, *(held.by for held in reasons))),
            hint=f"asked for by its version it is taken: {words}",
        )

    def _refuse_other_python(self, word: str) -> None:
        """Raise Unsatisfiable if a pinned release has wheels only for another Python, with that
        Python and the torch that comes with it there."""
        version = exact_version(Requirement(word).specifier)
        python = self.question.host.facts.python
        if version is None or python is None:
            return
        minor = parsed(python.rstrip("t")).minor
        for other in (minor - 1, minor - 2, minor + 1, minor - 3):
            name = f"3.{other}"
            found = self.index.ask(SetQuestion(words=(word,), python=name, with_dependencies=False))
            if found.reason:
                continue
            facts = replace(self.question.host.facts, python=name)
            question = question_of(self.question.wish, self.question.host, self.question.catalog)
            torch = pick(replace(question, host=facts))
            gives = f", which gives torch {torch.torch} from {torch.backend}" if torch else ""
            side = "older" if other < minor else "newer"
            raise Unsatisfiable(
                f"{word} has wheels for Python {name} and {side} only; this Python is {python}",
                hint=f"nothing was changed; `uv venv --python {name}`, then run this again with "
                f"`--python .venv`{gives}",
            )

    def _nothing_found(self, first: IndexAnswer) -> Unsatisfiable:
        """The error that no set of packages works, with the cause."""
        reason = self.with_any_torch or first.reason or ""
        if first.unknown:
            # A file that is not read may name an index that has the package, so list all places.
            places = "".join(f"\n  {place}" for place in self.index.places)
            command = own_setting("UV_INDEX", "URL")
            cause = first_line(f"No index that was asked has {' or '.join(first.unknown)}")
            return Unsatisfiable(
                "\n  ".join(cause) + places,
                hint="nothing was changed; check the spelling, or name the index that has it: "
                f"`{command}`",
            )
        newest = candidates(self.question)[0]
        named = [word for word in self.question.words if _names(name_of(word), reason)]
        words = " and ".join(named or self.question.words)
        excluded = [*self._excluded_by_table(newest)]
        if excluded:
            title = excluded[0].partition(" (")[0]
        elif any(_names(name, reason) for name in FAMILY):
            title = f"No torch for this machine works with {words}"
        elif first.without_wheel:
            title = f"No wheel for this machine: {' and '.join(first.without_wheel)}"
        elif len(named) > 1:
            title = f"These releases do not work together: {words}"
        else:
            title = f"No release fits: {words}"
        lines = [*first_line(title), *excluded, _as_seen(reason, self.question)]
        steps = [
            "nothing was changed; change the version of one of them as the reason says, then run "
            "this again"
        ]
        if first.without_wheel:
            steps = ["nothing was changed; `gpusetup install` first, then build it"]
        for name in first.without_wheel or [name_of(word) for word in named]:
            project = companion_table().project(name)
            if first.without_wheel:
                steps.append(
                    way_to_build(project)
                    if project
                    else f"`{how_to_build(name)}` builds it for your torch; check the spelling"
                )
            if project:
                torch_index = index_url(newest.backend, self.index.torch_root)
                steps.append(f"or instead: {project.way_out(newest, torch_index)}")
        return Unsatisfiable("\n  ".join(lines), hint="\n  ".join(steps))

    def _excluded_by_table(self, build: TorchBuild) -> Iterator[str]:
        """Yields the companion table's reasons against what the packages bring: uv only sees that
        a constraint excludes it."""
        answer = self.index.ask(
            SetQuestion(words=self.question.words, torch=f"=={build.torch}", backend=build.backend)
        )
        for name, release in answer.packages.items():
            reason = why_release_differs(name, release.public, build, self.question.catalog)
            if reason:
                yield reason


def _names(name: str, reason: str) -> bool:
    """Whether uv's reason names a package."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", reason) is not None


MOST_OF_A_REASON = 800
"""In characters: ten lines of a terminal."""


def _as_seen(reason: str, question: PackageQuestion) -> str:
    """uv's reason, cut to a screen's length, without torch's exact version as the user's own
    requirement, unless it is."""
    # An index may hold names and versions of any length.
    reason = reason[:MOST_OF_A_REASON]
    if question.wish.torch:
        return reason
    return re.sub(r"you require torch==([\w.+]+)", r"gpusetup tried torch==\1", reason)
