"""Whose the processes on GPUs are, what they were started as, and how much CPU they use. Edge."""

from __future__ import annotations

import time
from typing import Any

import psutil

from gpusetup.monitor.host import asked
from gpusetup.monitor.values import ProcessUse, Sample

MOST = 64


class User:
    """A process on a GPU, as psutil sees it."""

    def __init__(self, one: ProcessUse) -> None:
        self._process = psutil.Process(one.pid)
        name = self._process.name()
        self.command = " ".join(self._process.cmdline()) or name
        if one.name and not _alike(one.name, self.command, name):
            raise psutil.NoSuchProcess(one.pid)
        self.name = self._process.username()
        self._at, self._spent = 0.0, 0.0
        self.cpu_percent: float | None = None

    def measure(self, now: float) -> None:
        """Its CPU since the moment before; it may be on several GPUs."""
        if now <= self._at:
            return
        times = asked(self._process.cpu_times)
        spent = times.user + times.system if times else 0.0
        used = max(0.0, spent - self._spent) / (now - self._at) * 100
        self.cpu_percent = used if times and self._at else None
        self._at, self._spent = now, spent


class Users:
    """Asks psutil about the pids that GPUs name. In a container they are the host's, and another
    process may have that number here: what is called otherwise than NVML says is left out."""

    def __init__(self) -> None:
        self._known: dict[int, User | None] = {}

    def rows(self, sample: Sample) -> list[dict[str, Any]]:
        """A row for each GPU and process, the heaviest first."""
        pairs = [(gpu.label, one) for gpu in sample.gpus for one in gpu.processes or ()]
        pairs.sort(key=lambda pair: -(pair[1].memory_bytes or 0))
        now = time.monotonic()
        if len(self._known) > MOST * 8:
            self._known.clear()
        rows = enumerate(pairs)
        return [self._row(label, one, now if n < MOST else 0.0) for n, (label, one) in rows]

    def _row(self, gpu: str, one: ProcessUse, now: float) -> dict[str, Any]:
        if one.pid not in self._known and now:
            self._known[one.pid] = asked(User, one)
        user = self._known.get(one.pid)
        if user:
            user.measure(now)
        return {
            "gpu": gpu,
            "pid": one.pid,
            "user": user.name if user else "",
            "memory_bytes": one.memory_bytes,
            "sm_percent": one.sm_percent,
            "cpu_percent": user.cpu_percent if user else None,
            "command": user.command if user else one.name or "",
        }


def _alike(told: str, command: str, name: str) -> bool:
    """
    >>> _alike("/usr/bin/python3", "python3 train.py", "python3"), _alike("Xorg", "bash", "bash")
    (True, False)
    """
    last = told.replace("\\", "/").rpartition("/")[2].partition(" ")[0]
    return bool(last) and (last[:12] in command or name[:12] in told)
