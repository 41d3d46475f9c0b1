"""Whether the disks can hold what an installation brings."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
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


def disk_need(path: str, needed_bytes: int) -> DiskNeed:
    """What is free on the disk of a path that may not be there yet."""
    there = Path(path)
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    return DiskNeed(path=path, needed_bytes=needed_bytes, free_bytes=free, disk=there.stat().st_dev)


def require_space(needs: Sequence[DiskNeed]) -> None:
    """`Blocked` with needed and free where a disk cannot hold it."""
    for short in (one for one in needs if one.needed_bytes + SPARE_BYTES > one.free_bytes):
        raise Blocked(
            f"No room on the disk of {short.path}: needs {size_text(short.needed_bytes)}, "
            f"free {size_text(short.free_bytes)}",
            hint="nothing was changed; make room (`uv cache clean` frees uv's cache), "
            "or use another disk: `--venv DIR`",
        )
