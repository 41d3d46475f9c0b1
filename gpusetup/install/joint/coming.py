"""`install PACKAGE…`: torch is chosen with the packages that are to stand on it, before the plan is
made; one that our table names by its exact file becomes a wheel like the others."""

from __future__ import annotations

from pathlib import Path

from packaging.requirements import Requirement

from gpusetup.errors import Unsatisfiable
from gpusetup.install.credentials import without_logins
from gpusetup.install.decide import Task, decide
from gpusetup.install.job import Job
from gpusetup.install.joint.choose import YEAR, choose_together
from gpusetup.install.joint.places import users_places
from gpusetup.install.joint.table import Joint
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.refresh import known_catalog
from gpusetup.install.request import InstallRequest
from gpusetup.install.target.find import Target
from gpusetup.installers.options import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import JointPackage, Request, TorchBuild
from gpusetup.resolver.joint import Asked, by_name, name_of
from gpusetup.resolver.least import crosses


def with_set(
    request: InstallRequest,
    job: Job,
    task: Task,
    asked: RequestedPackages,
    wanted: Request,
    target: Target,
) -> Task:
    """The task with the torch that goes with the packages. One that is there stays if nothing
    beside it would be a release of years ago.

    Unsatisfiable if none does, or only with an old release of one of them.
    """
    build, stays = task.resolution.build, not task.decision.moves
    if not asked.packages or job.wheels:
        return task
    if not stays:
        joint = _chosen(request, job, task.machine, asked, wanted, build)
        return _with_joint(request, job, task, asked, joint, target)
    if build is None or not build.pythons:  # one that no index is known to have
        return task
    free = Request(torch=request.torch, backend=request.backend)
    joint = _chosen(request, job, task.machine, asked, free, build, behind_days=YEAR)
    same = (joint.build.torch, joint.build.backend) == (build.torch, build.backend)
    if same and not any(one.file for one in joint.packages):
        return task
    moved = _with_joint(request, job, task, asked, joint, target)
    words = " and ".join(asked.packages)
    return (
        moved
        if same
        else replace(
            moved,
            why=f"with torch {task.machine.torch.version} {words} would be old, or missing",
        )
    )


def _chosen(
    request: InstallRequest,
    job: Job,
    machine: Snapshot,
    asked: RequestedPackages,
    wanted: Request,
    prefer: TorchBuild | None,
    *,
    behind_days: int = 0,
) -> Joint:
    catalog = known_catalog(machine, job.talk, request.index_root)
    companions = (name for name in asked.named if name != "torch")
    beside = dict(asked.beside)
    words = (*asked.packages, *(f"{name}{beside.get(name, '')}" for name in companions))
    job.talk(f"Which versions go together: {without_logins(', '.join(words))} ...")
    question = Asked(machine=machine, request=wanted, catalog=catalog, words=by_name(words))
    places = users_places(job.environ, Path.home())
    joint = choose_together(question, places, prefer=prefer, behind_days=behind_days)
    if joint.refused:
        raise Unsatisfiable(*refusal(joint))
    return joint


def refusal(joint: Joint) -> tuple[str, str]:
    """What is a "no", and the way out."""
    said = "; ".join(f"{one.package} only at {one.at}: {one.by}" for one in joint.refused)
    names = " ".join(f"'{one.package}=={one.at}'" for one in joint.refused)
    return (
        f"Only an old release goes together here: {said}",
        f"asked for by its version it is taken: {names}",
    )


def _with_joint(
    request: InstallRequest,
    job: Job,
    task: Task,
    asked: RequestedPackages,
    joint: Joint,
    target: Target,
) -> Task:
    """The task with the set's torch, each package at the version that goes with it."""
    chosen = _exact(asked, joint)
    old = task.resolution.build
    same = old is not None and (old.torch, old.backend) == (joint.build.torch, joint.build.backend)
    if same:
        missing = set(chosen.family) - set(() if task.decision.moves else target.installed)
        there = {*task.asked.family, *missing}
        family = tuple(name for name in FAMILY if name in there)
        fresh = replace(task.asked, family=family, packages=chosen.packages, files=chosen.files)
        return replace(task, asked=fresh, said=_said(joint))
    wanted = _wanted(request, task, joint.build)
    is_fresh = target.venv is not None
    moved = decide(request, job.talk, task.machine, chosen, wanted, fresh=is_fresh)
    held = next((one.by for one in joint.held_back if one.package == "torch"), None)
    return replace(moved, why=held or moved.why, said=_said(joint))


def _wanted(request: InstallRequest, task: Task, build: TorchBuild) -> Request:
    """The build by name; its backend too, unless that would leave a maker's GPUs unasked."""
    held = task.decision.held
    leaves = held is not None and crosses(held.backend, build.backend)
    return Request(torch=f"=={build.torch}", backend=request.backend if leaves else build.backend)


def _said(joint: Joint) -> tuple[str, ...]:
    held = (f"{one.package} stays at {one.at}: {one.by}" for one in joint.held_back)
    return (*held, *joint.notes)


def _exact(asked: RequestedPackages, joint: Joint) -> RequestedPackages:
    """The words at the versions of the set; torch's companions that it needs among the family."""
    rows = {one.name: one for one in joint.packages}
    there = {*asked.family, *(name for name in rows if name in FAMILY)}
    named = {name_of(word): word for word in asked.packages}
    files = [one for one in joint.packages if one.file]
    words = (word for name, word in named.items() if name not in {one.name for one in files})
    return replace(
        asked,
        family=tuple(name for name in FAMILY if name in there),
        packages=tuple(_pinned(word, rows.get(name_of(word))) for word in words),
        files=tuple(f"{one.name} @ {one.file}" for one in files),
    )


def _pinned(word: str, one: JointPackage | None) -> str:
    """
    >>> _pinned("jax[cuda13]>=0.7", JointPackage(name="jax", version="0.8.1"))
    'jax[cuda13]==0.8.1'
    """
    said = Requirement(word)
    if one is None or not one.version or said.url:
        return word
    extras = f"[{','.join(sorted(said.extras))}]" if said.extras else ""
    return f"{said.name}{extras}=={one.version}"
