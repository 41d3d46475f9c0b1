"""Plans an installation by asking uv for the files, without changing anything."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpusetup.accelerators.amd import INDEX_OF_AMD
from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.commands import NEEDS_ITS_INDEX
from gpusetup.choose.compatibility import limits_beside, numpy_beside
from gpusetup.errors import Blocked, ToolFailed, Unreached, Unsatisfiable
from gpusetup.install.coming_wheels import question_of, wheels_for
from gpusetup.install.job import InstallJob
from gpusetup.install.plan import Plan
from gpusetup.install.proof import device_to_prove
from gpusetup.install.switching.journal import STORE, first_of_python, require_inside
from gpusetup.install.switching.unpack import stage_of
from gpusetup.install.target.find import Target, check_importable
from gpusetup.install.target.layout import Distribution, Layout, files_listed, files_of_all
from gpusetup.install.task import Task
from gpusetup.install.wheels import size_text, unhashed
from gpusetup.model.builds import FAMILY, Fallback
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.steps import Step
from gpusetup.model.versions import parsed
from gpusetup.uv.errors import lacks, names_not_found
from gpusetup.uv.lock import Wheel, unpack_step
from gpusetup.uv.program import emptying_the_cache, venv_step
from gpusetup.uv.question import Requirements, lock_of


class LacksWheel(Blocked):
    """Neither an index nor the folder of wheels has the chosen torch."""


MOST_OLDER = 12
"""The maximum number of torch versions to look for on a mirror, if its pages for the newest torch's
builds have no other. A mirror is rarely more than two years behind."""


def plan_newest_of_mirror(
    job: InstallJob, target: Target, task: Task, older: Callable[[str], Task]
) -> tuple[Task, Plan]:
    """The task and its plan. If a mirror lacks the newest torch, the newest torch that the mirror
    has is used.

    `older` creates the task for a torch within a further bound, such as `<2.9.1`.
    """
    is_mirror = not job.wheels and task.request.root != INDEX_ROOT
    takes_newest = task.choice.action in ("first", "newest", "upgrade")
    is_exact = re.fullmatch(r"(===?)?\s*[\w.+!]+", task.wish.torch or "*") is not None
    is_free = not is_exact and not task.wish.packages
    try:
        return plan_task(job, target, task)
    except LacksWheel as problem:
        if not (is_mirror and takes_newest and is_free):
            raise
        first_problem = problem
    newest = newest_on_mirror(job, target, task)
    bound = f"<={newest}" if newest else f"<{task.build.torch}"
    for _ in range(MOST_OLDER):
        try:
            task = older(bound)
            return plan_task(job, target, task)
        except LacksWheel:
            bound = f"<{task.build.torch}"
        except Unsatisfiable:
            break
    raise first_problem


def newest_on_mirror(job: InstallJob, target: Target, task: Task) -> str | None:
    """The newest torch that the user's bounds allow, on the mirror's pages for the builds of the
    task; None if these pages have none."""
    found = []
    for build in task.builds:
        requirements = Requirements(
            family=(f"torch{task.wish.torch or ''}",), index=page_of(build, task.request.root)
        )
        with suppress(Unsatisfiable):
            locked = lock_of(question_of(job, target, requirements), with_dependencies=False)
            found += [row["version"].partition("+")[0] for row in locked.rows]
    return max(found, key=parsed, default=None)


def plan_task(job: InstallJob, target: Target, task: Task) -> tuple[Task, Plan]:
    """The task and its plan. If one of the packages that should change together with torch has no
    matching release, they all stay as they are."""
    try:
        return task, _plan_of(job, target, task)
    except (Unsatisfiable, ToolFailed):
        if not task.coming.followers:
            raise
    without_followers = replace(task, coming=replace(task.coming, followers=()))
    return without_followers, _plan_of(job, target, without_followers)


def _plan_of(job: InstallJob, target: Target, task: Task) -> Plan:
    prefix = target.venv or target.layout.prefix
    if target.venv is None:
        check_importable(target.layout, task.coming.family)
    files = _first_index(job, target, task)
    refuse_members_of_other_indexes(files.wheels, task)
    before = {}
    for wheel in files.wheels:
        if wheel.name in target.installed:
            before[wheel.name] = target.installed[wheel.name]
    if target.venv is None:
        # Raise an error before the download if some of these files could not be restored.
        leaving, leaving_files = files_of_all(before, target.layout)
        require_inside(Path(prefix, STORE), leaving_files)
        refuse_owners_of_python(leaving, target.layout)
    require_space(prefix, sum(map(unpacked_bytes, files.wheels)) + SPARE_BYTES)
    passed_over = [f"{backend} is passed over: {reason}" for backend, reason in files.passed_over]
    return Plan(
        target=prefix,
        python=target.python,
        venv=target.venv,
        choice=files.build,
        fallbacks=task.builds[len(files.passed_over) + 1 :],
        wheels=files.wheels,
        steps=steps_of(target),
        before=before,
        after={wheel.name: wheel.version for wheel in files.wheels},
        notes=(
            *passed_over,
            *task.all_notes,
            *files.notes,
            *unhashed(files.wheels),
        ),
        device=device_to_prove(files.build.backend, task.gpus_here),
    )


def refuse_owners_of_python(leaving: Iterable[Distribution], layout: Layout) -> None:
    """Raise `Blocked` if a package to be replaced lists a file of the environment's own Python,
    because that file must stay."""
    for package in leaving:
        pythons_own = first_of_python(layout.prefix, sorted(files_listed(package, layout)))
        if pythons_own is not None:
            raise Blocked(
                f"{package.name} {package.version} lists a file of the environment's own Python: "
                f"{pythons_own}",
                hint="nothing was changed; remove that line from "
                f"{os.path.join(package.info, 'RECORD')}, or use another environment: "
                "`--venv DIR`",
            )


def steps_of(target: Target) -> tuple[Step, ...]:
    """The steps for uv: create the environment if needed, then download and unpack the wheels."""
    unpack = unpack_step(target.python, stage_of(target.venv or target.layout.prefix))
    if target.venv is None:
        return (unpack,)
    return (venv_step(target.venv, target.layout.python), unpack)


def refuse_members_of_other_indexes(wheels: tuple[Wheel, ...], task: Task) -> None:
    """Raise Unsatisfiable if one of torch's packages would come from the default index as a
    dependency, without having been requested."""
    brought = {wheel.name for wheel in wheels if wheel.name not in task.coming.family} & {*FAMILY}
    if brought:
        raise Unsatisfiable(
            f"{', '.join(sorted(brought))} would come from your default index, which has no "
            "builds for a chosen backend",
            hint="nothing was changed; name it: `gpusetup install torch`",
        )


class IndexFiles(Frozen):
    """The wheels to download, and the build and index from which torch comes."""

    build: Fallback
    wheels: tuple[Wheel, ...]
    passed_over: tuple[tuple[str, str], ...]
    """Backends whose index lacks the wheel, each with uv's message."""
    notes: tuple[str, ...]


