"""gpusetup's own cache: folders that only this user can write to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.system.refusals import blocked_by_files

MAKING = "making"
"""The folder with one file per environment that is being created; the file contains its path."""


def own_folder(name: str) -> Path:
    """A folder in gpusetup's own cache, created if it does not exist.

    The cache is in `GPUSETUP_CACHE_DIR` or, by default, in the user's cache folder. Raises Blocked
    if other users could write to it.
    """
    path = own_path(name)
    # A folder that the user named may lie where others can write; the default is in the user's own.
    if os.environ.get("GPUSETUP_CACHE_DIR"):
        _only_ours(path.parent)
    return _only_ours(path)


def own_path(name: str) -> Path:
    """The path of a folder in the cache, whether or not it exists."""
    named_by_user = os.environ.get("GPUSETUP_CACHE_DIR")
    if named_by_user:
        return Path(named_by_user).absolute() / name
    # Imported here because most answers need no cache.
    from platformdirs import user_cache_path

    # On Windows the default would add a folder named after the author.
    return user_cache_path("gpusetup", appauthor=False) / name


def _only_ours(folder: Path) -> Path:
    """The folder, created if needed, after a check that nobody else can write to it."""
    hint = "nothing was changed; set GPUSETUP_CACHE_DIR to a folder that only you can write"
    with blocked_by_files(f"The cache {folder} cannot be made", hint):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    # Windows has no such owners and modes. There, the access rights of the user's profile protect
    # the folder.
    if os.name == "posix":
        is_anothers = status.st_uid != os.geteuid()
        others_may_write = bool(stat.S_IMODE(status.st_mode) & 0o022)
        if is_anothers or others_may_write:
            raise Blocked(f"Others own the cache {folder}, or may write to it", hint=hint)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Blocked(f"The cache {folder} cannot be written", hint=hint)
    return folder
