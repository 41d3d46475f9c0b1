"""The standard streams of this process: replaces closed ones, and handles errors of writing.

This module is part of the folder, because the folder must also run without the package above it.
"""

import errno
import os
import sys
from typing import Any

STREAMS = (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))
"""For each stream: its name, the mode in which to open the null device, and the mode of the text
stream. Text for a closed stderr is lost silently. For a closed stdout the null device is opened so
that each write fails, because a lost answer is an error."""
ELSEWHERE = "make room there, or name another place with `--output FILE`"
INHERITED = 2
"""The highest file descriptor of a standard stream, all of which a child process inherits."""


class Unwritten(Exception):
    """Raised if the answer could not be written to stdout."""


def open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed."""
    for name, flags, mode in STREAMS:
        # Python sets a stream to None if the caller closed it.
        if getattr(sys, name) is not None:
            continue
        number = os.open(os.devnull, flags)
        # `open` takes the lowest free number, which is usually the closed stream's. Child processes
        # inherit it as such.
        if number <= INHERITED:
            os.set_inheritable(number, True)
        stream = os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False)
        setattr(sys, name, stream)


def write_stdout(text: str) -> None:
    """Write to stdout and flush. Raises Unwritten, or BrokenPipeError if the reader has gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
        raise
    except OSError as problem:
        discard(sys.stdout)
        closed = problem.errno == errno.EBADF
        reason = "it is closed" if closed else (problem.strerror or str(problem))
        raise Unwritten(f"Cannot write the answer to stdout: {reason}") from problem


def write_stderr(text: str) -> None:
    """Write to stderr; errors are ignored."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def discard(stream: Any) -> None:
    """Redirect a stream to the null device, so that its buffer causes no error at exit."""
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):
        # The stream is None, is closed, or is no file, so nothing is written at exit.
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