def _first_index(job: InstallJob, target: Target, task: Task) -> IndexFiles:
    """The files from the first index that has torch and everything else required. Raises LacksWheel
    if no index does."""
    passed_over: list[tuple[str, str]] = []
    root = job.wheels or task.request.root
    for build in task.builds:
        requirements = requirements_of(job, task, build)
        try:
            coming = wheels_for(job, target, requirements)
        except Unsatisfiable as problem:
            # Another index only helps if this one lacks torch or a companion.
            if not job.wheels:
                _require_lack(requirements, problem)
            passed_over.append((build.backend, problem.message.partition("\n")[0]))
            continue
        return IndexFiles(
            build=replace(build, index_url=requirements.index),
            wheels=coming.wheels,
            passed_over=tuple(passed_over),
            notes=coming.notes,
        )
    reasons = "\n".join(f"  {backend:8} {reason}" for backend, reason in passed_over)
    where = f"{root} has no" if job.wheels else "No index has"
    raise LacksWheel(
        f"{where} such a wheel:\n{reasons}",
        hint="nothing was changed; name another version (`--torch`), another backend "
        "(`--backend`), or another root (`--index URL`)",
    )


def _require_lack(requirements: Requirements, no: Unsatisfiable) -> None:
    """Return if the index lacks torch or a companion, so that another index can be tried. Otherwise
    raise the error that fits uv's answer."""
    asked = {canonicalize_name(Requirement(word).name) for word in requirements.others}
    # The user's own indexes lack something that torch requires, so they are the wrong ones.
    if set(names_not_found(no.message)) - asked - {*requirements.names}:
        raise Unreached(no.message, hint=no.hint)
    if not any(lacks(no.message, name) for name in requirements.names):
        raise no


