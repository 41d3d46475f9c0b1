"""Reads the list of processes at the end of nvidia-smi's table, with pure functions."""

from __future__ import annotations

import re

from gpusetup.model.machine import GpuProcess
from gpusetup.model.patterns import lazy
from gpusetup.readings.nvidia_smi import memory

HEADING = "Processes:"
# Since driver 450 there are two columns for MIG (GI, CI) between the GPU and the process id.
ROW = lazy(
    r"^\W{0,12}(?P<gpu>\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(?P<pid>\d{1,10})\s+"
    r"(?P<kind>C\+G|C|G|M\+C)\s+(?P<name>\S.{0,120}?)\s+(?P<memory>\d{1,8}\s?MiB|N/A)?\s*\|?$"
)


def processes_of(text: str) -> dict[int, tuple[GpuProcess, ...]] | None:
    """The processes of each GPU, by GPU number; None if the table has no list of processes.

    An empty list proves nothing, because nvidia-smi in a container does not see the host's
    processes.

    >>> table = "| Processes: |\\n|    0   N/A  N/A   4711   C   .../bin/python   6144MiB |"
    >>> processes_of(table)[0][0].name, processes_of(table)[0][0].memory_bytes >> 20
    ('.../bin/python', 6144)
    """
    _table, heading, listed = text.partition(HEADING)
    if not heading:
        return None
    by_gpu: dict[int, tuple[GpuProcess, ...]] = {}
    for line in listed.splitlines():
        if row := ROW.match(line):
            number = int(row["gpu"])
            by_gpu[number] = (*by_gpu.get(number, ()), _process(row))
    return by_gpu


def _process(row: re.Match[str]) -> GpuProcess:
    """The process in a row of nvidia-smi's table."""
    return GpuProcess(
        pid=int(row["pid"]),
        name=row["name"],
        kind=row["kind"],
        memory_bytes=memory(row["memory"]),
    )


def shows_computing(processes: tuple[GpuProcess, ...] | None) -> bool | None:
    """Whether one of a GPU's processes computes; None if the list does not tell.

    On Windows, desktop programs are also listed as C+G, so only a plain C or a Python process
    counts.

    >>> shows_computing((GpuProcess(kind="C", name="train"),)), shows_computing(())
    (True, None)
    >>> shows_computing((GpuProcess(kind="G", name="Xorg"),))
    False
    """
    if not processes:
        return None
    for process in processes:
        if process.kind == "C" or "python" in (process.name or "").lower():
            return True
    only_draws = all(process.kind == "G" for process in processes)
    return False if only_draws else None
