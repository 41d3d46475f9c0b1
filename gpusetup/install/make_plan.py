"""Makes the plan: the target, torch's index, and uv are asked; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from gpusetup.catalog.companion_table import companion_table, cuda_constraints
from gpusetup.catalog.default_wheels import usual_major
from gpusetup.catalog.file import load_catalog
from gpusetup.install.fetching.choose import at_root, choices_of, first_that_has, versions_of
from gpusetup.install.fetching.dependencies import ask_dependencies
from gpusetup.install.fetching.stand_ins import stand_ins
from gpusetup.install.fetching.wheel_cache import is_kept
from gpusetup.install.fetching.wheelhouse import page_of
from gpusetup.install.fetching.wheels import Wheel, target_tags
from gpusetup.install.job import WORKERS, Job
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.plan import Plan
from gpusetup.install.proof import device_to_prove
from gpusetup.install.request import InstallRequest
from gpusetup.install.switching.steps import switch_steps, venv_step
from gpusetup.install.target.disk_space import UNPACKED_FACTOR, disk_need, require_space
from gpusetup.install.target.find import Target, check_leaving
from gpusetup.install.target.in_use import users_of
from gpusetup.install.target.layout import distributions, requirers
from gpusetup.install.target.places import check_importable, check_places
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Resolution, TorchBuild


def make_plan(
    request: InstallRequest,
    job: Job,
    target: Target,
    resolution: Resolution,
    asked: RequestedPackages,
    machine: Snapshot,
) -> Plan:
    """The plan with everything that can be known before a wheel is fetched."""
    check_places(job, target)
    if target.venv is None:
        check_importable(target.layout, asked.family)
    plan = _with_family(request, job, target, resolution, asked, machine)
    plan = with_dependencies(job, target, plan)
    check_space_before(job, plan)
    return plan


def _with_family(
    request: InstallRequest,
    job: Job,
    target: Target,
    resolution: Resolution,
    asked: RequestedPackages,
    machine: Snapshot,
) -> Plan:
    """The wheels of torch and its companions, from the first index that has them."""
    root = job.cache.as_uri() if job.wheels else request.root
    choices = choices_of(resolution, request.backend)
    page = page_of(job.wheels) if job.wheels else job.fetcher.text
    choice, family, passed = first_that_has(
        page, choices, root, versions_of(resolution, asked.family), target_tags(target.layout)
    )
    gpus = None if machine.gpus is None else len(machine.gpus)
    return Plan(
        target=target.venv or target.layout.prefix,
        python=target.python,
        venv=target.venv,
        choice=replace(choice, index_url=at_root(choice, root)),
        passed_over=passed,
        fallbacks=choices[choices.index(choice) + 1 :],
        family=_sized(job, (*family, *asked.files)),
        packages=(*asked.packages, *asked.followers),
        pinned=asked.pinned,
        constraints=_of_its_cuda(resolution.build),
        device=device_to_prove(choice.backend, gpus),
        notes=resolution.notes,
    )


def _of_its_cuda(build: TorchBuild | None) -> tuple[str, ...]:
    """What loads beside this torch of the packages whose CUDA the table of companions knows."""
    if build is None or not build.cuda:
        return ()
    usual, table = usual_major(load_catalog(), build), companion_table()
    each = (cuda_constraints(one, build.cuda_major, usual) for one in table.projects)
    return tuple(text for texts in each for text in texts)


def with_dependencies(job: Job, target: Target, plan: Plan) -> Plan:
    """The plan with what else is fetched, where that can be known now; then the steps."""
    dependencies = None
    with stand_ins(job, plan.family) as folder:
        if folder is not None:
            dependencies = ask_dependencies(job, target, plan, folder)
    return finished(job, target, replace(plan, dependencies=dependencies))


def finished(job: Job, target: Target, plan: Plan) -> Plan:
    """The plan with sizes, steps and what it would break."""
    installed = target.installed
    dependencies = None if plan.dependencies is None else _sized(job, plan.dependencies)
    plan = replace(plan, dependencies=dependencies, family=_changing(plan.family, installed))
    layout = target.layout if target.venv is None else replace(target.layout, python=target.python)
    steps = switch_steps(layout, job.uv, plan.target)
    if target.venv is not None:
        steps = (venv_step(job.uv, target.venv, target.layout.python), *steps)
    before = {name: installed[name] for name in plan.after if name in installed}
    if target.venv is None:
        check_leaving(target.layout, before)
    there = () if target.venv else distributions(target.layout)
    breaks = requirers(there, plan.after, target.layout)
    used_by = users_of(target.layout.libraries) if "torch" in before else ()
    return replace(plan, steps=steps, before=before, breaks=breaks, used_by=used_by)


def _changing(family: tuple[Wheel, ...], installed: Mapping[str, str]) -> tuple[Wheel, ...]:
    """The wheels that are not installed at this very version; all where every one is (again)."""
    return tuple(w for w in family if installed.get(w.name) != w.version) or family


def _sized(job: Job, wheels: Sequence[Wheel]) -> tuple[Wheel, ...]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return tuple(pool.map(lambda wheel: _with_size(job, wheel), wheels))


def _with_size(job: Job, wheel: Wheel) -> Wheel:
    if wheel.size_bytes is not None:
        return wheel
    kept = job.cache / wheel.filename
    size = kept.stat().st_size if is_kept(wheel, kept) else job.fetcher.size(wheel.url)
    return replace(wheel, size_bytes=size)


def missing_bytes(job: Job, plan: Plan) -> int:
    """What is still to be fetched."""
    wheels = (w for w in plan.wheels if not is_kept(w, job.cache / w.filename))
    return sum(wheel.size_bytes or 0 for wheel in wheels)


def check_space_before(job: Job, plan: Plan) -> None:
    """Space for what will be fetched and, by its usual growth, unpacked in the target."""
    unpacked = int(sum(wheel.size_bytes or 0 for wheel in plan.wheels) * UNPACKED_FACTOR)
    require_space(
        (disk_need(str(job.cache), missing_bytes(job, plan)), disk_need(plan.target, unpacked))
    )
