"""The plan of a task; where that has none, of the nearest task that has one."""

from __future__ import annotations

from gpusetup.errors import GpuSetupError, ToolFailed, Unsatisfiable
from gpusetup.install.credentials import without_logins
from gpusetup.install.decide import Task, decide
from gpusetup.install.job import Job
from gpusetup.install.make_plan import make_plan
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.plan import Plan
from gpusetup.install.request import InstallRequest
from gpusetup.install.target.find import Target
from gpusetup.installers.options import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Request
from gpusetup.model.shell import shell_line
from gpusetup.resolver.held import public


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
    brought = {wheel.name for wheel in plan.dependencies} & set(FAMILY)
    if brought:
        raise Unsatisfiable(
            f"{', '.join(sorted(brought))} would come from your default index, which knows no "
            "backend",
            hint="nothing was changed; name it: `gpusetup install torch`",
        )
    return replace(
        plan,
        why=task.why,
        notes=(*task.all_notes, *_of_guard(target, task, plan)),
    )


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
    packages, held = without_logins(", ".join(asked.packages)), task.machine.torch.version
    unpinned = replace(task.asked, family=(), pinned=())
    plan = make_plan(request, job, target, task.resolution, unpinned, task.machine)
    version = next((w.version for w in plan.dependencies if w.name == "torch"), None)
    if version is None:
        raise problem
    wanted = Request(torch=f"=={public(version)}", backend=request.backend)
    try:
        moved = decide(request, job.talk, task.machine, asked, wanted)
    except Unsatisfiable as no:
        said = f"{packages} comes with torch {version}, not with {held}. {no.message}"
        raise Unsatisfiable(said, hint=no.hint) from no
    return replace(moved, why=f"{packages} comes with torch {version}, not with {held}")
