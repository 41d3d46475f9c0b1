"""`install PACKAGE…`: torch is chosen with the packages that are to stand on it, before the plan is
made; one that our table names by its exact file becomes a wheel like the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpusetup.catalog.companion_table import companion_table
from gpusetup.errors import Unsatisfiable
from gpusetup.install.credentials import without_logins
from gpusetup.install.decide import Task, decide
from gpusetup.install.fetching.page import read_page
from gpusetup.install.job import Job
from gpusetup.install.joint.choose import choose_together
from gpusetup.install.joint.places import users_places
from gpusetup.install.joint.releases import listed
from gpusetup.install.joint.table import Joint
from gpusetup.install.joint.words import projects_of
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.plan import Plan
from gpusetup.install.refresh.saved import known_catalog
from gpusetup.install.request import InstallRequest
from gpusetup.install.target.find import Target
from gpusetup.installers.options import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import JointPackage, Request, TorchBuild
from gpusetup.resolver.joint import YEAR
from gpusetup.resolver.least import crosses


def with_set(
    request: InstallRequest,
    job: Job,
    task: Task,
    asked: RequestedPackages,
    wanted: Request,
    target: Target,
) -> Task:
    """The task with the torch that goes with the packages, where torch comes or is exchanged.

    Unsatisfiable where none does, or only with an old release of one of them.
    """
    if not (asked.packages and task.decision.moves) or job.wheels:
        return task
    joint = _chosen(request, job, task.machine, asked, wanted, task.resolution.build)
    return _with_joint(request, job, task, asked, joint, target)


def not_with_old(
    request: InstallRequest,
    job: Job,
    task: Task,
    plan: Plan,
    asked: RequestedPackages,
    target: Target,
) -> Task | None:
    """A torch that stays may allow nothing but a release of years ago: then the task that moves
    torch to what the current release takes; None where the plan has none such."""
    old = () if job.wheels or task.decision.moves else old_releases(job, plan, asked)
    if not old:
        return None
    wanted = Request(torch=request.torch, backend=request.backend)
    joint = _chosen(request, job, task.machine, asked, wanted, None)
    moved = _with_joint(request, job, task, asked, joint, target)
    there = task.machine.torch.version
    return replace(moved, why=f"beside torch {there} only {' and '.join(old)} would come")


def by_table(
    request: InstallRequest, job: Job, task: Task, asked: RequestedPackages, target: Target
) -> Callable[[], Task] | None:
    """What chooses torch anew where the one that is there does not go with a companion; None where
    nothing that was asked for is one."""
    names = [canonicalize_name(Requirement(word).name) for word in asked.packages]
    if job.wheels or not projects_of(names, companion_table()):
        return None

    def chosen() -> Task:
        wanted = Request(torch=request.torch, backend=request.backend)
        held = task.resolution.build
        joint = _chosen(request, job, task.machine, asked, wanted, held, behind_days=YEAR)
        return _with_joint(request, job, task, asked, joint, target)

    return chosen


def old_releases(job: Job, plan: Plan, asked: RequestedPackages) -> tuple[str, ...]:
    """What was asked for in any version and would come in one that is more than a year old."""
    free = {name for word in asked.packages if (name := _free_name(word))}
    coming = [one for one in plan.dependencies if one.name in free]
    indexes = users_places(job.environ, Path.home()).indexes if coming else ()
    pages = ((one, listed(read_page, indexes, one.name)) for one in coming)
    return tuple(
        f"{one.name} {one.version} of {page.published(one.version)}"
        for one, page in pages
        if page.days_behind(one.version) > YEAR
    )


def _free_name(word: str) -> str | None:
    """The name of a requirement that no version limits."""
    said = Requirement(word)
    return None if said.specifier or said.url else canonicalize_name(said.name)


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
    joint = choose_together(
        machine,
        wanted,
        words,
        catalog,
        users_places(job.environ, Path.home()),
        lambda: read_page,
        prefer=prefer,
        behind_days=behind_days,
    )
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
    by_name = {one.name: one for one in joint.packages}
    there = {*asked.family, *(name for name in by_name if name in FAMILY)}
    files, packages = [], []
    for word in asked.packages:
        one = by_name.get(canonicalize_name(Requirement(word).name))
        if one is not None and one.file:
            files.append(f"{one.name} @ {one.file}")
        else:
            packages.append(_pinned(word, one))
    return replace(
        asked,
        family=tuple(name for name in FAMILY if name in there),
        packages=tuple(packages),
        files=(*files, *_files_beside(joint.packages, asked)),
    )


def _files_beside(packages: Iterable[JointPackage], asked: RequestedPackages) -> tuple[str, ...]:
    """Exact files that come because something else requires them."""
    named = {canonicalize_name(Requirement(word).name) for word in asked.packages}
    return tuple(
        f"{one.name} @ {one.file}" for one in packages if one.file and one.name not in named
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
