"""Reads, writes and removes files so that a kill in between leaves the old file or the new one."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from gpusetup.errors import BadInput

BUSY_TRIES = 20
BUSY_SECONDS = 0.1
"""How often, and after which rest, a folder is removed in which somebody still writes."""


def write_safely(path: Path, text: str) -> None:
    """Write a file so that after a crash it is the old one or the new one, and on disk; with the
    mode that it had."""
    fresh = path.with_name(f".{path.name}.gpusetup.new")
    remove(fresh)
    try:
        with open_new(fresh) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.is_file():
            shutil.copymode(path, fresh)
        fresh.replace(path)
    except OSError:
        remove(fresh)
        raise
    if os.name == "posix":
        handle = os.open(path.parent, os.O_RDONLY)
        with suppress(OSError):  # some network filesystems sync no folder
            os.fsync(handle)
        os.close(handle)


def flush(folder: Path) -> None:
    """Have on the disk all that was written to the filesystem of a folder; Windows cannot."""
    import ctypes

    if os.name != "posix" or not folder.is_dir():
        return
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    handle = os.open(folder, os.O_RDONLY)
    try:
        number = ctypes.get_errno() if call and call(handle) else 0
    finally:
        os.close(handle)
    if call is None or number == errno.ENOSYS:
        os.sync()
    elif number:
        raise OSError(number, os.strerror(number), str(folder))


def no_link(path: str, flags: int) -> int:
    """An opener that follows no symbolic link, and does not wait for the writer of a pipe."""
    more = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags | more, 0o666)


def read_json_object(path: Path, most_bytes: int = 1 << 20) -> dict[str, Any] | None:
    """What a JSON file holds; None for a link, for more than so many bytes, and for what is no
    object: anybody may have written it."""
    try:
        with open(path, "rb", opener=no_link) as file:
            raw = file.read(most_bytes + 1)
        found = json.loads(raw) if len(raw) <= most_bytes else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def open_new(path: Path) -> TextIO:
    """A file that is not there yet; never through a link that somebody has put there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags, 0o666)
    return os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="")


def refuse_newer(raw: bytes, kind: str, *, what: str) -> None:
    """`BadInput` for a file of ours in a form that only a newer gpusetup knows.

    >>> refuse_newer(b'{"schema": "gpusetup.journal/1"}', "gpusetup.journal/1", what="x")
    """
    family, _, known = kind.rpartition("/")
    found = re.search(rb'"schema"\s*:\s*"' + family.encode() + rb'/(\d+)"', raw[:4096])
    if found and int(found[1]) > int(known):
        raise BadInput(
            f"{what} was written by a newer gpusetup ({family}/{found[1].decode()}, "
            f"this one knows {known})",
            hint="use that one, or update this one: `pip install --upgrade gpusetup`",
        )


def remove(path: Path) -> None:
    """Delete a file, a link or a whole folder; nothing where it is not there."""
    if path.is_symlink() or not path.is_dir():
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:  # a file stands where a folder would be
            return
        return
    for attempt in range(BUSY_TRIES):
        if not os.path.lexists(path):
            return
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if not path.exists():
                return
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EBUSY) or attempt == BUSY_TRIES - 1:
                raise
            time.sleep(BUSY_SECONDS)
        else:
            return


def files_below(top: str) -> Iterator[str]:
    """Every file and link at a path and below it; links are not followed."""
    if os.path.isdir(top) and not os.path.islink(top):
        for name in os.listdir(top):
            yield from files_below(os.path.join(top, name))
    elif os.path.lexists(top):
        yield top


def link_hard(source: str, copy: str) -> None:
    """The same file under another name; a copy if the disk has no hard links."""
    try:
        os.link(source, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, copy, follow_symlinks=False)
