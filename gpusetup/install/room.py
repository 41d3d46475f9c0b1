"""Whether the disks can hold what an installation brings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.layout import Layout, content_of
from gpusetup.install.owned import files_of_all
from gpusetup.install.plan import Room, shortage
from gpusetup.install.wheels import in_words


def check_room(layout: Layout, wheels: Sequence[Path], leaving: Iterable[str]) -> None:
    """The unpacked wheels must fit on the target's disk.

    On an overlay what leaves is counted too: a folder of a lower layer is copied, not renamed.
    """
    unpacked = sum(content_of(path).unpacked_bytes for path in wheels)
    copied = bytes_of_files(layout, leaving) if is_overlay(layout.prefix) else 0
    require_room((room(layout.purelib, unpacked + copied),))


def room(path: str, needed_bytes: int) -> Room:
    """What is free on the disk of a path that may not be there yet."""
    there = Path(path)
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    return Room(path=path, needed_bytes=needed_bytes, free_bytes=free, disk=there.stat().st_dev)


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
    """The kind of filesystem that holds a path, by the text of `/proc/self/mounts`.

    >>> filesystem_of("/data/env", "overlay / overlay rw\\n/dev/sdb /data ext4 rw\\n")
    'ext4'
    """
    best, kind = -1, None
    for _, folder, found, *_rest in (line.split() for line in mounts.splitlines() if line):
        inside = path == folder or path.startswith(f"{folder.rstrip('/')}/")
        if inside and len(folder) >= best:
            best, kind = len(folder), found
    return kind


def require_room(rooms: Sequence[Room]) -> None:
    """`Blocked` with needed and free where a disk cannot hold it."""
    short = shortage(rooms)
    if short is not None:
        raise Blocked(
            f"No room on the disk of {short.path}: needs {in_words(short.needed_bytes)}, "
            f"free {in_words(short.free_bytes)}",
            hint="nothing was changed; make room (`uv cache clean` frees uv's cache), "
            "or use another disk: `--venv DIR`",
        )
