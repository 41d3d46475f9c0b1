"""Whether the disks can hold what an installation brings."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.fetching.wheels import size_text
from gpusetup.install.target.layout import Layout, content_of
from gpusetup.install.target.owned import files_of_all
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


def check_space(layout: Layout, wheels: Sequence[Path], leaving: Iterable[str]) -> None:
    """The unpacked wheels must fit on the target's disk.

    On an overlay what leaves is counted too: a folder of a lower layer is copied, not renamed.
    """
    unpacked = sum(content_of(path).unpacked_bytes for path in wheels)
    copied = bytes_of_files(layout, leaving) if is_overlay(layout.prefix) else 0
    require_space((disk_need(layout.purelib, unpacked + copied),))


def disk_need(path: str, needed_bytes: int) -> DiskNeed:
    """What is free on the disk of a path that may not be there yet."""
    there = Path(path)
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    return DiskNeed(path=path, needed_bytes=needed_bytes, free_bytes=free, disk=there.stat().st_dev)


def bytes_of_files(layout: Layout, names: Iterable[str]) -> int:
    """What the files of installed distributions hold."""
    paths = map(Path, files_of_all(names, layout)[1])
    return sum(path.lstat().st_size for path in paths if os.path.lexists(path))


def is_overlay(path: str) -> bool:
    """Whether a path lies on an overlay filesystem (Linux; a container's own files)."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return filesystem_of(os.path.realpath(path), mounts) == "overlay"


def filesystem_of(path: str, mounts: str) -> str | None:
    r"""The kind of filesystem that holds a path, by the text of `/proc/self/mounts`, which writes a
    space in a path as `\040`.

    >>> filesystem_of("/data/env", "overlay / overlay rw\n/dev/sdb /data ext4 rw\n")
    'ext4'
    >>> filesystem_of("/my data/env", "overlay / overlay rw\n/dev/sdb /my\\040data ext4 rw\n")
    'ext4'
    """
    best, kind = -1, None
    rows = (line.split() for line in mounts.splitlines())
    for _, written, found, *_options in (row for row in rows if len(row) > 2):
        folder = re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), written)
        inside = path == folder or path.startswith(f"{folder.rstrip('/')}/")
        if inside and len(folder) >= best:
            best, kind = len(folder), found
    return kind


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
