"""Decides which torch stays or comes, before anything is asked of an index."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.catalog.builds import with_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.refusals import (
    own_environment,
    refuse,
    refuse_trouble_elsewhere,
)
from gpusetup.install.request import Question
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot, Torch
from gpusetup.model.resolution import FAMILY, Choice, Offer, Resolution, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.companions import (
    beside_in_words,
    family_there,
    installed,
    left_behind,
    pinned,
)
from gpusetup.resolver.decide import check_request
from gpusetup.resolver.described import for_host
from gpusetup.resolver.least import Decision, least_change, left_alone, why
from gpusetup.resolver.offer import newest_of
from gpusetup.resolver.situation import situation_of


class Task(Frozen):
    """What is to be done, decided: for the plan, and to be told."""

    question: Question
    """Its machine is the host that is meant, completed from the catalog; without a torch where none
    is yet."""
    asked: RequestedPackages
    """What is to come: without torch where it stays."""
    decision: Decision
    why: str | None = None
    """Why this torch comes, or stays."""
    said: tuple[str, ...] = ()
    """What holds torch or a package at its version, where the packages chose it."""
    elsewhere: str = "gpusetup install --venv .venv"
    """The command that makes an environment of one's own with what this one would hold."""

    @property
    def machine(self) -> Snapshot:
        return self.question.machine

    @property
    def gpus_here(self) -> int | None:
        """How many GPUs this machine can prove it on; none, where it is for another host."""
        if self.question.request.for_other_host:
            return 0
        return None if self.machine.gpus is None else len(self.machine.gpus)

    @property
    def newest(self) -> Offer | None:
        """The newest that fits, where it is newer than what will be there."""

        offer = newest_of(self.decision, self.machine)
        is_newer = offer and parsed(offer.torch) > parsed(self.build.torch)
        return offer if is_newer and not self.said else None

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Those of the build too, where one comes."""
        of_build = self.resolution.notes if self.decision.moves else ()
        return (*of_build, *self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the decision besides the build."""

        offer, moves = self.newest, self.decision.moves
        newer = f"torch {offer.torch} from {offer.backend} fits too" if offer else None
        stays = beside_in_words(self.machine, self.build, load_catalog()) if moves else ()
        way = f"--torch {offer.torch}" if offer and self.question.wanted.torch else "--upgrade"
        return (
            *self.said,
            *stays,
            *((f"{newer}: add `{way}`",) if newer else ()),
        )

    @property
    def resolution(self) -> Resolution:
        return self.decision.resolution

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The build and what may be taken in its place; nothing, where a backend was named."""
        build, found = self.build, self.resolution
        url = found.index_url or ""
        first = Choice(torch=build.torch, backend=build.backend, index_url=url)
        return (first, *(found.fallbacks if self.question.request.backend == "auto" else ()))

    @property
    def build(self) -> TorchBuild:
        assert self.resolution.build is not None, "a task has a build"
        return self.resolution.build

    @property
    def is_done(self) -> bool:
        """Whether everything that was asked for is there."""
        return not (self.asked.family or self.asked.packages)

    def again(self) -> Task:
        """The same build once more: it is there, and its proof failed."""
        family = tuple(name for name in FAMILY if name in family_there(self.machine))
        asked = replace(self.asked, family=family, pinned=())
        return replace(self, asked=asked, why="the right build is installed, but its test failed")


def decide(question: Question, talk: Callable[[str], None], *, fresh: bool = False) -> Task:
    """The decision for this machine; `fresh`: the environment is yet to be made.

    Unsatisfiable where nothing fits, where the trouble is elsewhere, and where torch would go to
    another maker's GPUs unasked.
    """
    catalog, request, asked = load_catalog(), question.request, question.asked
    check_request(question.wanted, catalog)
    machine = question.machine
    if fresh:
        python = replace(machine.python, prefix=request.venv, manager="venv")
        machine = replace(machine, python=python, torch=Torch(installed=False), packages=())
    if request.for_other_host:
        machine = for_host(machine, list(request.for_gpu), request.for_driver, catalog)
    machine = with_catalog(machine, catalog)
    question = replace(question, machine=machine)
    asks = question.is_named or "torch" in asked.named
    beside = left_alone(machine, catalog) if request.packages and not asks else None
    decision = beside or least_change(machine, question.wanted, catalog, upgrade=request.upgrade)
    if not request.download:
        is_request = bool(beside) or question.is_named
        refuse_trouble_elsewhere(question, talk, decision, is_request=is_request)
    refuse(question, decision)
    situation = situation_of(machine, question.wanted, catalog)
    return Task(
        question=question,
        asked=what_comes(question, decision, repairs=beside is None),
        decision=decision,
        why="torch stays unchanged: you did not ask for a change"
        if beside
        else why(decision, situation, asked=question.wanted.torch),
        elsewhere=own_environment(question, decision),
    )


# --- what comes ----------------------------------------------------------------------------------


def what_comes(question: Question, decision: Decision, *, repairs: bool) -> RequestedPackages:
    """The words with what moves with torch; without torch, and pinned to it, where it stays.

    `repairs`: companions that do not belong to a torch that stays come anew.
    """
    machine, asked, catalog = question.machine, question.asked, load_catalog()
    build = decision.resolution.build
    assert build is not None
    if decision.moves:
        wanted = (*family_there(machine), *asked.family)
        family = tuple(name for name in FAMILY if name in wanted)
        followers = tuple(one.name for one in pinned(machine, build) if one.can_follow)
        return replace(asked, family=family, followers=followers)
    behind = left_behind(machine, build.torch, build.backend, catalog)
    behind = tuple(name for name in behind if repairs or name in asked.named)
    there, known = installed(machine), build.family()
    missing = tuple(n for n in asked.family if n != "torch" and n not in there)
    for name in (*missing, *(name for name in behind if name in asked.named)):
        if name not in known:
            raise Unsatisfiable(
                f"No {name} is known for torch {machine.torch.version}",
                hint="nothing was changed; `gpusetup resolve --explain` shows which torch has one",
            )
    comes = tuple(name for name in FAMILY if name in (*behind, *missing) and name in known)
    held = {n: one for n, one in there.items() if n not in (*comes, *behind)}
    pins = (f"{name}=={held[name].version}" for name in FAMILY if name in held)
    return replace(asked, family=comes, pinned=tuple(pins))
