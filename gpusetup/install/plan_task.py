"""The plan of a task; where that has none, of the nearest task that has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from gpusetup.errors import GpuSetupError, ToolFailed, Unsatisfiable, UsageError
from gpusetup.install.credentials import without_logins
from gpusetup.install.decide import Task, decide
from gpusetup.install.job import Job
from gpusetup.install.make_plan import make_plan
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.plan import Plan
from gpusetup.install.request import InstallRequest
from gpusetup.install.target.find import Target
from gpusetup.install.tool_environment import tool_note
from gpusetup.installers.options import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Request
from gpusetup.model.shell import shell_line
from gpusetup.resolver.held import public
from gpusetup.resolver.least import nearest_version


def settle(
    request: InstallRequest,
    job: Job,
    target: Target,
    task: Task,
    asked: RequestedPackages,
) -> tuple[Task, Plan | None]:
    """The task with its plan; where it has none, another task that is yet to be planned: what has
    no release for the new torch stays, or torch becomes the one that a package requires."""
    try:
        return task, plan_task(request, job, target, task)
    except (Unsatisfiable, ToolFailed) as problem:
        if task.asked.followers:
            return replace(task, asked=replace(task.asked, followers=())), None
        if not (task.asked.pinned and task.asked.packages):
            raise
        return _moved_by_package(request, job, target, task, asked, problem), None


def plan_task(request: InstallRequest, job: Job, target: Target, task: Task) -> Plan:
    machine = replace(task.machine, gpus=()) if task.other_host else task.machine
    plan = make_plan(request, job, target, task.resolution, task.asked, machine)
    brought = {wheel.name for wheel in plan.dependencies or ()} & set(FAMILY)
    if brought:
        raise Unsatisfiable(
            f"{', '.join(sorted(brought))} would come from your default index, which knows no "
            "backend",
            hint="nothing was changed; name it: `gpusetup install torch`",
        )
    return replace(
        plan,
        why=task.why,
        notes=(*task.all_notes, *_of_tool(target, task), *_of_guard(target, task, plan)),
    )


def _of_tool(target: Target, task: Task) -> tuple[str, ...]:
    """Of the environment of a tool: what keeps the torch that comes."""
    build = task.resolution.build
    if target.venv is not None or build is None or not task.decision.moves:
        return ()
    pins = {"torch": f"{build.torch}+{build.backend}" if build.labelled else build.torch}
    return tool_note(Path(target.layout.prefix), pins)


def _of_guard(target: Target, task: Task, plan: Plan) -> tuple[str, ...]:
    """Of a guarded environment: which of the versions that it holds will be others."""
    events = (one.values for one in task.machine.events if one.kind == "guarded-set")
    said = next((one for one in events if one.get("how") == "guarded"), {})
    pins = (pin.partition("==")[::2] for pin in str(said.get("pins", "")).split())
    moved = [f"{n} {v}" for n, v in pins if plan.after.get(n, v) != v]
    if not moved or target.venv is not None:
        return ()
    argv = ("gpusetup", "guard", "--write", "--python", target.layout.prefix)
    line = shell_line(argv, task.machine.os.family)
    return (f"the guard here holds {', '.join(moved)}: afterwards `{line}` holds the new set",)


def _moved_by_package(
    request: InstallRequest,
    job: Job,
    target: Target,
    task: Task,
    asked: RequestedPackages,
    problem: GpuSetupError,
) -> Task:
    """The task with the torch that a package requires; raises the problem where none is."""
    held = task.machine.torch.version or "0"
    required, packages = (
        required_in(problem.message, held),
        without_logins(", ".join(asked.packages)),
    )
    why = (
        f"{packages} requires {required or 'another torch'}; {task.machine.torch.version} does not"
    )
    if required and (nearest := _nearest(request, job.talk, task, asked, required)):
        return replace(nearest, why=f"{why} meet that")
    unpinned = replace(task.asked, family=(), pinned=())
    plan = make_plan(request, job, target, task.resolution, unpinned, task.machine)
    version = next((w.version for w in plan.dependencies or () if w.name == "torch"), None)
    if version is None:
        raise problem
    wanted = Request(torch=f"=={public(version)}", backend=request.backend)
    try:
        moved = decide(request, job.talk, task.machine, asked, wanted)
    except Unsatisfiable as no:
        raise Unsatisfiable(f"{why} meet that. {no.message}", hint=no.hint) from no
    return replace(moved, why=f"{packages} comes with torch {version}: no other was found for it")


def _nearest(
    request: InstallRequest,
    talk: Callable[[str], None],
    task: Task,
    asked: RequestedPackages,
    required: str,
) -> Task | None:
    """The task with the nearest torch that meets `torch>=2.10`; None where none does."""
    wanted = Request(torch=required.removeprefix("torch"), backend=request.backend)
    try:
        return decide(request, talk, task.machine, asked, wanted)
    except (Unsatisfiable, UsageError):
        return None


def required_in(text: str, held: str) -> str | None:
    """What uv or pip say that a package requires of torch; of several the nearest.

    >>> required_in("Because big==1 depends on torch>=2.10 and you require torch==2.9.1", "2.9.1")
    'torch>=2.10'
    >>> required_in("Because big depends on one of: torch==2.6.0 torch==2.9.1 and b", "2.5.1+cpu")
    'torch==2.6.0'
    """

    several = r"depends? on (?:one of: )?((?:torch[<>=!~][^\s,;]* ?)+)"
    found = re.search(several, " ".join(text.split()))
    each = found[1].split() if found else []
    if len(each) < 2:
        return next(iter(each), None)
    exact = [one.removeprefix("torch==") for one in each if one.startswith("torch==")]
    nearest = nearest_version(held, exact)
    return f"torch=={nearest}" if nearest else None
