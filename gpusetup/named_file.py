"""Reads files that users name: only regular files, up to a size limit, and without waiting."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from gpusetup.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")  # noqa: PTH100, PTH118, PTH120
"""The folder of our own tables. `pathlib` is not used here, because importing it takes 3 ms."""
MOST_BYTES = 64 << 20
"""The default size limit of a file, if its reader names none."""
MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
"""Byte order marks and their encodings. UTF-32's mark begins with UTF-16's, so it comes first."""
SAMPLE = 1 << 16
"""How many bytes at the beginning of a text are used to detect its encoding."""


def shipped(name: str | Path) -> bytes:
    """Read a table that comes with gpusetup, by its name; an absolute path stays as it is."""
    path = os.path.join(SHIPPED, name)  # noqa: PTH118
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


def opened(path: str | Path) -> BinaryIO:
    """Open a regular file for reading in parts. Raises OSError, or BadInput for anything else."""
    file = open(path, "rb", opener=at_once)  # noqa: SIM115
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode):
        return file
    file.close()
    raise BadInput(
        f"{path} is a folder, a pipe or a device, not a regular file",
        hint="save the pipe's output to a file, and use that file",
    )


def read(path: str | Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a file's bytes. Raises OSError, or BadInput if it is too large or not a regular file."""
    with opened(path) as file:
        # Read one byte more than the limit, to tell a larger file from one of exactly that size.
        raw = file.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise BadInput(f"{path} is larger than {most_bytes >> 20} MiB")
    return raw


def read_text(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """Read a file's text. Raises BadInput if it cannot be read as text."""
    try:
        return text_of(read(path, most_bytes), path)
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise BadInput(f"{path} cannot be read: {why}") from problem


def encoding_of(raw: bytes) -> str:
    """The encoding of a text according to its byte order mark; UTF-8 if it has none.

    PowerShell's `>` writes UTF-16 with a mark, and some editors put a mark before UTF-8.
    """
    for mark, encoding in MARKS:
        if raw.startswith(mark):
            return encoding
    return "utf-8"


def text_of(raw: bytes, what: str | Path) -> str:
    """Decode a file's bytes as text. Raises BadInput, which names `what`, if they are no text."""
    encoding = encoding_of(raw)
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as problem:
        raise BadInput(
            f"{what} is not {problem.encoding.upper()} text: byte {problem.start}",
            hint="save it as UTF-8",
        ) from problem


def is_there(path: str | Path) -> bool:
    """Whether a path exists; False for a name that the system does not allow."""
    # Path.exists would raise an error for a name that is too long.
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: str | Path) -> bool:
    """Whether a path is a folder; False for a name that the system does not allow."""
    # Path.is_dir would raise an error for a name that is too long.
    return os.path.isdir(path)  # noqa: PTH112


def at_once(path: str, flags: int) -> int:
    """Open a path without waiting. Without this, opening a named pipe waits until another program
    opens it for writing."""
    # Windows has no such flag, and its files are never pipes.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
