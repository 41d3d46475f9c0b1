"""Makes the plan: uv is asked; nothing is changed."""

from __future__ import annotations

from gpusetup.catalog.companion_table import companion_table, cuda_constraints
from gpusetup.catalog.default_wheels import usual_major
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Blocked, ToolFailed, Unsatisfiable
from gpusetup.install.decide import Task
from gpusetup.install.fetching.lock import Question, locked, require_no
from gpusetup.install.fetching.wheelhouse import exact_in
from gpusetup.install.fetching.wheels import TORCH_INDEX
from gpusetup.install.job import Job
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.plan import Plan
from gpusetup.install.proof import device_to_prove
from gpusetup.install.request import InstallRequest
from gpusetup.install.settings.environment import own_cache
from gpusetup.install.switching.switch import switch_step, venv_step
from gpusetup.install.target.disk_space import UNPACKED_FACTOR, disk_need, require_space
from gpusetup.install.target.find import Target, check_leaving
from gpusetup.install.target.in_use import users_of
from gpusetup.install.target.layout import distributions, requirers
from gpusetup.install.target.places import check_importable, check_places
from gpusetup.installers.options import FAMILY
from gpusetup.model.finding import Step
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Choice, Resolution, TorchBuild
from gpusetup.model.shell import shell_line


def plan_task(request: InstallRequest, job: Job, target: Target, task: Task) -> tuple[Task, Plan]:
    """The task with its plan. If what would follow torch has no release for it, that stays."""
    try:
        return task, _plan_of(request, job, target, task)
    except (Unsatisfiable, ToolFailed):
        if not task.asked.followers:
            raise
    alone = replace(task, asked=replace(task.asked, followers=()))
    return alone, _plan_of(request, job, target, alone)


def _plan_of(request: InstallRequest, job: Job, target: Target, task: Task) -> Plan:
    machine = replace(task.machine, gpus=()) if task.other_host else task.machine
    plan = make_plan(request, job, target, task.resolution, task.asked, machine)
    brought = {wheel.name for wheel in plan.dependencies} & set(FAMILY)
    if brought:
        raise Unsatisfiable(
            f"{', '.join(sorted(brought))} would come from your default index, which knows no "
            "backend",
            hint="nothing was changed; name it: `gpusetup install torch`",
        )
    return replace(plan, why=task.why, notes=(*task.all_notes, *_of_guard(target, task, plan)))


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


def make_plan(
    request: InstallRequest,
    job: Job,
    target: Target,
    resolution: Resolution,
    asked: RequestedPackages,
    machine: Snapshot,
) -> Plan:
    """The plan: the first index that has torch and its companions, and what comes with them."""
    check_places(target)
    if target.venv is None:
        check_importable(target.layout, asked.family)
    passed: list[tuple[str, str]] = []
    root = job.wheels[0].source if job.wheels else request.root
    choices = choices_of(resolution, request.backend)
    for place, choice in enumerate(choices):
        index = f"{root.rstrip('/')}/{choice.backend}"
        question = Question(
            family=tuple(
                exact_in(job.wheels, n, v, choice.backend) if job.wheels else f"{n}=={v}"
                for n, v in versions_of(resolution, asked.family).items()
            ),
            index=index,
            others=(*asked.packages, *asked.followers, *asked.pinned),
            constraints=_of_its_cuda(resolution.build),
        )
        try:
            wheels = locked(job, target, question)
        except Unsatisfiable as problem:
            if require_no(job, target, question):
                raise
            passed.append((choice.backend, problem.message))
            continue
        family = tuple(one for one in wheels if one.name in question.names)
        others = tuple(one for one in wheels if one.name not in question.names)
        if not job.wheels:
            family = tuple(replace(wheel, source=TORCH_INDEX) for wheel in family)
        plan = Plan(
            target=target.venv or target.layout.prefix,
            python=target.python,
            venv=target.venv,
            choice=replace(choice, index_url=index),
            index_url=index,
            passed_over=tuple(passed),
            fallbacks=choices[place + 1 :],
            family=family,
            dependencies=others,
            packages=(*asked.packages, *asked.followers),
            pinned=asked.pinned,
            device=device_to_prove(
                choice.backend, None if machine.gpus is None else len(machine.gpus)
            ),
            notes=resolution.notes,
        )
        return _with_steps(job, target, plan)
    raise _no_index(root, passed, job)


def _no_index(root: str, passed: list[tuple[str, str]], job: Job) -> Blocked:
    why = "\n".join(f"  {name:8} {reason}" for name, reason in passed)
    if job.wheels:
        return Blocked(
            f"{root} has no such wheel:\n{why}",
            hint="nothing was changed; `gpusetup install --download DIR` downloads it on a machine "
            "with a network; or name the version that is there (`--torch`, `--backend`)",
        )
    return Blocked(
        f"No index has such a wheel:\n{why}",
        hint="nothing was changed; name another version (`--torch`), another backend "
        "(`--backend`), or another root (`--index URL`)",
    )


def choices_of(resolution: Resolution, backend: str) -> tuple[Choice, ...]:
    """The build and what may be taken in its place; nothing, where a backend was named."""
    build = resolution.build
    if build is None or resolution.index_url is None:
        return ()
    first = Choice(torch=build.torch, backend=build.backend, index_url=resolution.index_url)
    return (first, *(resolution.fallbacks if backend == "auto" else ()))


def versions_of(resolution: Resolution, names: tuple[str, ...]) -> dict[str, str]:
    """The family's versions that go together; a companion that was never released is left out."""
    build = resolution.build
    if build is None:
        return {}
    known = {"torch": build.torch, "torchvision": build.torchvision, "torchaudio": build.torchaudio}
    return {name: version for name in names if (version := known[name])}


def _of_its_cuda(build: TorchBuild | None) -> tuple[str, ...]:
    """What loads beside this torch of the packages whose CUDA the table of companions knows."""
    if build is None or not build.cuda:
        return ()
    usual, table = usual_major(load_catalog(), build), companion_table()
    each = (cuda_constraints(one, build.cuda_major, usual) for one in table.projects)
    return tuple(text for texts in each for text in texts)


def _with_steps(job: Job, target: Target, plan: Plan) -> Plan:
    """The plan with its steps and what it would break; `Blocked` where the disk is too small."""
    installed = target.installed
    hashed = all(wheel.sha256 for wheel in plan.wheels)
    steps: tuple[Step, ...] = (switch_step(job.uv, target.python, plan.target, hashed=hashed),)
    if target.venv is not None:
        steps = (venv_step(job.uv, target.venv, target.layout.python), *steps)
    before = {name: installed[name] for name in plan.after if name in installed}
    if target.venv is None:
        check_leaving(target.layout, before)
    there = () if target.venv else distributions(target.layout)
    breaks = requirers(there, plan.after, target.layout)
    used_by = users_of(target.layout.libraries) if "torch" in before else ()
    unpacked = int(sum(wheel.size_bytes or 0 for wheel in plan.wheels) * UNPACKED_FACTOR)
    cache = disk_need(str(own_cache(job.environ)), unpacked)
    here = disk_need(plan.target, unpacked)
    require_space((here,) if here.disk == cache.disk else (here, cache))  # linked on one disk
    return replace(plan, steps=steps, before=before, breaks=breaks, used_by=used_by)
