"""`gpusetup install --download DIR` and `--wheelhouse DIR`: for machines without a network."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.answers import InstallAnswer
from gpusetup.install.room import room
from gpusetup.install.wheelhouse import newest_torch, wheels_in, write_manifest
from gpusetup.install.wheels import in_words, target_tags
from gpusetup.render.console import Console, plain
from gpusetup.render.install import plan_text
from gpusetup.value import replace

if TYPE_CHECKING:
    from gpusetup.install.plan import Asked, Plan
    from gpusetup.install.prepare import Where
    from gpusetup.install.run import Job
    from gpusetup.model import Request, Resolution, Snapshot


def use_wheelhouse(job: Job, where: Where, folder: str, request: Request) -> Request:
    """Everything comes from a folder; where no torch is named, it is the newest that is there."""
    job.house, job.own_house = Path(folder).absolute(), False
    job.wheels = wheels_in(job.house)
    torch = newest_torch(job.wheels, target_tags(where.layout))
    return request if request.torch else replace(request, torch=f"=={torch}")


def download(
    options: argparse.Namespace,
    out: Console,
    job: Job,
    where: Where,
    resolution: Resolution,
    asked: Asked,
    snapshot: Snapshot,
) -> int:
    """Fetch all that a new environment needs into a folder, with a manifest; change nothing."""
    from gpusetup.commands.install_parts import planned, refused
    from gpusetup.install.carry import fetched
    from gpusetup.install.prepare import with_rest
    from gpusetup.install.receipt import now

    folder = Path(options.download).absolute()
    job.house = folder
    fresh = replace(where, venv=str(folder))
    plan = _as_download(planned(options, job, fresh, resolution, asked, snapshot), folder)
    out.talk(_shown(plan))
    if options.dry_run:
        return _told(out, job, plan, "")
    if refused(options, out, "fetched"):
        return 1
    if plan.rest is None:
        fetched(job, plan.family)
        plan = _as_download(with_rest(job, fresh, plan), folder)
        out.talk(_shown(plan))
    files = fetched(job, plan.wheels)
    for left in folder.glob(".*.whl.json"):
        left.unlink()
    version = where.layout.version
    write_manifest(folder, files, version, f"{platform.system()} {platform.machine()}", now())
    size = in_words(sum(path.stat().st_size for path in files))
    text = f"{len(files)} wheels, {size}, are in {folder}; there: `gpusetup install --wheelhouse`"
    return _told(out, job, plan, text)


def _as_download(plan: Plan, folder: Path) -> Plan:
    return replace(plan, target=str(folder), venv=None, steps=(), before={})


def _shown(plan: Plan) -> str:
    return plan_text(plan, kept=frozenset(), free_bytes=room(plan.target, 0).free_bytes)


def _told(out: Console, job: Job, plan: Plan, text: str) -> int:
    answer = InstallAnswer(
        state="planned",
        target=plan.target,
        before={},
        after=plan.after,
        steps=(),
        log=str(job.log.path),
    )
    out.answer(answer, plain(text + "\n" if text else ""))
    return 0
