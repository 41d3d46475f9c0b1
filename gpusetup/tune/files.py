"""The config file itself: read, written in one step, and put back.

`--in-place` keeps a second file with the hash of what it writes and the bytes that stood there, so
that `--undo` never overwrites what somebody changed since.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput, GpuSetupError
from gpusetup.system.refused import blocked_by_files, refused

SUFFIX = ".gpusetup-undo"


def read_bytes(path: str) -> bytes:
    """A file's bytes; `BadInput` if there is none, `Blocked` if it may not be read."""
    try:
        return named_file.read(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as problem:
        raise BadInput(f"{path}: {problem.strerror}") from problem
    except OSError as problem:
        raise refused(problem, f"Cannot read {path}") from problem


def write_bytes(path: str, raw: bytes) -> None:
    """Replace the file in one step, with its permissions; a link keeps pointing where it did."""
    target = Path(path).resolve()
    with blocked_by_files(f"Cannot write {path}"):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        Path(name).chmod(target.stat().st_mode & 0o7777 if target.exists() else _new_mode())
        Path(name).replace(target)
    except OSError as problem:
        with suppress(OSError):
            Path(name).unlink()
        raise refused(problem, f"Cannot write {path}") from problem


def _new_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def write_tuned(source: str, target: str | None, before: bytes, after: bytes) -> str | None:
    """Write a tuned config to another file, or over itself (`target` None too) with what stood
    there kept for `--undo`; the file that was written.

    What stood there before the first of several changes stays the one that is kept, as long as
    nobody else changed the file in between.
    """
    if target and not (named_file.is_there(target) and Path(target).samefile(source)):
        write_bytes(target, after)
        return target
    if before == after:
        return None
    written, first = _kept(source)
    first = first if written == _hash(before) else before
    write_bytes(undo_path(source), _hash(after) + b"\n" + first)
    write_bytes(source, after)
    return source


def _kept(path: str) -> tuple[bytes, bytes]:
    """The hash of what was written, and what stood there before; b"" and b"" without a change."""
    with suppress(GpuSetupError):
        written, _, before = read_bytes(undo_path(path)).partition(b"\n")
        return written, before
    return b"", b""


def put_back(path: str) -> None:
    """Undo the last change in place. `BadInput` if there is none, or the file changed since."""
    (written, before), kept = _kept(path), undo_path(path)
    if not written:
        raise BadInput(f"There is nothing to undo for {path}", hint=f"{kept} cannot be read")
    if _hash(read_bytes(path)) != written:
        raise BadInput(
            f"{path} was changed after gpusetup wrote it: nothing was put back",
            hint=f"the previous file is kept in {kept}",
        )
    write_bytes(path, before)
    Path(kept).unlink()


def undo_path(path: str) -> str:
    target = Path(path).resolve()
    return str(target.with_name(target.name + SUFFIX))


def _hash(raw: bytes) -> bytes:
    return hashlib.sha256(raw).hexdigest().encode()
