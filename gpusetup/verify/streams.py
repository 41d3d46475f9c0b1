"""The standard streams of this process: replacements for closed ones, and errors of writing.

Here, below everything else, because the folder runs without the package above it.
"""

import errno
import os
import sys
from typing import Any

STREAMS = (
    ("stdin", os.O_RDONLY, "r"),
    ("stdout", os.O_RDONLY, "w"),
    ("stderr", os.O_WRONLY, "w"),
)
"""Name, how the null device is opened in its place, and as what. Nobody hears what is said on a
closed stderr; an answer for a closed stdout is lost, so that each write there fails."""
ELSEWHERE = "make room there, or name another place with `--output FILE`"
INHERITED = 2
"""The last number of a stream that a child takes over."""


class Unwritten(Exception):
    """Raised if the answer could not be written to stdout."""


def complete() -> None:
    """Replace each standard stream that the caller has closed with the null device, also for child
    processes."""
    for name, flags, mode in STREAMS:
        # The caller left it open.
        if getattr(sys, name) is not None:
            continue
        number = os.open(os.devnull, flags)
        # A child would otherwise miss its own stream.
        if number <= INHERITED:
            os.set_inheritable(number, True)
        stream = os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False)
        setattr(sys, name, stream)


def put(text: str) -> None:
    """Write to stdout and flush. Raises Unwritten, or BrokenPipeError if the reader has gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        raise
    except OSError as problem:
        drop(sys.stdout)
        closed = problem.errno == errno.EBADF
        reason = "it is closed" if closed else problem.strerror or str(problem)
        raise Unwritten(f"Cannot write the answer to stdout: {reason}") from problem


def say(text: str) -> None:
    """Write to stderr; errors are ignored."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)


def drop(stream: Any) -> None:
    """Redirect a stream to the null device, so that data left in its buffer causes no error at
    exit."""
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
