"""Files that people name: regular ones, read within a bound, and never waited for."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, BinaryIO

from gpusetup.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")  # noqa: PTH100, PTH118, PTH120
"""The folder of our own tables. `pathlib` is not imported for them: it takes 3 ms."""
MOST_BYTES = 64 << 20
"""Of a file whose reader names no bound of its own."""
MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
"""Byte order marks, the longer before the one that it begins with."""
PIPE_SECONDS = 10.0
"""How long a pipe may take; a command like `<(uv export)` needs a second or two."""
SAMPLE = 1 << 16
"""How much of a text tells its encoding."""


def shipped(name: str | Path) -> bytes:
    """A file of our own tables; one with its whole path is read where that says."""
    with open(os.path.join(SHIPPED, name), "rb") as file:  # noqa: PTH118, PTH123
        return file.read()


def opened(path: str | Path) -> BinaryIO:
    """A regular file, to be read in parts. Raises OSError, and BadInput for anything else."""
    file = open(path, "rb", opener=at_once)  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise BadInput(f"{path} is a folder, a pipe or a device, and a file is meant")


def read(path: str | Path, most_bytes: int = MOST_BYTES) -> bytes:
    """A file's bytes. Raises OSError, and BadInput for more bytes and for what is no file."""
    with opened(path) as file:
        raw = file.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise BadInput(f"{path} is larger than {most_bytes >> 20} MiB")
    return raw


def read_text(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """A file's text; `BadInput` for whatever cannot be read as one."""
    try:
        return text_of(read(path, most_bytes), path)
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise BadInput(f"{path} cannot be read: {why}") from problem


def read_text_once(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file or of a pipe: `/dev/stdin`, `<(command)`.

    A pipe gives its text once, so that it is kept for whoever reads the same pipe later. `BadInput`
    for what cannot be read as a text, and for a pipe that does not end in time.
    """
    try:
        with open(path, "rb", opener=at_once) as file:
            status = os.fstat(file.fileno())
            if is_empty_device(status):
                return ""
            if not stat.S_ISFIFO(status.st_mode):
                return read_text(path, most_bytes)
            pipe = (status.st_dev, status.st_ino)
            if pipe not in _PIPES:
                _PIPES[pipe] = _read_pipe(file.fileno(), path, most_bytes)
        return text_of(_PIPES[pipe], path)
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise BadInput(f"{path} cannot be read: {problem}") from problem


_PIPES: dict[tuple[int, int], bytes] = {}
"""What came from pipes, by device and number of each."""


def _read_pipe(descriptor: int, path: str | Path, most_bytes: int) -> bytes:
    """Everything that comes from a pipe until its writer ends."""
    # A pipe without a name has had its writer from the beginning; to one with a name somebody may
    # still come, and until then it looks as if it had ended.
    has_name = os.path.exists(os.path.realpath(path))  # noqa: PTH110
    deadline = time.monotonic() + PIPE_SECONDS
    data = b""
    while time.monotonic() < deadline:
        try:
            part = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            # The writer has not written yet.
            time.sleep(0.01)
            continue
        data += part
        if len(data) > most_bytes:
            raise BadInput(f"{path} is larger than {most_bytes >> 20} MiB")
        has_ended = not part
        if has_ended and (data or not has_name):
            return data
        if has_ended:
            time.sleep(0.01)
    raise BadInput(f"{path} is a pipe that was not filled and closed within {PIPE_SECONDS:g} s")


def encoding_of(raw: bytes) -> str:
    """By its mark: PowerShell's `>` writes UTF-16, some editors put one before UTF-8. In UTF-16
    without a mark every other byte of a Latin text is zero."""
    for mark, encoding in MARKS:
        if raw.startswith(mark):
            return encoding
    sample = raw[:SAMPLE]
    even, odd, half = sample[0::2].count(0), sample[1::2].count(0), len(sample) // 2
    if odd > half * 0.6 and even < half * 0.1:
        return "utf-16-le"
    return "utf-16-be" if even > half * 0.6 and odd < half * 0.1 else "utf-8"


def text_of(raw: bytes, what: str | Path) -> str:
    """The text of a file that is named `what`; `BadInput` where it is none."""
    try:
        return raw.decode(encoding_of(raw))
    except UnicodeDecodeError as problem:
        raise BadInput(
            f"{what} is not {problem.encoding.upper()} text: byte {problem.start}",
            hint="save it as UTF-8",
        ) from problem


def is_there(path: str | Path) -> bool:
    """Whether something stands there; nothing does where the system takes no such name."""
    return os.path.exists(path)  # noqa: PTH110  # Path's raises for a name that is too long


def is_folder(path: str | Path) -> bool:
    """Whether a folder stands there; none does where the system takes no such name."""
    return os.path.isdir(path)  # noqa: PTH112  # the same


def is_endless(file: BinaryIO) -> bool:
    """Whether it is a device, which may never end: no terminal, and not the empty one."""
    found = os.fstat(file.fileno())
    if stat.S_ISBLK(found.st_mode):
        return True
    if not stat.S_ISCHR(found.st_mode) or file.isatty():
        return False
    return not is_empty_device(found)


def is_empty_device(status: os.stat_result) -> bool:
    """Whether it is the device that gives nothing (`/dev/null`)."""
    if not stat.S_ISCHR(status.st_mode) or not os.path.exists(os.devnull):  # noqa: PTH110
        return False
    return status.st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116


def at_once(path: str, flags: int) -> int:
    """Opens without waiting for whoever should write into a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
