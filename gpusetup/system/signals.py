"""Signal handling: inside a block, signals are ignored or act like Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

ENDS = ("SIGTERM", "SIGHUP", "SIGBREAK")
"""Signals that end a program; the third one is Windows' Ctrl-Break."""
ENDING_SIGNALS = tuple(getattr(signal, name) for name in ENDS if hasattr(signal, name))


@contextmanager
def handle_signals(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """Let a handler receive these signals inside the block.

    Python lets only the main thread set handlers, so in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = [(number, signal.signal(number, handler)) for number in signals]
    try:
        yield
    finally:
        for number, previous_handler in previous:
            signal.signal(number, previous_handler)


def uninterrupted() -> AbstractContextManager[None]:
    """Ignore Ctrl-C, and every other signal that would end gpusetup, inside the block."""
    return handle_signals(signal.SIG_IGN, signal.SIGINT, *ENDING_SIGNALS)


def interruptible() -> AbstractContextManager[None]:
    """Make a closed terminal and `kill` end the block in the same way as Ctrl-C."""
    return handle_signals(signal.default_int_handler, *ENDING_SIGNALS)


def endings_as_interrupt() -> AbstractContextManager[None]:
    """Make SIGTERM and Windows' Ctrl-Break end gpusetup and its children just like Ctrl-C."""
    # Leave SIGHUP out, because a program may go on after it (nohup, a closed ssh connection).
    endings = [number for number in ENDING_SIGNALS if number.name != "SIGHUP"]
    return handle_signals(signal.default_int_handler, *endings)
