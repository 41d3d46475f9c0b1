"""What a signal does: nothing, or what Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

ENDS = ("SIGTERM", "SIGHUP", "SIGBREAK")
"""Whoever ends us; the third is Windows' Ctrl-Break."""
ENDING = tuple(getattr(signal, name) for name in ENDS if hasattr(signal, name))


@contextmanager
def handled(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """These signals are handled so inside the block, where we may say so (the main thread)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(one, signal.signal(one, handler)) for one in signals]
    try:
        yield
    finally:
        for one, former in before:
            signal.signal(one, former)


def uninterrupted() -> AbstractContextManager[None]:
    """No Ctrl-C inside the block."""
    return handled(signal.SIG_IGN, signal.SIGINT, *ENDING)


def interruptible() -> AbstractContextManager[None]:
    """Whoever ends us inside the block (a closed terminal, `kill`) ends us as Ctrl-C does."""
    return handled(signal.default_int_handler, *ENDING)


def endings_as_interrupt() -> AbstractContextManager[None]:
    """SIGTERM, and Windows' Ctrl-Break, end us and every child as Ctrl-C does."""
    return handled(signal.default_int_handler, *(one for one in ENDING if one.name != "SIGHUP"))
