"""Writes and removes files so that after a crash either the old file or the new one exists."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

BUSY_TRIES = 20
BUSY_SECONDS = 0.1
"""How often gpusetup tries to remove a folder into which another process writes, and how soon."""


def write_safely(path: Path, text: str) -> None:
    """Write a file atomically, flush it to disk, and keep the mode of a previous file."""
    new_file = path.with_name(f".{path.name}.gpusetup.new")
    # A run that was killed may have left it.
    remove(new_file)
    try:
        with open(new_file, "x", encoding="utf-8", errors="surrogateescape", newline="") as file:
            # Set the mode before the content is there to read.
            if path.is_file():
                shutil.copymode(path, new_file)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new_file.replace(path)
    except OSError:
        remove(new_file)
        raise
    # Flush the folder too, which holds the file's new name.
    if os.name == "posix":
        handle = os.open(path.parent, os.O_RDONLY)
        # Some network filesystems cannot sync a folder.
        with suppress(OSError):
            os.fsync(handle)
        os.close(handle)


def flush(folder: Path) -> None:
    """Write everything on a folder's filesystem to disk, or raise OSError. Does nothing on Windows,
    which has no such call, and for a folder that does not exist, in which nothing was written."""
    if os.name != "posix" or not folder.is_dir():
        return
    # This only flushes one filesystem. macOS does not have the call.
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    # As if a call that does not exist had failed.
    error = errno.ENOSYS
    if syncfs:
        handle = os.open(folder, os.O_RDONLY)
        try:
            error = ctypes.get_errno() if syncfs(handle) != 0 else 0
        finally:
            os.close(handle)
    # Some kernels and filesystems do not support syncfs, so flush all filesystems instead.
    if error in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        os.sync()
    elif error:
        raise OSError(error, os.strerror(error), str(folder))


def is_folder(path: str) -> bool:
    """Whether a path is a folder, and not a link to one."""
    return os.path.isdir(path) and not os.path.islink(path)


def no_link(path: str, flags: int) -> int:
    """An opener for `open` that neither follows a symbolic link nor waits for a pipe's writer."""
    # Windows has neither of these flags.
    no_follow: int = getattr(os, "O_NOFOLLOW", 0)
    no_wait: int = getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags | no_follow | no_wait)


def remove(path: Path) -> None:
    """Delete a file, a link or a whole folder, if it exists. Retries for two seconds while another
    process writes into the folder."""
    if path.is_symlink() or not path.is_dir():
        # One of the parent folders may be a file.
        with suppress(NotADirectoryError):
            path.unlink(missing_ok=True)
        return
    for attempt in range(1, BUSY_TRIES + 1):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            # Another process removed part of the folder.
            pass
        except OSError:
            if attempt == BUSY_TRIES:
                raise
            time.sleep(BUSY_SECONDS)
        if not path.exists():
            return


def sha256_of(path: str | Path) -> str:
    """The sha256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def files_below(top: str) -> Iterator[str]:
    """Yields the path itself if it is a file or link, otherwise every file and link below it,
    without following links. Nothing if the path does not exist."""
    if not is_folder(top):
        if os.path.lexists(top):
            yield top
        return
    with os.scandir(top) as listing:
        entries = list(listing)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(entry.path)
        else:
            yield entry.path
