"""Room on the disks for an install of torch: what is short, and how room is made first."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext
from gpusetup.fixes import paste
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


def making_room(context: RuleContext) -> Lines:
    """The command that frees the installer's cache."""
    if "uv" in (context.installer, context.snapshot.failing.program):
        return (paste.command(context, "uv", "cache", "clean"),)
    if context.snapshot.python.has_pip is False:
        return ()
    return (paste.command(context, paste.python(context), "-m", "pip", "cache", "purge"),)
