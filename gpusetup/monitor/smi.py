"""`nvidia-smi --query-gpu=… --format=csv,noheader -lms` as samples, where NVML is missing.

The parsing is pure; `Smi` at the end runs the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from gpusetup.monitor.source import SourceEnded
from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.probe.patience import Patience
from gpusetup.readings.nvidia_smi import values
from gpusetup.readings.nvidia_smi.csv import refused_field
from gpusetup.system.processes import Lines
from gpusetup.system.system import System, held_back

# The column of nvidia-smi, the field of a sample, how its cell is read.
COLUMNS: tuple[tuple[str, str, Callable[[str | None], Any]], ...] = (
    ("index", "index", values.integer),
    ("name", "name", values.cell),
    ("uuid", "uuid", values.cell),
    ("utilization.gpu", "utilization_percent", values.integer),
    ("utilization.memory", "memory_busy_percent", values.integer),
    ("memory.used", "memory_used_bytes", values.memory),
    ("memory.total", "memory_total_bytes", values.memory),
    ("temperature.gpu", "temperature_celsius", values.integer),
    ("power.draw", "power_watts", values.number),
    ("power.limit", "power_limit_watts", values.number),
    ("clocks.sm", "clock_sm_mhz", values.integer),
    ("clocks.max.sm", "clock_sm_max_mhz", values.integer),
    ("clocks.mem", "clock_memory_mhz", values.integer),
    ("clocks_throttle_reasons.active", "throttle_reasons", values.throttle_mask),
)
FIELDS = tuple(column for column, _, _ in COLUMNS)
READ = {column: (field, read) for column, field, read in COLUMNS}


def query(program: str, fields: Sequence[str]) -> tuple[str, ...]:
    return (program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader")


def refused(text: str, fields: Sequence[str]) -> str | None:
    """The field that this nvidia-smi does not know, where it is one that we asked for."""
    field = refused_field(text)
    return field if field in fields else None


def parse(text: str, fields: Sequence[str]) -> tuple[GpuSample, ...]:
    """One GPU a line; lines that are none are left out.

    >>> parse("0, NVIDIA L4, GPU-1, 97 %, [N/A]", FIELDS[:5])[0].utilization_percent
    97
    >>> parse("1, [GPU is lost], GPU-2", FIELDS[:3])[0].lost
    True
    """
    rows = (_row(line, fields) for line in text.splitlines())
    return tuple(row for row in rows if row is not None)


def complaint(text: str, exit_code: int | None) -> str:
    """Why there was no GPU in it, in nvidia-smi's own words."""
    said = " ".join(text.split())
    return said[:200] or f"exit {exit_code}"


def _row(line: str, fields: Sequence[str]) -> GpuSample | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(fields) or not cells[0].isdecimal():
        return None
    known = {
        field: value
        for column, cell in zip(fields, cells, strict=True)
        for field, read in (READ[column],)
        if (value := read(cell)) is not None
    }
    lost = any(values.says_lost(cell) for cell in cells)
    return GpuSample(**known, lost=lost, problem="GPU is lost" if lost else None)


class Smi:
    """`nvidia-smi --query-gpu=… -lms`: one line a GPU and sample; processes are not told."""

    name = "nvidia-smi"

    def __init__(self, program: str, interval: float) -> None:
        self._program = program
        self._milliseconds = max(1, round(interval * 1000))
        self._system = System()
        self._fields: tuple[str, ...] = FIELDS
        self._places: frozenset[int] | None = None
        self._lines: Lines | None = None
        self._began = time.monotonic()
        self.gpus: tuple[GpuSample, ...] = ()

    def open(self, patience: Patience) -> None:
        with patience.waiting_for(self.name):
            self.gpus = self._asked_once(patience)
        if not self.gpus:
            raise SourceEnded(self.name, "lists no GPU")

    def _asked_once(self, patience: Patience) -> tuple[GpuSample, ...]:
        """The first answer, without the fields that this nvidia-smi does not know."""
        for _ in FIELDS:
            argv = query(self._program, self._fields)
            said = self._system.run(argv, patience.left())
            if said.problem:
                raise SourceEnded(self.name, said.problem)
            unknown = refused(said.stdout + said.stderr, self._fields)
            if unknown is None:
                rows = parse(said.stdout, self._fields)
                if not rows:
                    raise SourceEnded(self.name, complaint(said.stdout + said.stderr, said.exit))
                return rows
            self._fields = tuple(field for field in self._fields if field != unknown)
        raise SourceEnded(self.name, "knows none of the fields")

    def choose(self, places: Sequence[int]) -> None:
        self._places = frozenset(places)
        self._began = time.monotonic()
        argv = query(self._program, self._fields)
        self._lines = Lines(held_back((*argv, "-lms", str(self._milliseconds))))

    def next(self, timeout: float) -> Sample:
        """As many lines as there are GPUs."""
        assert self._lines is not None and self._places is not None
        until = time.monotonic() + timeout
        rows: list[GpuSample] = []
        while len(rows) < len(self.gpus):
            try:
                line = self._lines.next(until - time.monotonic())
            except EOFError as problem:
                raise SourceEnded(self.name, str(problem)) from problem
            rows += parse(line, self._fields)
        chosen = tuple(row for place, row in enumerate(rows) if place in self._places)
        seconds = round(time.monotonic() - self._began, 3)
        return Sample(at=in_words(time.time()), seconds=seconds, gpus=chosen)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.end()


def found(interval: float) -> Smi:
    """Raises SourceEnded where there is no nvidia-smi."""
    program = System().which("nvidia-smi")
    if program is None:
        raise SourceEnded("nvidia-smi", "no such program")
    return Smi(program, interval)


def in_words(now: float) -> str:
    """UTC with milliseconds.

    >>> in_words(0.25)
    '1970-01-01T00:00:00.250Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
