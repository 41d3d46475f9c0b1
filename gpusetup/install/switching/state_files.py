"""Reads what lies in a store as what it is: files that anybody may have written.

A checkout may bring a `.venv/.gpusetup` of its own. What is read there is a plain file of a bounded
size that belongs to us or to whom the environment belongs, and it leads nowhere but into the
environment: every path in it is below the prefix, with no symbolic link on the way.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.switching.files import no_link

STATE_BYTES = 32 << 20
"""A journal of ten thousand paths has 2 MB."""
YOURS = "nothing was changed; see what it is, and delete it yourself if nobody needs it"
FORMER = re.compile(r"former(-[0-9a-f]{8})?")
KEPT = re.compile(r"(new-)?\d{1,7}")


def require_store(store: Path) -> bool:
    """Whether there is a store; `Blocked` where it is a link or somebody else's folder."""
    try:
        found = store.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISLNK(found.st_mode):
        raise Blocked(f"{store} is a symbolic link", hint=YOURS)
    if not stat.S_ISDIR(found.st_mode):
        return False
    _require_owner(store, found)
    return True


def _require_owner(path: Path, found: os.stat_result) -> None:
    """Ours, root's, or of whom the environment belongs to (in a container that is often another
    number than ours)."""
    if os.name != "posix":
        return
    stores = (one.parent for one in (path, *path.parents) if one.name == ".gpusetup")
    prefix = next(stores, path.parent)
    if found.st_uid not in (os.geteuid(), 0, prefix.stat().st_uid):
        raise Blocked(
            f"{path} belongs to another user (number {found.st_uid})",
            hint="nothing was changed; who it belongs to can run `gpusetup install --recover`, "
            "or use another environment: `--venv DIR`",
        )


def read_state(path: Path, most: int = STATE_BYTES) -> bytes | None:
    """A file of the store, None where there is none; `Blocked` where it is something else."""
    if not require_store(path.parent):
        return None
    try:
        handle = no_link(str(path), os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        return None
    except OSError as problem:
        why = "is a symbolic link" if problem.errno == errno.ELOOP else f"{problem.strerror}"
        raise Blocked(f"{path}: {why}", hint=YOURS) from problem
    try:
        _require_plain(path, os.fstat(handle), most)
        return _all_of(handle, most)
    finally:
        os.close(handle)


def _require_plain(path: Path, found: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Blocked(f"{path} is no plain file", hint=YOURS)
    _require_owner(path, found)
    if found.st_size > most:
        raise Blocked(f"{path} has {found.st_size} bytes, which none of ours has", hint=YOURS)


def _all_of(handle: int, most: int) -> bytes:
    parts, left = [], most
    while left and (part := os.read(handle, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def require_lock(path: Path) -> None:
    """`Blocked` where a lock is something else than an empty file of ours: to open it would empty
    what stands behind a hard link, or make what a symbolic link names."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_size:
        raise Blocked(f"{path} is no lock of gpusetup", hint=YOURS)
    _require_owner(path, found)


# --- where paths lead ----------------------------------------------------------------------------


class Inside:
    """Whether paths lie in an environment, really."""

    def __init__(self, prefix: str, store: str) -> None:
        self.prefix, self.store = prefix.rstrip(os.sep), store
        self.real = os.path.realpath(prefix)
        self._folders: dict[str, bool] = {}

    def __call__(self, path: str) -> bool:
        """Below the prefix, not in the store, written plainly, and no link on the way."""
        if not self._below(path, self.prefix) or os.path.normpath(path) != path or "\0" in path:
            return False
        if path == self.store or self._below(path, self.store):
            return False
        folder = os.path.dirname(path)
        if folder not in self._folders:
            expected = self.real + folder[len(self.prefix) :]
            self._folders[folder] = os.path.realpath(folder) == expected
        return self._folders[folder]

    def _below(self, path: str, folder: str) -> bool:
        return path.startswith(folder + os.sep)


def first_outside(prefix: str, store: str, paths: Iterable[str]) -> str | None:
    """The first of some paths that does not lie in the environment."""
    inside = Inside(prefix, store)
    return next((path for path in paths if not inside(path)), None)
