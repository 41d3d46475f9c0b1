"""`--download DIR` and `--wheelhouse DIR`: wheels are carried to a machine without a network."""

from __future__ import annotations

import platform
from pathlib import Path

from gpusetup.install.fetching.fetch_all import fetch_wheels
from gpusetup.install.fetching.file_url import whole_path
from gpusetup.install.fetching.wheelhouse import newest_torch, wheels_in, write_manifest
from gpusetup.install.fetching.wheels import size_text, target_tags
from gpusetup.install.job import Job
from gpusetup.install.make_plan import make_plan, with_dependencies
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.plan import Plan
from gpusetup.install.request import InstallRequest
from gpusetup.install.switching.receipt import now
from gpusetup.install.target.find import Target
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution


def use_wheelhouse(job: Job, target: Target, folder: str, wanted: Request) -> Request:
    """Everything comes from a folder; where no torch is named, it is the newest that is there."""
    job.cache, job.owns_cache = Path(whole_path(folder)), False
    job.wheels = wheels_in(job.cache)
    torch = newest_torch(job.wheels, target_tags(target.layout))
    return wanted if wanted.torch else replace(wanted, torch=f"=={torch}")


def plan_download(
    request: InstallRequest,
    job: Job,
    target: Target,
    resolution: Resolution,
    asked: RequestedPackages,
    machine: Snapshot,
) -> Plan:
    """The plan of fetching all that a new environment needs into a folder."""
    job.cache = Path(whole_path(request.download or ""))
    fresh = replace(target, venv=str(job.cache))
    return _without_environment(job, make_plan(request, job, fresh, resolution, asked, machine))


def with_what_torch_requires(job: Job, target: Target, plan: Plan) -> Plan:
    """The plan once torch's wheel is fetched and names its dependencies."""
    fetch_wheels(job, plan.family)
    fresh = replace(target, venv=str(job.cache))
    return _without_environment(job, with_dependencies(job, fresh, plan))


def _without_environment(job: Job, plan: Plan) -> Plan:
    return replace(plan, target=str(job.cache), venv=None, steps=(), before={})


def fetch_into_folder(job: Job, target: Target, plan: Plan) -> str:
    """Fetch the wheels and write their manifest; a sentence about what is there then."""
    files, folder = fetch_wheels(job, plan.wheels), job.cache
    for note in folder.glob(".*.whl.json"):
        note.unlink()
    machine = f"{platform.system()} {platform.machine()}"
    write_manifest(folder, files, target.layout.version, machine, now())
    size = size_text(sum(path.stat().st_size for path in files))
    return f"{len(files)} wheels, {size}, are in {folder}; there: `gpusetup install --wheelhouse`"
