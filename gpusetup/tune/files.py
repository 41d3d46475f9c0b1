"""The config file itself: read, written in one step, and put back.

`--in-place` keeps the bytes that stood there in a file beside it, with the hash of what was
written, so that `--undo` never overwrites what somebody changed since.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput, GpuSetupError
from gpusetup.model.frozen import Frozen
from gpusetup.system.refused import blocked_by_files, refused

SUFFIX = ".gpusetup-undo"


class Undo(Frozen):
    """What stood in a config before it was changed in place."""

    schema: str = "gpusetup.tune-undo/1"
    written_sha256: str
    before_base64: str


def read_bytes(path: str) -> bytes:
    """A file's bytes; `BadInput` where there is none, `Blocked` where it may not be read."""
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
    from gpusetup.model.codec import to_json

    if target and not (named_file.is_there(target) and Path(target).samefile(source)):
        write_bytes(target, after)
        return target
    if before == after:
        return None
    kept = _kept(source)
    first = base64.b64encode(before).decode()
    if kept is not None and kept.written_sha256 == _hash(before):
        first = kept.before_base64
    undo = Undo(written_sha256=_hash(after), before_base64=first)
    write_bytes(undo_path(source), to_json(undo).encode())
    write_bytes(source, after)
    return source


def _kept(path: str) -> Undo | None:
    """What an earlier change kept; None where there is none, or it cannot be read."""
    from gpusetup.model.codec import from_json

    with suppress(GpuSetupError):
        return from_json(read_bytes(undo_path(path)), Undo, what=undo_path(path))
    return None


def put_back(path: str) -> None:
    """Undo the last change in place. `BadInput` where there is none, or the file changed since."""
    undo, kept = _kept(path), undo_path(path)
    if undo is None:
        raise BadInput(f"There is nothing to undo for {path}", hint=f"{kept} cannot be read")
    if _hash(read_bytes(path)) != undo.written_sha256:
        raise BadInput(
            f"{path} was changed after gpusetup wrote it: nothing was put back",
            hint=f"the previous text is kept in {kept}",
        )
    write_bytes(path, base64.b64decode(undo.before_base64))
    Path(kept).unlink()


def undo_path(path: str) -> str:
    target = Path(path).resolve()
    return str(target.with_name(target.name + SUFFIX))


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
