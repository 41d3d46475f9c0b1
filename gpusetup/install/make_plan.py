"""Makes the plan: uv is asked; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.catalog.companion_table import companion_table, cuda_constraints
from gpusetup.catalog.default_wheels import usual_major
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Blocked, ToolFailed, Unsatisfiable
from gpusetup.install.decide import Task
from gpusetup.install.fetching.lock import Question, locked, require_no
from gpusetup.install.fetching.wheels import TORCH_INDEX, Wheel
from gpusetup.install.job import Job
from gpusetup.install.plan import Plan
from gpusetup.install.proof import device_to_prove
from gpusetup.install.switching.unpack import switch_step, venv_step
from gpusetup.install.target.disk_space import UNPACKED_FACTOR, require_space
from gpusetup.install.target.find import Target, check_importable, check_leaving
from gpusetup.install.target.in_use import users_of
from gpusetup.installers.options import FAMILY, family_of
from gpusetup.model.finding import Step
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Choice, Resolution, TorchBuild
from gpusetup.resolver.companions import pinned


def plan_task(job: Job, target: Target, task: Task) -> tuple[Task, Plan]:
    """The task with its plan. If what would follow torch has no release for it, that stays."""
    try:
        return task, _plan_of(job, target, task)
    except (Unsatisfiable, ToolFailed):
        if not task.asked.followers:
            raise
    alone = replace(task, asked=replace(task.asked, followers=()))
    return alone, _plan_of(job, target, alone)


def _plan_of(job: Job, target: Target, task: Task) -> Plan:
    plan = _first_index(job, target, task)
    brought = {wheel.name for wheel in plan.dependencies} & set(FAMILY)
    if brought:
        raise Unsatisfiable(
            f"{', '.join(sorted(brought))} would come from your default index, which knows no "
            "backend",
            hint="nothing was changed; name it: `gpusetup install torch`",
        )
    build = task.resolution.build
    left = pinned(task.machine, build) if build is not None and task.decision.moves else ()
    breaks = (
        f"{one.name} {one.version} requires {one.needs}: it stays, and may fail"
        for one in left
        if one.name not in plan.after
    )
    return replace(plan, why=task.why, breaks=tuple(breaks), notes=task.all_notes)


def _first_index(job: Job, target: Target, task: Task) -> Plan:
    """The plan: the first index that has torch and its companions, and what comes with them."""
    request, resolution, asked = task.question.request, task.resolution, task.asked
    build = resolution.build
    assert build is not None, "a task has a build"
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
                for n, v in family_of(build, asked.family).items()
            ),
            index=index,
            others=(*asked.packages, *asked.followers, *asked.files, *asked.pinned),
            constraints=_of_its_cuda(build),
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
            device=device_to_prove(choice.backend, task.gpus_here),
        )
        return _with_steps(job, target, plan)
    raise _no_index(root, passed, job)


def exact_in(wheels: Sequence[Wheel], name: str, version: str, backend: str) -> str:
    """The requirement for a package of torch's family that only the wheel of a backend meets, or
    the one without a label."""
    there = {one.version for one in wheels if one.name == name}
    labelled = f"{version}+{backend}"
    plain = version in there and labelled not in there
    return f"{name}=={version if plain else labelled}"


def _no_index(root: str, passed: list[tuple[str, str]], job: Job) -> Blocked:
    why = "\n".join(f"  {name:8} {reason}" for name, reason in passed)
    where = f"{root} has no" if job.wheels else "No index has"
    return Blocked(
        f"{where} such a wheel:\n{why}",
        hint="nothing was changed; name another version (`--torch`), another backend "
        "(`--backend`), or another root (`--index URL`)",
    )


def choices_of(resolution: Resolution, backend: str) -> tuple[Choice, ...]:
    """The build and what may be taken in its place; nothing, where a backend was named."""
    build = resolution.build
    assert build is not None, "a task has a build"
    first = Choice(torch=build.torch, backend=build.backend, index_url=resolution.index_url or "")
    return (first, *(resolution.fallbacks if backend == "auto" else ()))


def _of_its_cuda(build: TorchBuild) -> tuple[str, ...]:
    """What loads beside this torch of the packages whose CUDA the table of companions knows."""
    if not build.cuda:
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
    used_by = users_of(target.layout.libraries) if "torch" in before else ()
    unpacked = int(sum(wheel.size_bytes or 0 for wheel in plan.wheels) * UNPACKED_FACTOR)
    require_space(plan.target, unpacked)
    return replace(plan, steps=steps, before=before, used_by=used_by)
