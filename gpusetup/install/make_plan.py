"""Makes the plan: uv is asked; nothing is changed."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Blocked, ToolFailed, Unsatisfiable
from gpusetup.install.coming_wheels import require_lack, wheels_for
from gpusetup.install.decide import Task
from gpusetup.install.job import Job
from gpusetup.install.plan import Plan
from gpusetup.install.proof import device_to_prove
from gpusetup.install.switching.journal import STORE, require_inside
from gpusetup.install.switching.unpack import stage_of
from gpusetup.install.target.find import Target, check_importable
from gpusetup.install.target.layout import files_of_all
from gpusetup.install.wheels import size_text, unhashed
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import FAMILY, Choice, Step
from gpusetup.resolver.joint import Asked, limits_beside
from gpusetup.uv.lock import Wheel, unpack_step
from gpusetup.uv.program import emptying_the_cache, venv_step
from gpusetup.uv.question import Requirements


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
    venv, prefix = target.venv, target.venv or target.layout.prefix
    if venv is None:
        check_importable(target.layout, task.asked.family)
    choice, wheels, passed, said = _first_index(job, target, task)
    family = task.asked.family
    brought = {wheel.name for wheel in wheels if wheel.name not in family} & {*FAMILY}
    if brought:
        raise Unsatisfiable(
            f"{', '.join(sorted(brought))} would come from your default index, which has no "
            "builds for a chosen backend",
            hint="nothing was changed; name it: `gpusetup install torch`",
        )
    hashed, installed = all(wheel.sha256 for wheel in wheels), target.installed
    unpack = unpack_step(
        target.python, stage_of(prefix), hashed=hashed, link_mode=job.settings.link_mode
    )
    steps: tuple[Step, ...] = (unpack,)
    if venv is not None:
        steps = (venv_step(venv, target.layout.python), *steps)
    before = {one.name: installed[one.name] for one in wheels if one.name in installed}
    if venv is None:  # what could not be put back is told before anything is fetched
        require_inside(Path(prefix, STORE), files_of_all(before, target.layout)[1])
    sizes = sum(wheel.size_bytes or 0 for wheel in wheels)
    require_space(prefix, int(sizes * UNPACKED_FACTOR) + SPARE_BYTES)
    passed_over = (f"{name} is passed over: {why}" for name, why in passed)
    return Plan(
        target=prefix,
        python=target.python,
        venv=venv,
        choice=choice,
        fallbacks=task.choices[len(passed) + 1 :],
        wheels=wheels,
        steps=steps,
        before=before,
        after={one.name: one.version for one in wheels},
        notes=(*passed_over, *task.all_notes, *said, *job.settings.notes, *unhashed(wheels)),
        device=device_to_prove(choice.backend, task.gpus_here),
    )


def _first_index(
    job: Job, target: Target, task: Task
) -> tuple[Choice, tuple[Wheel, ...], list[tuple[str, str]], tuple[str, ...]]:
    """The first index that has torch and its companions, and what comes with them; those that have
    no such wheel, and what uv says of it; and what is to be said of the wheels."""
    build, asked = task.build, task.asked
    passed: list[tuple[str, str]] = []
    wanted = task.question.wanted
    together = Asked(machine=task.machine, request=wanted, catalog=load_catalog())
    root = job.wheels or task.question.request.root
    for choice in task.choices:
        requirements = Requirements(
            family=tuple(
                exact_in(job.wheels, n, v, choice.backend) if job.wheels else f"{n}=={v}"
                for n, v in build.family(asked.family).items()
            ),
            index=f"{root.rstrip('/')}/{choice.backend}",
            others=(*asked.packages, *asked.followers, *asked.pinned),
            constraints=limits_beside(together, build) if build.cuda else (),
        )
        try:
            wheels, said = wheels_for(job, target, requirements)
        except Unsatisfiable as problem:
            if not job.wheels:
                require_lack(requirements, problem)
            passed.append((choice.backend, problem.message))
        else:
            return replace(choice, index_url=requirements.index), wheels, passed, said
    why = "\n".join(f"  {name:8} {reason}" for name, reason in passed)
    where = f"{root} has no" if job.wheels else "No index has"
    raise Blocked(
        f"{where} such a wheel:\n{why}",
        hint="nothing was changed; name another version (`--torch`), another backend "
        "(`--backend`), or another root (`--index URL`)",
    )


def exact_in(folder: str, name: str, version: str, backend: str) -> str:
    """The requirement for a package of torch's family that only the wheel of a backend meets, or
    the one without a label."""
    labelled = f"{version}+{backend}"
    there, own = (any(Path(folder).glob(f"{name}-{one}-*.whl")) for one in (version, labelled))
    return f"{name}=={version if there and not own else labelled}"


UNPACKED_FACTOR = 3.6
"""How much larger a torch wheel is unpacked; measured on the CPU wheel of torch 2.13.0 (4.0) and
nvidia-cudnn-cu12 (1.6), weighted towards the larger."""

SPARE_BYTES = 50 << 20


def free_bytes(folder: str) -> int:
    """What is free on the disk of a folder that may not be there yet."""
    there = Path(folder)
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def require_space(folder: str, needed_bytes: int) -> None:
    """`Blocked` with needed and free if the disk of a folder cannot hold so much."""
    free = free_bytes(folder)
    if needed_bytes > free:
        raise Blocked(
            f"No room on the disk of {folder}: needs {size_text(needed_bytes)}, "
            f"free {size_text(free)}",
            hint=f"nothing was changed; make room ({emptying_the_cache()}), or use another disk: "
            "`--venv DIR`",
        )
