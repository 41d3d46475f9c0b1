"""Checks that wait for a compiler: in a second process, beside the census, which needs one core."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any, Dict, Optional, Sequence, Tuple

from .child import Child
from .values import Asked, Check

LEAST = 19
"""The lowest priority of POSIX."""


def has_a_core_to_spare() -> bool:
    """Whether two processes can compute at a time here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1


class Alongside:
    """The second process: one check after the other, and what each answered."""

    def __init__(self, verbose: bool, asked: Asked) -> None:
        self.asked = asked
        self.child = Child(verbose, asked)
        self.done: Dict[str, threading.Event] = {}
        """Of each check that has begun, or will without being asked for."""
        self.answers: Dict[str, Dict[str, Any]] = {}

    def chosen(self, checks: Sequence[Check], device: str) -> Tuple[Check, ...]:
        """Those of a device's checks that are better run alongside others of them."""
        census = any(check.samples_seconds for check in checks)
        if device != "cpu" or self.asked.only or not census or not has_a_core_to_spare():
            return ()
        return tuple(check for check in checks if check.alongside)

    def begin(self, checks: Sequence[Check], seconds_left: float) -> None:
        """Run them on the CPU, each for its limit and all for what is left of the time at most."""
        if not checks:
            return
        self.done = {check.name: threading.Event() for check in checks}
        until = time.monotonic() + seconds_left

        def ask() -> None:
            try:
                for check in checks:
                    limit = min(check.limit_seconds, max(1.0, until - time.monotonic()))
                    self.answers[check.name] = self.child.ask(check.name, "cpu", limit)
                    self.done[check.name].set()
            finally:
                self.child.end()
                for each in self.done.values():
                    each.set()

        # On Linux the kernel ends a child with the thread that started it: this one, not the new.
        self.child.start()
        self._give_way()
        threading.Thread(target=ask, daemon=True).start()

    def _give_way(self) -> None:
        """It takes what the others leave: two threads that share a sum wait for the slower one."""
        assert self.child.process is not None
        with contextlib.suppress(OSError, AttributeError):  # the latter on Windows
            os.setpriority(os.PRIO_PROCESS, self.child.process.pid, LEAST)

    def answer(self, name: str, device: str) -> Optional[Dict[str, Any]]:
        """What the check answers, waited for, its own limit at most; None where it never began."""
        if device != "cpu" or name not in self.done:
            return None
        while not self.done[name].wait(timeout=0.5):  # a signal is heard in between
            pass
        return self.answers.get(name)

    def end(self) -> None:
        self.child.end()
