"""Whether a process that gives no answer waits for a core: on a busy machine it is slow, not hung.

On Linux only: elsewhere nobody tells the state of its threads, and it counts as hung.
"""

from __future__ import annotations

import os
from typing import List, Tuple

SHARE = 0.75
"""It waits for a core if its ready threads computed for less than this share of the time.

Linux gives each session of processes an equal part (autogroup): beside one other it is a half.
"""
READY = 0.5
"""It computes, or waits for a core, if on average so many threads are ready."""


class Cores:
    """What a process and its children got of the machine, from the first look to the last."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.seconds: List[float] = []
        self.ready: List[int] = []

    def look(self) -> None:
        """Note how many threads are ready to compute, and how long all have computed."""
        found = _family(self.pid)
        if found:
            self.seconds.append(sum(_seconds(pid) for pid in found))
            self.ready.append(sum(_ready(pid) for pid in found))

    def waited(self, passed: float) -> str:
        """How little it got in these seconds, as a clause; "" if it got what it could use."""
        if len(self.ready) < 2:
            return ""
        ready, used = sum(self.ready) / len(self.ready), self.seconds[-1] - self.seconds[0]
        if ready < READY or used >= SHARE * ready * passed:
            return ""
        return f"it had a core for {used:.0f} of {passed:.0f} s"


def _family(pid: int) -> List[int]:
    """A process and all that it started; of Linux."""
    found = [pid]
    for each in found:
        for _, text in _threads(each, "children"):
            found += [int(word) for word in text.split()]
    return found if _threads(pid, "stat") else []


def _threads(pid: int, name: str) -> List[Tuple[str, str]]:
    """A file of each thread that can be read."""
    texts = []
    folder = f"/proc/{pid}/task"
    try:
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/{name}", encoding="utf-8", errors="replace") as file:
                texts.append((thread, file.read()))
    except OSError:  # it has just ended, or this is no Linux
        pass
    return texts


def _seconds(pid: int) -> float:
    """Of the process, with the children that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def _ready(pid: int) -> int:
    return sum(text.rpartition(")")[2].split()[:1] == ["R"] for _, text in _threads(pid, "stat"))
