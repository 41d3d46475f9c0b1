"""A check that begins before its turn, in a process of its own, beside those that compute."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, Iterable, Optional, Sequence

from .child import Child
from .values import Asked, Check


def has_a_core_to_spare() -> bool:
    """Whether two processes can compute at a time here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1


class Early:
    """The checks that began early, each by name, and what they answered."""

    def __init__(self, verbose: bool, asked: Asked) -> None:
        self.verbose = verbose
        self.asked = asked
        self.children: Dict[str, Child] = {}
        self.threads: Dict[str, threading.Thread] = {}
        self.answers: Dict[str, Dict[str, Any]] = {}

    def begin(self, checks: Sequence[Check], passed: Iterable[str], seconds_left: float) -> None:
        """Begin, on the CPU, those whose turn comes later and whose needs have passed already."""
        if self.asked.only or not has_a_core_to_spare():
            return
        names = {check.name for check in checks}
        for check in checks:
            ready = names.intersection(check.needs).issubset(passed)
            if check.early and ready and check.name not in self.children:
                self._begin(check, min(check.limit_seconds, max(1.0, seconds_left)))

    def _begin(self, check: Check, limit_seconds: float) -> None:
        child = Child(self.verbose, self.asked)

        def ask() -> None:
            self.answers[check.name] = child.ask(check.name, "cpu", limit_seconds)
            child.end()

        # On Linux the kernel ends a child with the thread that started it: this one, not the new.
        child.start()
        self.children[check.name] = child
        self.threads[check.name] = threading.Thread(target=ask, daemon=True)
        self.threads[check.name].start()

    def answer(self, name: str, device: str) -> Optional[Dict[str, Any]]:
        """What the check answers, waited for, its own limit at most; None where it never began."""
        if device != "cpu" or name not in self.threads:
            return None
        while self.threads[name].is_alive():
            self.threads[name].join(timeout=0.5)  # a signal is heard in between
        return self.answers.get(name)

    def end(self) -> None:
        for child in self.children.values():
            child.end()
