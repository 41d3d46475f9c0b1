"""The streams of this process: what stands in for a closed one, and what a failed write says.

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
    """The answer did not reach stdout."""


def complete() -> None:
    """Put something in place of each stream that the caller has closed, for our children too."""
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
    """Write to stdout, at once. Raises Unwritten; BrokenPipeError where the reader has gone."""
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
    """Write to stderr; where that fails nobody is told."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)


def drop(stream: Any) -> None:
    """From here on what is written there goes nowhere: what is left does not fail at the end."""
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
