"""How long the driver is waited for: one limit for all that is asked, a word when it is late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Notify = Callable[[str], None]
LIMIT_SECONDS = 30.0
"""A big node without persistence mode may need it."""
NOTICE_SECONDS = 3.0
NOTICE = "waiting for {sources}: up to {limit:g} s (`--timeout` changes it)"


class Patience:
    """A deadline that several questions share. `notify` hears once whom we wait for."""

    def __init__(self, limit: float = LIMIT_SECONDS, notify: Notify | None = None) -> None:
        self.limit = limit
        self._until = time.monotonic() + limit
        self._notify = notify
        self._pending: list[str] = []

    def left(self) -> float:
        """The seconds that are left; 0 where it is over."""
        return max(0.0, self._until - time.monotonic())

    @contextmanager
    def waiting_for(self, source: str) -> Iterator[None]:
        """Say so where what is asked within takes more than some seconds."""
        import threading

        self._pending.append(source)
        timer = threading.Timer(NOTICE_SECONDS, self._say)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._pending.remove(source)

    def _say(self) -> None:
        notify, pending = self._notify, tuple(self._pending)
        if notify is not None and pending:
            self._notify = None
            notify(NOTICE.format(sources=" and ".join(pending), limit=self.limit))


def place_of(step: Mapping[str, Any] | None) -> str | None:
    """The call at which a child stopped, in words.

    >>> place_of({"step": "nvmlDeviceGetMemoryInfo", "gpu": 1}), place_of({"step": "cuInit"})
    ('in nvmlDeviceGetMemoryInfo of GPU 1', 'in cuInit')
    """
    if not step:
        return None
    bus = f" ({step['bus']})" if step.get("bus") else ""
    gpu = f" of GPU {step['gpu']}{bus}" if step.get("gpu") is not None else ""
    return f"in {step['step']}{gpu}"
