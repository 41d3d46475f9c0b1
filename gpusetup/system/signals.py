"""What a signal does: nothing, or what Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

ENDS = ("SIGTERM", "SIGHUP", "SIGBREAK")
"""Whoever ends us; the third is Windows' Ctrl-Break."""
ENDING_SIGNALS = tuple(getattr(signal, name) for name in ENDS if hasattr(signal, name))


@contextmanager
def handle_signals(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """These signals are handled so inside the block, if we may say so (the main thread)."""
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
    """No Ctrl-C inside the block."""
    return handle_signals(signal.SIG_IGN, signal.SIGINT, *ENDING_SIGNALS)


def interruptible() -> AbstractContextManager[None]:
    """Whoever ends us inside the block (a closed terminal, `kill`) ends us as Ctrl-C does."""
    return handle_signals(signal.default_int_handler, *ENDING_SIGNALS)


def endings_as_interrupt() -> AbstractContextManager[None]:
    """SIGTERM, and Windows' Ctrl-Break, end us and every child as Ctrl-C does."""
    return handle_signals(
        signal.default_int_handler,
        *(number for number in ENDING_SIGNALS if number.name != "SIGHUP"),
    )
