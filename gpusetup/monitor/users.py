"""Whose the processes on GPUs are, what they were started as, and how much CPU they use. Edge."""

from __future__ import annotations

from typing import Any

import psutil

from gpusetup.monitor.host import asked
from gpusetup.monitor.values import ProcessUse, Sample

MOST = 64


class Users:
    """Asks psutil about the pids that GPUs name. In a container they are the host's, and another
    process may have that number here: what is called otherwise than NVML says is left out."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[psutil.Process, str, str] | None] = {}

    def rows(self, sample: Sample) -> list[dict[str, Any]]:
        """A row for each GPU and process, the heaviest first."""
        pairs = [(gpu.label, one) for gpu in sample.gpus for one in gpu.processes or ()]
        pairs.sort(key=lambda pair: -(pair[1].memory_bytes or 0))
        self._known = {one.pid: self._known.get(one.pid) or asked(_user, one)
                       for _, one in pairs[:MOST]}  # fmt: skip
        # A process may be on several GPUs: its CPU is asked once a sample.
        cpu = {pid: asked(user[0].cpu_percent) for pid, user in self._known.items() if user}
        return [self._row(label, one, cpu.get(one.pid)) for label, one in pairs]

    def _row(self, gpu: str, one: ProcessUse, cpu_percent: float | None) -> dict[str, Any]:
        _, user, command = self._known.get(one.pid) or (None, "", one.name or "")
        return {
            "gpu": gpu,
            "pid": one.pid,
            "user": user,
            "memory_bytes": one.memory_bytes,
            "sm_percent": one.sm_percent,
            "cpu_percent": cpu_percent,
            "command": command,
        }


def _user(one: ProcessUse) -> tuple[psutil.Process, str, str]:
    process = psutil.Process(one.pid)
    name = process.name()
    command = " ".join(process.cmdline()) or name
    if one.name and not _alike(one.name, command, name):
        raise psutil.NoSuchProcess(one.pid)
    return process, process.username(), command


def _alike(told: str, command: str, name: str) -> bool:
    """
    >>> _alike("/usr/bin/python3", "python3 train.py", "python3"), _alike("Xorg", "bash", "bash")
    (True, False)
    """
    last = told.replace("\\", "/").rpartition("/")[2].partition(" ")[0]
    return bool(last) and (last[:12] in command or name[:12] in told)
