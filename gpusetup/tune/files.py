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
from gpusetup.errors import BadInput
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


def change_in_place(path: str, before: bytes, after: bytes) -> None:
    """Write the new bytes and keep the old ones for `--undo`.

    What stood there before the first of several changes stays the one that is kept, as long as
    nobody else changed the file in between.
    """
    from gpusetup.model.codec import to_json

    first = _kept(path, before) or base64.b64encode(before).decode()
    undo = Undo(written_sha256=_hash(after), before_base64=first)
    write_bytes(undo_path(path), to_json(undo).encode())
    write_bytes(path, after)


def _kept(path: str, before: bytes) -> str | None:
    """What an earlier change kept, where the file is still what that one wrote."""
    from gpusetup.errors import GpuSetupError
    from gpusetup.model.codec import from_json

    kept = undo_path(path)
    if not Path(kept).exists():
        return None
    try:
        undo = from_json(read_bytes(kept), Undo, what=kept)
    except GpuSetupError:
        return None
    return undo.before_base64 if undo.written_sha256 == _hash(before) else None


def put_back(path: str) -> None:
    """Undo the last change in place. `BadInput` where there is none, or the file changed since."""
    from gpusetup.model.codec import from_json

    kept = undo_path(path)
    if not Path(kept).exists():
        raise BadInput(f"There is nothing to undo for {path}", hint=f"{kept} does not exist")
    undo = from_json(read_bytes(kept), Undo, what=kept)
    if _hash(read_bytes(path)) != undo.written_sha256:
        raise BadInput(
            f"{path} was changed after gpusetup wrote it: nothing was put back",
            hint=f"what stood there before is kept in {kept}",
        )
    write_bytes(path, base64.b64decode(undo.before_base64))
    Path(kept).unlink()


def undo_path(path: str) -> str:
    target = Path(path).resolve()
    return str(target.with_name(target.name + SUFFIX))


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
