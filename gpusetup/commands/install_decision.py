"""What `install` decides before anything is asked of an index: what stays, what comes, or no."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpusetup.errors import GpuSetupError, ToolFailed, Unsatisfiable, UsageError
from gpusetup.value import Value, replace

if TYPE_CHECKING:
    from gpusetup.answers import Offer
    from gpusetup.catalog import Catalog
    from gpusetup.install.plan import Asked, Plan
    from gpusetup.install.prepare import Where
    from gpusetup.install.run import Job
    from gpusetup.model import Request, Resolution, Snapshot
    from gpusetup.render.console import Console
    from gpusetup.resolver.least import Decision


class Task(Value):
    """What is to be done, decided: for the plan, and to be told."""

    machine: Snapshot
    """The host that is meant, completed from the catalog; without a torch where none is yet."""
    asked: Asked
    """What is to come: without torch where it stays."""
    decision: Decision
    other_host: bool = False
    why: str | None = None
    """Why this torch comes, or stays."""
    upgrade: str = "gpusetup install --upgrade"
    """The command that takes the newest, with the words that it was chosen by."""
    elsewhere: str = "gpusetup install --venv .venv"
    """The command that makes an environment of one's own with what this one would hold."""

    @property
    def gpus_here(self) -> int | None:
        """How many GPUs this machine can prove it on; none, where it is for another host."""
        if self.other_host:
            return 0
        return None if self.machine.gpus is None else len(self.machine.gpus)

    @property
    def newest(self) -> Offer | None:
        """The newest that fits, where it is newer than what will be there."""
        from gpusetup.model import parsed
        from gpusetup.resolver.offer import newest_of

        offer, build = newest_of(self.decision), self.resolution.build
        if offer is None or build is None or parsed(offer.torch) <= parsed(build.torch):
            return None
        return offer

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Those of the build too, where one comes."""
        return (*(self.resolution.notes if self.decision.moves else ()), *self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the decision besides the build."""
        from gpusetup.catalog_file import load_catalog
        from gpusetup.resolver.companions import left_in_words
        from gpusetup.resolver.held import concluded

        build, offer = self.resolution.build, self.newest
        guess = concluded(self.machine, load_catalog())
        moves = build is not None and self.decision.moves
        stays = left_in_words(self.machine, build, load_catalog()) if build and moves else ()
        newer = f"torch {offer.torch} from {offer.backend} fits too" if offer else None
        return (
            *((guess,) if guess else ()),
            *stays,
            *((f"{newer}: `{self.upgrade}`",) if newer else ()),
        )

    @property
    def resolution(self) -> Resolution:
        return self.decision.resolution

    @property
    def is_done(self) -> bool:
        """Whether everything that was asked for is there."""
        return not (self.asked.family or self.asked.packages)


def task_of(
    options: argparse.Namespace,
    out: Console,
    snapshot: Snapshot,
    asked: Asked,
    request: Request,
    *,
    fresh: bool = False,
) -> Task:
    """The decision for this machine; `fresh`: the environment is yet to be made.

    Unsatisfiable where nothing fits, where the trouble is elsewhere, and where torch would go to
    another maker's GPUs unasked.
    """
    from gpusetup.commands.install_parts import known_catalog
    from gpusetup.commands.install_told import own_environment, refuse, told_first, upgrade_line
    from gpusetup.resolver import check_request
    from gpusetup.resolver.least import least_change, left_alone, why
    from gpusetup.resolver.offer import newest_of
    from gpusetup.resolver.situation import situation_of

    catalog = known_catalog(snapshot, out, options.index_root)
    check_request(request, catalog)
    machine = machine_meant(options, snapshot, catalog, fresh=fresh)
    upgrade = getattr(options, "upgrade", False)
    asks = upgrade or is_asked(request) or "torch" in asked.named
    beside = left_alone(machine, catalog) if options.packages and not asks else None
    decision = beside or least_change(machine, request, catalog, upgrade=upgrade)
    requested = bool(beside) or upgrade or is_asked(request)
    told_first(options, out, machine, catalog, decision, is_request=requested)
    refuse(options, machine, decision, catalog)
    other_host = bool(options.for_gpu or options.for_driver)
    what = what_comes(machine, asked, decision, catalog)
    reason = why(decision, situation_of(machine, request, catalog), asked=request.torch)
    if beside:
        reason = "torch is left as it is: nothing was asked of it"
    offer = newest_of(decision)
    task = Task(
        machine=machine,
        asked=what,
        decision=decision,
        other_host=other_host,
        why=reason,
        elsewhere=own_environment(options, machine, decision, asked.packages),
    )
    if offer is None:
        return task
    return replace(task, upgrade=upgrade_line(options, machine, request, offer))


