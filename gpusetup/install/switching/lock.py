"""One at a time: a lock for each environment, and one that its installer holds while it writes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.switching.journal import require_lock, require_store
from gpusetup.system.refused import READ_ONLY, blocked_by_files

LOCK_SECONDS = 10.0
"""How long a second process waits for the first."""
INSTALLER_SECONDS = 60.0
"""How long an installer may take to end that lost its parent."""
LAUNCHER = Path(__file__).resolve().parents[2] / "child_scripts" / "end_with_parent.py"


@contextmanager
def locked(
    store: Path, say: Callable[[str], None] = lambda _text: None, seconds: float | None = None
) -> Iterator[None]:
    """Hold the lock of an environment, whose store is made for it and goes where it stays empty.

    A second process waits, says so, and leaves with `Blocked`. Who gets the lock waits until an
    installer that lost its parent has ended.
    """
    prefix = store.parent
    existed = prefix.is_dir()
    require_store(store)
    require_lock(store / "lock")
    require_lock(store / "installer")
    with blocked_by_files(f"{store} cannot be written", READ_ONLY):
        store.mkdir(parents=True, exist_ok=True)
        lock = _acquired(store / "lock", say, LOCK_SECONDS if seconds is None else seconds)
    try:
        _wait_for_installer(store, say)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (store / "installer").unlink()
    finally:
        with contextlib.suppress(OSError):
            (store / "lock").unlink()
        lock.release()
        with contextlib.suppress(OSError):
            store.rmdir()
            if not existed:
                prefix.rmdir()


def _acquired(path: Path, say: Callable[[str], None], seconds: float):  # type: ignore[no-untyped-def]
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"Another gpusetup is changing {path.parent.parent}; waiting up to {seconds:g} s ...")
        try:
            lock.acquire(timeout=seconds, poll_interval=0.1)
        except Timeout:
            raise Blocked(
                f"Another gpusetup is changing {path.parent.parent}",
                hint="nothing was changed; wait until it has ended, then run this again",
            ) from None
    return lock


def _wait_for_installer(store: Path, say: Callable[[str], None]) -> None:
    """Where the last gpusetup was killed, its uv or pip may still write."""
    path = store / "installer"
    if not path.exists():
        return
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say("Waiting for the installer that is still running ...")
            lock.acquire(timeout=INSTALLER_SECONDS, poll_interval=0.1)
        lock.release()
    except Timeout:
        raise Blocked(
            f"The installer of an earlier run still writes to {store.parent}",
            hint="end it (it is uv), then run this again",
        ) from None


def ending_with_us(argv: Sequence[str], store: Path | None) -> tuple[str, ...]:
    """The command under which a program ends with us, and holds the installer's lock.

    Windows has no such thing: there a killed gpusetup leaves uv or pip to run to its end, and
    what it still has open cannot be renamed.
    """
    if store is None or os.name != "posix":
        return tuple(argv)
    return _launched(argv, store, os.getpid())


def outliving_us(argv: Sequence[str], store: Path | None) -> tuple[str, ...]:
    """The command under which a program holds the installer's lock, but is not killed with us:
    conda has a transaction of its own, and ends it or rolls it back."""
    return tuple(argv) if store is None or os.name != "posix" else _launched(argv, store, 0)


def _launched(argv: Sequence[str], store: Path, parent: int) -> tuple[str, ...]:
    launcher = (sys.executable, "-I", "-S", str(LAUNCHER))
    return (*launcher, str(store / "installer"), str(parent), *argv)
