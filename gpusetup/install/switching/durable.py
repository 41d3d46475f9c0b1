"""Has on the disk what has been written: a power cut loses nothing that was made sure of here."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path

NOT_HERE = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS)
"""What a filesystem answers that cannot sync a folder, and a kernel that has no `syncfs`."""


def sync_folder(folder: Path) -> None:
    """Have a folder's entries on disk, if the system can (Windows and some network filesystems
    cannot)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _fsync(handle)
    finally:
        os.close(handle)


def _fsync(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in NOT_HERE:
            raise


def sync_folders(folders: Iterable[str]) -> None:
    """The entries of many folders: each of their filesystems at once if the kernel can. A folder
    that is not there any more has none."""
    there = {folder: os.stat(folder).st_dev for folder in folders if os.path.isdir(folder)}
    disks = {disk: folder for folder, disk in there.items()}
    if not all(_syncfs(Path(folder)) for folder in disks.values()):
        for folder in there:
            sync_folder(Path(folder))


def sync_tree(folder: Path) -> None:
    """Everything below a folder: its whole filesystem at once if the kernel can, else file by
    file."""
    if not _syncfs(folder):
        _sync_each(folder)


def _syncfs(folder: Path) -> bool:
    """Linux; False if there is no such call."""
    if os.name != "posix":
        return False
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return False
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if call(handle) == 0:
            return True
        number = ctypes.get_errno()
    finally:
        os.close(handle)
    if number in NOT_HERE:
        return False
    raise OSError(number, os.strerror(number), str(folder))


def _sync_each(folder: Path) -> None:
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                _sync_file(path)
        sync_folder(Path(place))


def _sync_file(path: str) -> None:
    """Windows syncs only what is open for writing; a file that may not be opened so is left."""
    try:
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    except PermissionError:
        return
    try:
        _fsync(handle)
    finally:
        os.close(handle)
