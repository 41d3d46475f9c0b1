"""One joint question: its packages, the builds that are tried, and how each question is put."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import (
    CompanionTable,
    companion_table,
    constraints_for,
    cuda_constraints,
    has_cuda,
    row_of,
    takes_torch,
)
from gpusetup.catalog.default_wheels import usual_major
from gpusetup.install.credentials import without_credentials
from gpusetup.install.joint.ask import Answer, Asker, Question, macos_of, platform_of
from gpusetup.install.joint.links import StandIn, stand_ins_of, write_links
from gpusetup.install.joint.words import by_name, name_of, projects_of
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.joint import labelled
from gpusetup.resolver.situation import python_tag

OF_TORCH = ("triton",)
"""What torch's own METADATA names by its version: a stand-in of torch has none of that."""


class Work:
    """One joint question, its candidates and what was learned."""

    def __init__(
        self,
        machine: Snapshot,
        words: Sequence[str],
        builds: Sequence[TorchBuild],
        asker: Asker,
        links: Path,
        catalog: Catalog,
        indexes: Sequence[str] = (),
        *,
        one_cuda: bool = False,
    ) -> None:
        self.one_cuda = one_cuda
        self.machine, self.builds, self.asker = machine, tuple(builds), asker
        self.index = without_credentials(indexes[0]) if len(indexes) == 1 else None
        self.table: CompanionTable = companion_table()
        self.words = by_name(words)
        self.names = tuple(map(name_of, self.words))
        self.projects = projects_of(self.names, self.table)
        self.python = (python_tag(machine) or "3.12").rstrip("t")
        self.catalog, self._links, self._lock = catalog, links, Lock()
        self._unwritten: tuple[StandIn, ...] | None = ()
        self._sets = 0
        self.stand_in(listed=True)
        known = [row.torch for row in catalog.releases]
        self.holes = tuple(f"torch!={t}" for t in known if t not in {b.torch for b in self.builds})

    def stand_in(self, *, listed: bool) -> None:
        """What stands in, in a folder of its own; every torch where no index lists torch."""
        self.listed = listed
        rows = stand_ins_of(self.builds, self.projects, self.catalog, self.python, listed=listed)
        self._sets += 1
        self.links, self._unwritten = self._links / str(self._sets), rows
        self.standing_in = tuple(sorted(row.filename for row in rows))

    def _write(self) -> None:
        """The stand-ins, where uv is run at all."""
        with self._lock:
            if self._unwritten is not None:
                self.links.mkdir(exist_ok=True)
                write_links(self.links, self._unwritten)
                self._unwritten = None

    def _ask(self, wants: Sequence[str], constraints: Sequence[str]) -> Answer:
        question = Question(
            wants=tuple(wants),
            constraints=tuple(constraints),
            python=self.python,
            platform=platform_of(self.machine),
            macos=macos_of(self.machine),
            links=str(self.links),
            standing_in=self.standing_in,
        )
        return self.asker.ask(question, self._write)

    def free(self, wants: Sequence[str]) -> Answer:
        """With any torch that fits."""
        newest, oldest = self.builds[0].torch, self.builds[-1].torch
        span = (f"torch>={oldest},<={newest}", *self.holes)
        return self._ask((*wants, "torch"), span)

    def beside(self, build: TorchBuild, wants: Sequence[str]) -> Answer:
        """With one torch; what our table says of it is added."""
        rows = tuple(
            text
            for project in self.table.projects
            if not project.declares or project.name in OF_TORCH
            for text in constraints_for(project, build.torch)
        )
        if self.one_cuda:
            own, usual = build.cuda_major, usual_major(self.catalog, build)
            each = (cuda_constraints(project, own, usual) for project in self.table.projects)
            rows = tuple(dict.fromkeys((*rows, *(text for texts in each for text in texts))))
        return self._ask((*wants, "torch"), (f"torch=={build.torch}", *rows, *self.not_on(build)))

    def not_on(self, build: TorchBuild) -> tuple[str, ...]:
        """The releases of torchvision that torch's index of this backend does not have: a later
        one takes this torch too, and was built for other backends only."""
        if not build.labelled:
            return ()
        where = (build.backend, build.os, build.machine)
        rows = [
            (r.torchvision, self.catalog.row_of(r.torch, *where)) for r in self.catalog.releases
        ]
        there = {vision for vision, row in rows if row is not None}
        gone = dict.fromkeys(v for v, row in rows if v and row is None and v not in there)
        own = parsed(build.torchvision) if build.torchvision else None
        return tuple(f"torchvision!={v}" for v in gone if own is None or parsed(v) > own)

    def with_own_vision(self, build: TorchBuild, answer: Answer) -> Answer:
        """The answer with a torchvision that this build's index has; itself where it has it."""
        vision = (answer.version("torchvision") or "").partition("+")[0]
        if f"torchvision!={vision}" not in self.not_on(build):
            return answer
        exact = [f"{name}=={answer.version(name)}" for name in self.names if name != "torchvision"]
        again = self.beside(build, [*self.words, *exact])
        return again if again.reason is None else answer

    def instead(
        self, build: TorchBuild, other: TorchBuild, answer: Answer
    ) -> tuple[TorchBuild, Answer]:
        """The same set with another build of its torch: what that one requires is asked anew."""
        self.builds = tuple(other if one == build else one for one in self.builds)
        self.stand_in(listed=self.listed)
        exact = [f"{name}=={answer.version(name)}" for name in self.names]
        again = self.beside(other, [*self.words, *exact])
        return other, again if again.reason is None else answer

    def build_of(self, answer: Answer) -> TorchBuild | None:
        torch = (answer.version("torch") or "").partition("+")[0]
        return next((one for one in self.builds if one.torch == torch), None)

    def agrees(self, answer: Answer, build: TorchBuild) -> bool:
        """Whether our table takes every package of the answer beside that torch."""
        known = ((self.table.project(one.name), one.version) for one in answer.packages)
        taken = all(p is None or takes_torch(p, v, build.torch) is not False for p, v in known)
        return taken and not (self.one_cuda and self.other_cuda(build, answer))

    def other_cuda(self, build: TorchBuild, answer: Answer) -> dict[str, str]:
        """What of an answer is built for another CUDA than torch, and would not load: why, by its
        name."""
        found, usual = {}, usual_major(self.catalog, build)
        torch = f"torch for CUDA {build.cuda}" if build.cuda else f"this torch is {build.backend}'s"
        for one in answer.packages:
            project = self.table.project(one.name)
            row = project and row_of(project, one.version)
            if project and row and not has_cuda(project, row, build.cuda_major, usual):
                majors = " and ".join(row.cuda.split()).replace("default", usual)
                said = f"{one.name} {one.version} is built for CUDA {majors}, {torch}"
                found[one.name] = f"{said} ({row.source})"
        return found

    def not_taken(self, answer: Answer, build: TorchBuild) -> str | None:
        """Which package that was asked for our table does not take beside a torch."""
        for project in self.projects:
            version = answer.version(project.name)
            if version and takes_torch(project, version, build.torch) is False:
                row = row_of(project, version)
                assert row is not None
                said = "declares" if project.declares else "needs, and does not declare,"
                return f"{project.name} {version} {said} torch{row.torch} ({row.source})"
        return None


def hashes_of(work: Work, build: TorchBuild, answer: Answer) -> dict[str, tuple[str, ...]]:
    """The sha256 of each package's wheels, where an index names them. A stand-in's says nothing of
    the real wheel, nor does the default index's of the one with a label on torch's index."""
    return {
        one.name: tuple(sha for file, sha in one.files if sha and file not in work.standing_in)
        for one in answer.packages
        if labelled(one.name, one.version, build) == one.version
    }
