"""Which programs have torch of a target loaded right now, so that they can be named."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gpusetup.model.frozen import Frozen


class User(Frozen):
    """A process, and what it is called: `python train.py`."""

    pid: int
    name: str


def users_of(libraries: Iterable[str], proc: Path = Path("/proc")) -> tuple[User, ...]:
    """The processes that have mapped files of torch from these folders, ours left out.

    Linux only; elsewhere (), and Windows refuses to rename what is loaded. Processes of others
    that we may not look at are not seen.
    """
    marks = [os.fsencode(f"{os.path.realpath(one)}{os.sep}torch{os.sep}") for one in libraries]
    found = []
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        maps = b"" if int(folder.name) == os.getpid() else _read(folder / "maps")
        if any(mark in maps for mark in marks):
            # A program and its script; arguments may hold what nobody should see.
            words = os.fsdecode(_read(folder / "cmdline")).split("\0")[:2]
            named = (Path(word).name for word in words if word and not word.startswith("-"))
            found.append(User(pid=int(folder.name), name=" ".join(named) or "?"))
    return tuple(found)


def _read(path: Path) -> bytes:
    """Empty for what is gone, and for what we may not look at."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