def is_asked(request: Request) -> bool:
    """Whether a torch or a backend was asked for."""
    return request.torch is not None or request.backend != "auto"


def machine_meant(
    options: argparse.Namespace, snapshot: Snapshot, catalog: Catalog, *, fresh: bool
) -> Snapshot:
    """The host that will run it, with what the target holds; nothing where it is yet to be made."""
    from gpusetup.catalog import with_catalog
    from gpusetup.model import Torch
    from gpusetup.resolver.described import for_host

    if fresh:
        snapshot = replace(snapshot, torch=Torch(installed=False), packages=())
    if options.for_gpu or options.for_driver:
        snapshot = for_host(snapshot, options.for_gpu, options.for_driver, catalog)
    return with_catalog(snapshot, catalog)


# --- what comes ----------------------------------------------------------------------------------


def what_comes(machine: Snapshot, asked: Asked, decision: Decision, catalog: Catalog) -> Asked:
    """The words with what moves with torch; without torch, and pinned to it, where it stays."""
    from gpusetup.resolver.companions import family_there, pinned

    build = decision.resolution.build
    assert build is not None
    if decision.moves:
        there = (*family_there(machine), *asked.family)
        family = tuple(name for name in FAMILY_ORDER if name in there)
        followers = tuple(one.name for one in pinned(machine, build) if one.can_follow)
        return replace(asked, family=family, followers=followers)
    return replace(
        asked, family=beside_kept(machine, asked, decision, catalog), pinned=pins_of(machine)
    )


FAMILY_ORDER = ("torch", "torchvision", "torchaudio")


def beside_kept(
    machine: Snapshot, asked: Asked, decision: Decision, catalog: Catalog
) -> tuple[str, ...]:
    """The companions that are wanted beside a torch that stays, or were left behind by it."""
    from gpusetup.resolver.companions import installed, left_behind, versions_of

    build = decision.resolution.build
    assert build is not None
    there, known = installed(machine), versions_of(build)
    behind = left_behind(machine, build.torch, build.backend, catalog)
    missing = tuple(n for n in asked.family if n != "torch" and n not in there)
    for name in missing:
        if name not in known:
            raise Unsatisfiable(
                f"No {name} is known for torch {machine.torch.version}",
                hint="nothing was changed; `gpusetup resolve --explain` says which torch has one",
            )
    wanted = (*behind, *missing)
    return tuple(name for name in FAMILY_ORDER if name in wanted and name in known)


def pins_of(machine: Snapshot) -> tuple[str, ...]:
    """What must stay as it is: torch, at the version that its metadata has."""
    from gpusetup.resolver.companions import installed

    own = installed(machine).get("torch")
    return (f"torch=={own.version}",) if own else ()


def anew(task: Task) -> Task:
    """The same build again: it is there, and its proof failed."""
    from gpusetup.resolver.companions import family_there

    family = tuple(name for name in FAMILY_ORDER if name in family_there(task.machine))
    again = replace(task.asked, family=family, pinned=())
    return replace(task, asked=again, why="the right build is there, and its proof failed")


# --- the plan ------------------------------------------------------------------------------------


