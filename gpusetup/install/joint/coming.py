"""`install PACKAGE…`: torch is chosen with the packages that need it, before the plan is made."""

from __future__ import annotations

from pathlib import Path

from packaging.requirements import Requirement

from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.install.credentials import without_logins
from gpusetup.install.decide import Task, decide
from gpusetup.install.job import Job
from gpusetup.install.joint.choose import YEAR, choose_together
from gpusetup.install.joint.places import users_places
from gpusetup.install.joint.table import Joint
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.target.find import Target
from gpusetup.installers.options import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Request
from gpusetup.resolver.joint import Asked, by_name, name_of
from gpusetup.resolver.least import crosses


def with_set(job: Job, task: Task, target: Target) -> Task:
    """The task with the torch that goes with the packages, each at the version that goes with it.
    A torch that is there stays if nothing beside it would be a release of years ago.

    Unsatisfiable if none does, or only with an old release of one of them.
    """
    question, build, stays = task.question, task.resolution.build, not task.decision.moves
    request, asked = question.request, question.asked
    if not asked.packages or job.wheels:
        return task
    if stays and (build is None or not build.pythons):  # one that no index is known to have
        return task
    free = Request(torch=request.torch, backend=request.backend)
    catalog = load_catalog()
    versions = dict(asked.beside)
    companions = (f"{name}{versions.get(name, '')}" for name in asked.named if name != "torch")
    words = by_name((*asked.packages, *companions))
    job.talk(f"Which versions go together: {without_logins(', '.join(words))} ...")
    wanted = free if stays else question.wanted
    joint_question = Asked(machine=task.machine, request=wanted, catalog=catalog, words=words)
    places = users_places(job.environ, Path.home())
    joint = choose_together(joint_question, places, prefer=build, behind_days=YEAR if stays else 0)
    if joint.refused:
        raise Unsatisfiable(*refusal(joint))
    chosen, held = _exact(asked, joint), task.decision.held
    same = build is not None and (build.torch, build.backend) == joint.torch
    if stays and same:
        return task
    # The backend is named too, unless that would leave a maker's GPUs.
    leaves = held is not None and crosses(held.backend, joint.build.backend)
    backend = request.backend if leaves else joint.build.backend
    exact = Request(torch=f"=={joint.build.torch}", backend=backend)
    question = replace(question, asked=chosen, wanted=exact)
    moved = decide(question, job.talk, fresh=target.venv is not None)
    why = next((one.by for one in joint.held_back if one.package == "torch"), moved.why)
    if same:
        why = task.why
    elif stays:
        there, names = task.machine.torch.version, " and ".join(asked.packages)
        why = f"with torch {there} {names} would be old, or missing"
    said = (f"{one.package} stays at {one.at}: {one.by}" for one in joint.held_back)
    return replace(moved, why=why, said=(*said, *joint.notes))


def refusal(joint: Joint) -> tuple[str, str]:
    """What is a "no", and the way out."""
    said = "; ".join(f"{one.package} only at {one.at}: {one.by}" for one in joint.refused)
    names = " ".join(f"'{one.package}=={one.at}'" for one in joint.refused)
    return (
        f"Only an old release goes together here: {said}",
        f"asked for by its version it is taken: {names}",
    )


def _exact(asked: RequestedPackages, joint: Joint) -> RequestedPackages:
    """The words at the versions of the set; torch's companions that it needs among the family."""
    rows = {one.name: one for one in joint.packages}
    words = []
    for word in asked.packages:
        said, row = Requirement(word), rows.get(name_of(word))
        extras = f"[{','.join(sorted(said.extras))}]" if said.extras else ""
        if row and row.version and not said.url:
            word = f"{said.name}{extras}=={row.version}"
        words.append(word)
    return replace(
        asked,
        family=tuple(name for name in FAMILY if name in {*asked.family, *rows}),
        packages=tuple(words),
    )