def requirements_of(job: InstallJob, task: Task, source: Fallback) -> Requirements:
    """The requirements for uv, with torch's packages from the index of this build."""
    build, coming, backend = task.build, task.coming, source.backend
    family = []
    for name, version in build.family(coming.family).items():
        project = build.project(name)
        if job.wheels:
            family.append(exact_in(job.wheels, project, version, backend))
        elif build.device_extras:
            # AMD's index has the builds for all ROCm releases on one page, so the label decides.
            family.append(f"{project}=={version}+{backend}")
        else:
            family.append(f"{project}=={version}")
    family += coming.on_torch_index
    root = job.wheels or task.request.root
    catalog = load_catalog()
    limits = limits_beside(catalog, build)
    if build.cuda is None:
        # A torch without CUDA works with packages for any CUDA version, so only limit numpy.
        numpy = numpy_beside(build.torch, catalog)
        limits = (numpy,) if numpy else ()
    return Requirements(
        family=tuple(family),
        index=page_of(source, root),
        others=(*coming.packages, *coming.followers, *coming.pinned),
        constraints=limits,
        needs_more_of_index=maker_of(backend) in NEEDS_ITS_INDEX,
    )


def page_of(source: Fallback, root: str) -> str:
    """The URL of the index page with a build, below this root. Builds on AMD's own index keep their
    URL."""
    # A mirror or a folder that the user names must have every wheel.
    is_amds = source.index_url.startswith(INDEX_OF_AMD)
    if is_amds and root.rstrip("/") == INDEX_ROOT:
        return source.index_url
    return f"{root.rstrip('/')}/{source.backend}"


def exact_in(folder: str, project: str, version: str, backend: str) -> str:
    """The exact requirement for this backend's wheel in the folder. If no wheel in the folder has
    the backend's label, it is the requirement for the wheel without a label."""
    name, _, _ = project.partition("[")
    labelled = f"{version}+{backend}"
    has_labelled = any(Path(folder).glob(f"{name}-{labelled}-*.whl"))
    has_plain = any(Path(folder).glob(f"{name}-{version}-*.whl"))
    is_plain = has_plain and not has_labelled
    return f"{project}=={version if is_plain else labelled}"


UNPACKED_FACTOR, FACTOR_OF_NVIDIA, FACTOR_OF_CUDA_TORCH = 4.0, 1.6, 2.0
"""The size of an unpacked wheel relative to the wheel. Measured: 4.0 for the CPU wheel of torch
2.13.0, 1.6 for nvidia-cudnn-cu12, and 1.7 for torch 2.9 for CUDA 12.8 together with NVIDIA's
libraries."""

SPARE_BYTES = 50 << 20


def unpacked_bytes(wheel: Wheel) -> int:
    """The disk space that a wheel's files take, as far as it is known before the download."""
    if wheel.unpacked_bytes is not None:
        return wheel.unpacked_bytes
    factor = UNPACKED_FACTOR
    if wheel.name.startswith("nvidia-"):
        factor = FACTOR_OF_NVIDIA
    elif wheel.name == "torch" and "+cu" in wheel.version:
        factor = FACTOR_OF_CUDA_TORCH
    return int((wheel.size_bytes or 0) * factor)


def free_bytes(folder: str) -> int:
    """The free bytes on a folder's disk. The folder need not exist yet."""
    nearest = Path(folder)
    while not nearest.exists():
        nearest = nearest.parent
    return shutil.disk_usage(nearest).free


def require_space(folder: str, needed_bytes: int) -> None:
    """Raise Blocked if the folder's disk has too little room; the error names the needed and the
    free space."""
    free = free_bytes(folder)
    if needed_bytes > free:
        raise Blocked(
            f"No room on the disk of {folder}: needs {size_text(needed_bytes)}, "
            f"free {size_text(free)}",
            hint=f"nothing was changed; make room ({emptying_the_cache()}), or use another disk: "
            "`--venv DIR`",
        )