def settled(
    options: argparse.Namespace, out: Console, job: Job, where: Where, task: Task, words: Asked
) -> tuple[Task, Plan | None]:
    """The task itself with its plan; another one, yet to be planned, where that has none: without
    what has no release, or with the torch that a package requires."""
    try:
        return task, planned_task(options, job, where, task)
    except (Unsatisfiable, ToolFailed) as problem:
        if task.asked.followers:  # those for which there is no release stay, and are named
            return replace(task, asked=replace(task.asked, followers=())), None
        if not task.asked.pinned or not task.asked.packages:
            raise
        return moved_by_package(options, out, job, where, task, words, problem), None


def planned_task(options: argparse.Namespace, job: Job, where: Where, task: Task) -> Plan:
    from gpusetup.commands.install_parts import planned

    machine = replace(task.machine, gpus=()) if task.other_host else task.machine
    plan = planned(options, job, where, task.resolution, task.asked, machine)
    brought = {wheel.name for wheel in plan.rest or ()} & set(FAMILY_ORDER)
    if brought:
        raise Unsatisfiable(
            f"{', '.join(sorted(brought))} would come from your default index, which knows no "
            "backend",
            hint="nothing was changed; name it: `gpusetup install torch`",
        )
    return replace(plan, why=task.why, notes=task.all_notes)


def moved_by_package(
    options: argparse.Namespace,
    out: Console,
    job: Job,
    where: Where,
    task: Task,
    words: Asked,
    problem: GpuSetupError,
) -> Task:
    """The task with the torch that a package requires; raises the problem where none is."""
    from gpusetup.commands.install_parts import planned
    from gpusetup.model import Request
    from gpusetup.resolver.held import public

    held = task.machine.torch.version or "0"
    said, needs = required_in(problem.message, held), ", ".join(words.packages)
    why = f"{needs} requires {said or 'another torch'}; {task.machine.torch.version} does not"
    if said and (nearest := _moved(options, out, task, words, said.removeprefix("torch"))):
        return replace(nearest, why=f"{why} meet that")
    free = replace(task.asked, family=(), pinned=())
    plan = planned(options, job, where, task.resolution, free, task.machine)
    wanted = next((w.version for w in plan.rest or () if w.name == "torch"), None)
    if wanted is None:
        raise problem
    request = Request(torch=f"=={public(wanted)}", backend=options.backend)
    try:
        moved = task_of(options, out, task.machine, words, request)
    except Unsatisfiable as no:
        raise Unsatisfiable(f"{why} meet that. {no.message}", hint=no.hint) from no
    return replace(moved, why=f"{needs} comes with torch {wanted}: no other was found for it")


def _moved(
    options: argparse.Namespace, out: Console, task: Task, words: Asked, said: str
) -> Task | None:
    """The task with the nearest torch that meets a requirement; None where none does."""
    from gpusetup.model import Request

    try:
        return task_of(
            options, out, task.machine, words, Request(torch=said, backend=options.backend)
        )
    except (Unsatisfiable, UsageError):
        return None


def required_in(text: str, held: str) -> str | None:
    """What uv or pip say that a package requires of torch; of several the nearest.

    >>> required_in("Because big==1 depends on torch>=2.10 and you require torch==2.9.1", "2.9.1")
    'torch>=2.10'
    >>> required_in("Because big depends on one of: torch==2.6.0 torch==2.9.1 and b", "2.5.1+cpu")
    'torch==2.6.0'
    """
    import re

    from gpusetup.resolver.least import nearest_version

    several = r"depends? on (?:one of: )?((?:torch[<>=!~][^\s,;]* ?)+)"
    found = re.search(several, " ".join(text.split()))
    each = found[1].split() if found else []
    if len(each) < 2:
        return next(iter(each), None)
    exact = [one.removeprefix("torch==") for one in each if one.startswith("torch==")]
    nearest = nearest_version(held, exact)
    return f"torch=={nearest}" if nearest else None
