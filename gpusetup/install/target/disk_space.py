"""Whether the disks can hold what an installation brings."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.fetching.wheels import size_text
from gpusetup.model.frozen import Frozen

UNPACKED_FACTOR = 3.6
"""How much larger a torch wheel is unpacked; measured on the CPU wheel of torch 2.13.0 (4.0) and
nvidia-cudnn-cu12 (1.6), weighted towards the larger."""


SPARE_BYTES = 50 << 20


class DiskNeed(Frozen):
    """What a folder's disk has to hold, and has free."""

    path: str
    needed_bytes: int
    free_bytes: int
    disk: int
    """The number of its filesystem: what lies on one disk counts together."""


def shortage(needs: Iterable[DiskNeed]) -> DiskNeed | None:
    """The first disk that cannot hold what it has to; None where all can."""
    disks: dict[int, DiskNeed] = {}
    for room in needs:
        had = disks.get(room.disk)
        disks[room.disk] = (
            room
            if had is None
            else DiskNeed(
                path=had.path,
                needed_bytes=had.needed_bytes + room.needed_bytes,
                free_bytes=min(had.free_bytes, room.free_bytes),
                disk=room.disk,
            )
        )
    return next((r for r in disks.values() if r.needed_bytes + SPARE_BYTES > r.free_bytes), None)


def disk_need(path: str, needed_bytes: int) -> DiskNeed:
    """What is free on the disk of a path that may not be there yet."""
    there = Path(path)
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    return DiskNeed(path=path, needed_bytes=needed_bytes, free_bytes=free, disk=there.stat().st_dev)


def require_space(needs: Sequence[DiskNeed]) -> None:
    """`Blocked` with needed and free where a disk cannot hold it."""
    short = shortage(needs)
    if short is not None:
        raise Blocked(
            f"No room on the disk of {short.path}: needs {size_text(short.needed_bytes)}, "
            f"free {size_text(short.free_bytes)}",
            hint="nothing was changed; make room (`uv cache clean` frees uv's cache), "
            "or use another disk: `--venv DIR`",
        )
