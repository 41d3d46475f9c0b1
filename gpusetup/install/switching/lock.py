"""The two locks of an environment: gpusetup's, and one for an installer while it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from gpusetup.errors import Blocked
from gpusetup.install.switching.journal import checked_status, require_lock
from gpusetup.system.refusals import READ_ONLY, blocked_by_files

LOCK_SECONDS = 10.0
"""How many seconds a second process waits for the first."""
INSTALLER_SECONDS = 60.0
"""How many seconds to wait for an installer whose gpusetup was killed."""
LAUNCHER = Path(__file__).resolve().parents[2] / "child_scripts" / "end_with_parent.py"


@contextmanager
def locked(store: Path, talk: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of an environment during the block. Its store is created, and removed again if
    it stays empty.

    A second process waits, tells the user so, and gives up with `Blocked`. With the lock, it then
    waits for an installer that is still running although its gpusetup was killed.
    """
    prefix = store.parent
    # The folders that `mkdir` will create, innermost first.
    new_folders = [folder for folder in (prefix, *prefix.parents) if not folder.exists()]
    # Refuses a link, and what belongs to another user, before anything is created.
    checked_status(store)
    require_lock(store / "lock")
    require_lock(store / "installer")
    with blocked_by_files(f"{store} cannot be written", READ_ONLY):
        try:
            store.mkdir(parents=True, exist_ok=True)
            holder = f"Another gpusetup is changing {prefix}"
            lock = _acquired(store / "lock", talk, holder, LOCK_SECONDS)
        except OSError:
            _remove_empty((store, *new_folders))
            raise
    try:
        # If an earlier gpusetup was killed, its uv may still be writing.
        if (store / "installer").exists():
            holder = f"The installer of an earlier run still writes to {prefix}"
            _acquired(store / "installer", talk, holder, INSTALLER_SECONDS).release()
        try:
            yield
        finally:
            with suppress(OSError):
                (store / "installer").unlink()
    finally:
        with suppress(OSError):
            (store / "lock").unlink()
        lock.release()
        _remove_empty((store, *new_folders))


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove these folders, innermost first, as far as they exist and are empty."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _acquired(path: Path, talk: Callable[[str], None], holder: str, seconds: float) -> FileLock:
    """The lock of a file, once it is free; `holder` is the sentence that says who holds it. Raises
    Blocked if it is not free after this time."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        talk(f"{holder}; waiting up to {seconds:g} s ...")
        try:
            lock.acquire(timeout=seconds, poll_interval=0.1)
        except Timeout:
            hint = "nothing was changed; wait until it has ended, then run this again"
            raise Blocked(holder, hint=hint) from None
    return lock


def launched(argv: Sequence[str], store: Path | None) -> tuple[str, ...]:
    """The command, wrapped so that the program holds the installer's lock and ends when gpusetup
    ends. `store` is None before the environment is locked; the command then stays as it is.

    Windows does not support this. If gpusetup is killed there, uv continues to its end, and files
    that it has open cannot be renamed.
    """
    if store is None or os.name != "posix":
        return tuple(argv)
    words = ("-I", "-S", str(LAUNCHER), str(store / "installer"), str(os.getpid()))
    return (sys.executable, *words, *argv)
