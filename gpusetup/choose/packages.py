"""Chooses torch together with packages that need it, by asking an index at most a few times.

These builds are tried, until an index has a set with one of them:

    1. the installed torch if it works, then the nearest newer one;
    2. the newest torch that fits, with the newest release of each package that is asked for
       without a version;
    3. the torch that uv names if it may choose one, on the indexes of up to three backends;
    4. the same two with any releases of the packages.

Only what depends on torch can fail the question. A package without a wheel is left out and built
when it is installed. Packages of a project whose conflict has nothing to do with torch are left to
the installer. The companion table rules out combinations that an index accepts although they do
not work. Pure apart from the index, which the caller passes in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import chain

from packaging.requirements import Requirement

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import companion_table
from gpusetup.choose.candidates import (
    PackageQuestion,
    PackageSet,
    candidates,
    first_line,
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
from gpusetup.choose.index import AnsweringIndex, IndexAnswer, Released, SetQuestion
from gpusetup.choose.wish import name_of
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
YEARS_OF_AN_OLD_WHEEL = 3
"""A package whose newest wheel is older has probably been given up."""
USUAL_GLIBC = "2.35"
"""The glibc that is assumed if the C library is unknown: the one of Ubuntu 22.04."""
MOST_OF_A_REASON = 800
"""In characters: ten lines of a terminal. An index may hold names and versions of any length."""


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
        self.asked = {name_of(word): word for word in question.words}
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
        answers: list[IndexAnswer] = []
        # Without the pins, uv looks through years of older releases, until one fits this torch.
        for asked in dict.fromkeys((tuple(map(self._at_newest, words)), words)):
            for build in chain(builds[:1], self._named_by_uv(builds, asked)):
                answers.append(self._try(build, asked))
                if not answers[-1].reason:
                    self._refuse_old(build, answers[-1])
                    return self._set(build, answers[-1])
                if answers[0].unknown:
                    raise self._unknown(answers[0].unknown)
        raise self._nothing_found(builds[0], answers[0])

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
        yield from [build for build in newer if build.torch == newer[-1].torch][:1]

    def _named_by_uv(
        self, builds: Sequence[TorchBuild], words: tuple[str, ...]
    ) -> Iterator[TorchBuild]:
        """Yields the builds whose torch uv names if it may choose, for one backend after the
        other: the one of the newest build first."""
        for backend in [*dict.fromkeys(build.backend for build in builds)][:MOST_BACKENDS]:
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
            name: word for name, word in self.asked.items() if name in left and _names(name, reason)
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

    def _newest_releases(self) -> Mapping[str, Released]:
        """The newest release of each package that was asked for without a version. Of a project,
        only those that use torch count: the others need not be at their newest."""
        is_typed = not self.question.wish.from_project
        names = [
            name
            for name, word in self.asked.items()
            if not Requirement(word).specifier and name not in FAMILY
            if is_typed or uses_torch(name)
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
        """The requirement, pinned to the newest release if it names no version."""
        requirement, newest = Requirement(word), self.newest.get(name_of(word))
        is_plain = not (requirement.specifier or requirement.marker or requirement.url)
        # Naming a pre-release by its version would count as a request for one.
        if newest is None or not is_plain or parsed(newest.version).is_prerelease:
            return word
        return f"{word}=={newest.public}"

    # --- the answer ---

    def _set(self, build: TorchBuild, answer: IndexAnswer) -> PackageSet:
        """The set of an answer: torch and its companions, then the requested packages, then the
        rest, each sorted by name."""
        torch_index = index_url(build.backend, self.index.torch_root)
        packages = []
        for name, release in answer.packages.items():
            project = companion_table().project(name)
            is_of_torch_index = name in (*FAMILY, *answer.on_torch_index)
            extras = Requirement(self.asked[name]).extras if name in self.asked else ()
            packages.append(
                JointPackage(
                    name=name,
                    version=labelled(name, release.version, build),
                    index_url=torch_index if is_of_torch_index else None,
                    # Packages that the table does not know declare their requirements themselves.
                    declared=project is None or project.declares,
                    asked=name in self.asked,
                    extras=tuple(sorted(extras)),
                )
            )
        packages.sort(key=lambda one: (one.name not in FAMILY, not one.asked, one.name))
        return PackageSet(
            build=build,
            packages=tuple(packages),
            held_back=tuple(self._held_back(build, answer)),
            notes=(*self._notes(answer), *answer.notes),
            left_out=(*self.sources, *self.others),
        )

    def _notes(self, answer: IndexAnswer) -> Iterator[str]:
        yield from notes_on_sources(self.sources, self.question)
        for reason in dict.fromkeys(self.others.values()):
            names = ", ".join(name for name, why in self.others.items() if why == reason)
            yield f"left to your installer, because torch is not the reason: {names}: {reason}"
        today = date.fromisoformat(self.question.catalog.as_of)
        for name, word in self.asked.items():
            day = answer.packages[name].published if name in answer.packages else None
            # A version that is named is the user's own decision.
            is_old = day and (today - day.date()).days > YEARS_OF_AN_OLD_WHEEL * YEAR
            if day and is_old and not Requirement(word).specifier:
                yield f"{name}'s newest wheel that works here is from {day.year}"
        os = self.question.host.machine.os
        if os.family == "linux" and not (os.libc or "").startswith("glibc "):
            yield (
                f"the C library is unknown, so gpusetup assumes glibc {USUAL_GLIBC}; to set "
                "another version, add `--glibc`"
            )

    def _held_back(self, build: TorchBuild, answer: IndexAnswer) -> Iterator[HeldBack]:
        """Yields torch and each package that is not at its newest release, with the reason."""
        newest = newest_alone(self.question) or build
        if parsed(newest.torch) > parsed(build.torch):
            of_newest = (one for (tried, _), one in self.failures.items() if tried == newest)
            reason = self.question.why_not(newest) or next(of_newest, None)
            reason = reason or next(iter(self.failures.values()), None)
            reason = reason or f"torch {newest.torch} goes with other releases of them"
            yield HeldBack(package="torch", at=build.torch, by=self._as_seen(reason))
        for name, release in self.newest.items():
            found = answer.packages.get(name)
            if found is None or parsed(found.public) >= parsed(release.public):
                continue
            catalog, is_own = self.question.catalog, name in answer.on_torch_index
            reason = why_release_differs(
                name, release.public, build, catalog, of_torch_index=is_own
            )
            # What holds for any torch is the better reason.
            met = filter(None, (self.with_any_torch, *self.failures.values()))
            failures = (one for one in met if _names(name, one))
            reason = reason or next(failures, f"{name} {release.public} goes with other releases")
            yield HeldBack(package=name, at=found.public, by=self._as_seen(reason))

    def _years_behind(self, answer: IndexAnswer) -> list[str]:
        """The requested packages whose release is over a year older than their newest one."""
        old = []
        for name, newest in self.newest.items():
            found = answer.packages.get(name)
            day, newest_day = found.published if found else None, newest.published
            if day and newest_day and (newest_day - day).days > YEAR:
                old.append(name)
        return old

    def _as_seen(self, reason: str) -> str:
        """uv's reason, cut to a screen's length, without torch's exact version as the user's own
        requirement, unless it is."""
        reason = reason[:MOST_OF_A_REASON]
        if self.question.wish.torch:
            return reason
        return re.sub(r"you require torch==([\w.+]+)", r"gpusetup tried torch==\1", reason)

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
            torch = pick(replace(self.question.of_torch, host=facts))
            gives = f", which gives torch {torch.torch} from {torch.backend}" if torch else ""
            side = "older" if other < minor else "newer"
            raise Unsatisfiable(
                f"{word} has wheels for Python {name} and {side} only; this Python is {python}",
                hint=f"nothing was changed; `uv venv --python {name}`, then run this again with "
                f"`--python .venv`{gives}",
            )

    def _unknown(self, names: Sequence[str]) -> Unsatisfiable:
        """The error that no index has these packages."""
        cause = first_line(f"No index that was asked has {' or '.join(names)}")
        # A file that is not read may name an index that has the package, so list all places.
        places = "".join(f"\n  {place}" for place in self.index.places)
        return Unsatisfiable(
            "\n  ".join(cause) + places,
            hint="nothing was changed; check the spelling, or name the index that has it: "
            f"`{own_setting('UV_INDEX', 'URL')}`",
        )

    def _nothing_found(self, newest: TorchBuild, first: IndexAnswer) -> Unsatisfiable:
        """The error that no set of packages works, with the cause."""
        reason = self.with_any_torch or first.reason or ""
        named = [name for name, word in self.asked.items() if _names(name, reason)]
        words = " and ".join(self.asked[name] for name in named or self.asked)
        # uv only sees that a constraint excludes what the packages bring: the table knows why.
        brought = self.index.ask(
            SetQuestion(
                words=self.question.words, torch=f"=={newest.torch}", backend=newest.backend
            )
        ).packages
        verdicts = (
            why_release_differs(name, release.public, newest, self.question.catalog)
            for name, release in brought.items()
        )
        excluded = [*filter(None, verdicts)]
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
        steps = [
            "nothing was changed; change the version of one of them as the reason says, then run "
            "this again"
        ]
        if first.without_wheel:
            steps = ["nothing was changed; `gpusetup install` first, then build it"]
        for name in first.without_wheel or named:
            project = companion_table().project(name)
            if first.without_wheel:
                build = f"`uv pip install --no-build-isolation {name}` builds it for your torch"
                steps.append(way_to_build(project) if project else f"{build}; check the spelling")
            if project:
                torch_index = index_url(newest.backend, self.index.torch_root)
                steps.append(f"or instead: {project.way_out(newest, torch_index)}")
        lines = (*first_line(title), *excluded, self._as_seen(reason))
        return Unsatisfiable("\n  ".join(lines), hint="\n  ".join(steps))


def _names(name: str, reason: str) -> bool:
    """Whether uv's reason names a package."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", reason) is not None
