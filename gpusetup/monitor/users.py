"""Whose the processes on GPUs are, what they were started as, and how much CPU they use. Edge."""

from __future__ import annotations

import time
from typing import Any

import psutil

from gpusetup.monitor.host import asked
from gpusetup.monitor.values import ProcessUse, Sample

MOST = 64


class Users:
    """Asks psutil about the pids that GPUs name. In a container they are the host's, and another
    process may have that number here: what is called otherwise than NVML says is left out."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process | None] = {}
        self._told: dict[int, tuple[str, str]] = {}
        self._cpu: dict[int, tuple[float, float]] = {}

    def rows(self, sample: Sample) -> list[dict[str, Any]]:
        """A row for each GPU and process, the heaviest first."""
        pairs = [(gpu.label, one) for gpu in sample.gpus for one in gpu.processes or ()]
        pairs.sort(key=lambda pair: -(pair[1].memory_bytes or 0))
        now, use = time.monotonic(), {}
        for _, one in pairs[:MOST]:
            if one.pid not in use:
                use[one.pid] = self._cpu_percent(one, now)
        return [self._row(label, one, use.get(one.pid)) for label, one in pairs]

    def _row(self, gpu: str, one: ProcessUse, cpu: float | None) -> dict[str, Any]:
        user, command = self._told.get(one.pid, ("", one.name or ""))
        return {
            "gpu": gpu,
            "pid": one.pid,
            "user": user,
            "memory_bytes": one.memory_bytes,
            "sm_percent": one.sm_percent,
            "cpu_percent": cpu,
            "command": command,
        }

    def _cpu_percent(self, one: ProcessUse, now: float) -> float | None:
        process = self._process(one)
        if process is None:
            return None
        times = asked(process.cpu_times)
        if times is None:
            self._known[one.pid] = None
            return None
        spent = times.user + times.system
        at, before = self._cpu.get(one.pid, (now, spent))
        self._cpu[one.pid] = (now, spent)
        return max(0.0, spent - before) / (now - at) * 100 if now > at else None

    def _process(self, one: ProcessUse) -> psutil.Process | None:
        if one.pid not in self._known:
            if len(self._known) > MOST * 8:
                self._known.clear()
            self._known[one.pid] = asked(self._asked, one)
        return self._known[one.pid]

    def _asked(self, one: ProcessUse) -> psutil.Process | None:
        process = psutil.Process(one.pid)
        command = " ".join(process.cmdline()) or process.name()
        if one.name and not _alike(one.name, command, process.name()):
            return None
        self._told[one.pid] = (process.username(), command)
        return process


def _alike(told: str, command: str, name: str) -> bool:
    """
    >>> _alike("/usr/bin/python3", "python3 train.py", "python3"), _alike("Xorg", "bash", "bash")
    (True, False)
    """
    last = told.replace("\\", "/").rpartition("/")[2].partition(" ")[0]
    return bool(last) and (last[:12] in command or name[:12] in told)
