"""Whether the disks can hold what an installation brings."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.fetching.wheels import size_text

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
    if needed_bytes + SPARE_BYTES > free:
        raise Blocked(
            f"No room on the disk of {folder}: needs {size_text(needed_bytes)}, "
            f"free {size_text(free)}",
            hint="nothing was changed; make room (`uv cache clean` frees uv's cache), "
            "or use another disk: `--venv DIR`",
        )
