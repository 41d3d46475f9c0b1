"""Files and folders that are needed for a while: what a killed run left is swept by the next.

Each is locked as long as its maker lives (the lock goes with the process), so nobody sweeps what
another run still needs. Windows has no such lock: nothing is swept there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from gpusetup.install.switching.files import remove

if os.name == "posix":
    import fcntl

OF_THE_GUARD = "gpusetup-constraints.*.new"
"""What a killed `gpusetup guard` leaves in an environment."""
HANDLES: dict[Path, int] = {}
"""What we hold, and by which handle."""


def held(make: Callable[[], Path]) -> Path:
    """What is made, locked; made again where somebody swept it before it was."""
    while os.name == "posix":
        path = make()
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # a sweep was quicker
            HANDLES[path] = os.open(path, os.O_RDONLY)
            _lock(HANDLES[path])
            if path.exists():
                return path
        released(path)
    return make()


def _lock(handle: int) -> None:
    """Raises BlockingIOError if a sweep has it; a disk that knows no locks is swept by nobody."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return


def released(path: Path) -> None:
    """No longer held; to be called before it is deleted."""
    if path in HANDLES:
        os.close(HANDLES.pop(path))


def sweep(folder: Path, pattern: str) -> None:
    """Delete what killed runs of ours left in a folder."""
    for path in folder.glob(pattern) if os.name == "posix" else ():
        with contextlib.suppress(OSError):
            _sweep_one(path)


def _sweep_one(path: Path) -> None:
    """Delete it while we hold its lock. Raises OSError where somebody else does, or for a link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(handle).st_uid == os.geteuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path)
    finally:
        os.close(handle)
