"""Samples of Intel GPUs from `xpu-smi dump`, which prints CSV rows with a header. Reads the
machine.

Source: the page "Dump" of Intel XPU Manager (intel.github.io/xpumanager, editions 1.2 and 2.0):
metrics 0 utilisation, 1 power, 2 frequency, 3 temperature, 18 memory used. The columns are found by
their headings, because their order follows the query and their units depend on the edition.
"""

from __future__ import annotations

import csv
import re
import sys
from functools import partial

from gpusetup.model.units import MIB
from gpusetup.monitor.documents import GpuSample
from gpusetup.monitor.polled import Polled
from gpusetup.monitor.sources import SourceEnded, SourceName
from gpusetup.system.system import HOLD_BACK, System

PROGRAM = "xpu-smi"
QUESTION = (PROGRAM, "dump", "-d", "-1", "-m", "0,1,2,3,18", "-n", "1")
QUESTION_OF_2 = (PROGRAM, "dump", "-d", "-1", "--metrics", "0,1,2,3,18", "--number", "1")
ANSWER_SECONDS = 10.0
"""xpu-smi initialises Level Zero again for each call, which takes time."""
COLUMNS = {
    "utilization_percent": r"GPU Utilization",
    "power_watts": r"GPU Power",
    "clock_sm_mhz": r"GPU Frequency",
    "temperature_celsius": r"GPU Core Temperature",
    "memory_used_bytes": r"GPU Memory Used",
}
"""Maps each field of a sample to the beginning of its column's heading."""


class XpuSmi(Polled):
    """Samples from `xpu-smi`, which is started for each sample and prints one row per GPU."""

    name: SourceName = "xpu-smi"


def open_xpu_smi(interval: float, system: System | None = None) -> XpuSmi:
    """The xpu-smi source. Raises SourceEnded if the program is missing or shows no GPU."""
    system = system or System()
    if system.which(PROGRAM) is None:
        raise SourceEnded(f"{PROGRAM}: not found")
    for words in (QUESTION, QUESTION_OF_2):
        output = system.run(held_back(words), ANSWER_SECONDS)
        gpus = gpus_of(output.stdout)
        if gpus:
            return XpuSmi(partial(ask, system, words), interval)
    reason = output.problem or (output.stderr or output.stdout).strip()[:200] or "no answer"
    raise SourceEnded(f"{PROGRAM}: {reason}")


def held_back(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command, wrapped so that it cannot load kernel modules; unchanged on systems other than
    Linux."""
    if sys.platform != "linux":
        return words
    return (sys.executable, "-I", "-S", HOLD_BACK, *words)


def ask(system: System, words: tuple[str, ...]) -> tuple[GpuSample, ...]:
    """The GPUs at this moment, from one run of xpu-smi; a GPU that does not respond is left out."""
    return gpus_of(system.run(held_back(words), ANSWER_SECONDS).stdout)


def gpus_of(text: str) -> tuple[GpuSample, ...]:
    """The GPUs in one output of xpu-smi; empty if it has no header.

    >>> rows = "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W)\\n06:14:46, 0, 97.5, 120"
    >>> gpus_of(rows)[0].utilization_percent, gpus_of(rows)[0].power_watts
    (97.5, 120.0)
    """
    rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    headings = next((row for row in rows if "DeviceId" in row), None)
    if headings is None:
        return ()
    gpus = []
    for row in rows[rows.index(headings) + 1 :]:
        index = row[headings.index("DeviceId")].strip() if len(row) == len(headings) else ""
        if index.isdecimal() and len(index) < 4:
            gpus.append(gpu_of_row(int(index), headings, row))
    return tuple(gpus)


def gpu_of_row(index: int, headings: list[str], row: list[str]) -> GpuSample:
    """The GPU in a row of the output; metrics that are not numbers, such as `N/A`, become None."""
    figures: dict[str, float] = {}
    for field, heading in COLUMNS.items():
        for name, text in zip(headings, row, strict=True):
            is_number = re.fullmatch(r"\s*\d{1,9}(\.\d{1,6})?\s*", text)
            if re.match(heading, name) and is_number:
                figures.setdefault(field, float(text))
    memory, clock = figures.get("memory_used_bytes"), figures.get("clock_sm_mhz")
    return GpuSample(
        index=index,
        name="Intel GPU",
        utilization_percent=figures.get("utilization_percent"),
        power_watts=figures.get("power_watts"),
        temperature_celsius=figures.get("temperature_celsius"),
        clock_sm_mhz=None if clock is None else round(clock),
        memory_used_bytes=None if memory is None else round(memory * MIB),
    )
