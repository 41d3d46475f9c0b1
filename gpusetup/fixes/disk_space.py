"""Room on the disks for an install of torch: what is short, and how room is made first."""

from __future__ import annotations

import re

from gpusetup.evidence.context import RuleContext, gib
from gpusetup.fixes import paste
from gpusetup.model.finding import Alternative, Fix, each_block
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Disk
from gpusetup.model.shell import Lines
from gpusetup.model.units import GIB

INSTALL_BYTES = 8 * GIB
"""What a CUDA build of torch takes: 3 GiB of wheels and 5 GiB unpacked (2.9 on Linux)."""


def needed(disk: Disk) -> int:
    """tmp need not hold a whole install: wheels are unpacked beside their target."""
    return {"site-packages": INSTALL_BYTES, "tmp": GIB}.get(disk.subject, INSTALL_BYTES // 2)


def short_disks(context: RuleContext) -> tuple[Disk, ...]:
    """The disks without room for an install where it writes."""
    known = (disk for disk in context.snapshot.disks if disk.free_bytes is not None)
    return tuple(disk for disk in known if (disk.free_bytes or 0) < needed(disk))


def making_room(context: RuleContext, short: tuple[Disk, ...]) -> Lines:
    """The commands that free what is short: the caches of installers."""
    subjects = {disk.subject for disk in short}
    uv = "uv" in (context.installer, context.snapshot.failing.program)
    by_uv = subjects & {"uv-cache", "site-packages"} or (uv and not subjects)
    by_pip = subjects & {"pip-cache", "site-packages"} or not (subjects or by_uv)
    room = [paste.command(context, "uv", "cache", "clean")] if by_uv else []
    if by_pip and context.snapshot.python.has_pip is not False:
        room.append(paste.command(context, paste.python(context), "-m", "pip", "cache", "purge"))
    return tuple(room)


INSTALLS = re.compile(r"gpusetup install\b|install\b.*\b(?:torch|pytorch)==?\d")


def first_room(context: RuleContext, fix: Fix) -> Fix:
    """A fix that installs torch, where the disks have no room for it: room comes first."""
    build = context.resolution.build
    short = short_disks(context)
    installs = any(map(INSTALLS.search, fix.commands))
    if not short or not installs or (build and build.backend == "cpu"):
        return fix
    room = making_room(context, short)

    def after(block: Alternative) -> Alternative:
        needs = any(map(INSTALLS.search, block.commands))
        return replace(block, commands=(*room, *block.commands)) if needs else block

    sizes = (
        f"{gib(needed(disk))} in {disk.path} ({gib(disk.free_bytes or 0)} free)" for disk in short
    )
    text = f"First make room: an install needs {', '.join(sizes)}. {fix.text}"
    return replace(each_block(fix, after), text=text)
