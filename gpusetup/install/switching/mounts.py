"""Finds mounts inside an environment, because a file cannot be renamed from one mount to
another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
"""Linux's table of mounts (https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html)."""


def mounts() -> Iterator[str]:
    """Yields the paths of the mounts that this process sees; none if the system does not list
    them."""
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).splitlines()
    except OSError:
        return
    for line in lines:
        # Spaces, tabs and line breaks in a name are written as octal numbers.
        yield re.sub(r"\\([0-7]{3})", lambda number: chr(int(number[1], 8)), line.split(" ")[4])


def mount_on_the_way(prefix: Path, paths: Iterable[str]) -> str | None:
    """The first mount inside an environment that contains one of these paths; None if there is
    none.

    Two bind mounts of the same disk count as two mounts, because a rename between them fails.
    """
    real = os.path.realpath(prefix)
    inside = [place for place in mounts() if place.startswith(f"{real}{os.sep}")]
    try:
        device = os.stat(real).st_dev
    except FileNotFoundError:
        return None
    is_checked: set[str] = set()
    for path in paths:
        folder = os.path.dirname(real + path[len(str(prefix)) :])
        if folder in is_checked:
            continue
        is_checked.add(folder)
        for place in inside:
            if f"{folder}{os.sep}".startswith(f"{place}{os.sep}"):
                return place
        # Other systems have no such table, and btrfs subvolumes are not in it.
        if os.path.isdir(folder) and os.stat(folder).st_dev != device:
            return folder
    return None
