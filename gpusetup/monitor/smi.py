"""Samples from `nvidia-smi`, used if NVML cannot be loaded: one row of figures per GPU. Reads the
machine.

These samples contain neither processes nor the traffic of PCIe and NVLink.
"""

from __future__ import annotations

import sys
import time

from gpusetup.monitor.documents import Sample
from gpusetup.monitor.smi_logs import gpus_of, headings, rows_by_moment
from gpusetup.monitor.sources import SampleSource, SourceEnded, SourceName, utc_now
from gpusetup.probe.nvidia_smi import PROGRAM
from gpusetup.system.processes import StreamingChild
from gpusetup.system.system import HOLD_BACK, System

BASIC_FIELDS = (
    *("index", "name", "uuid", "utilization.gpu", "utilization.memory", "memory.used"),
    *("memory.total", "temperature.gpu", "power.draw", "power.limit", "clocks.sm"),
)
"""Fields that every driver of the last ten years knows."""
FIELDS = (
    *BASIC_FIELDS,
    *("power.default_limit", "power.max_limit", "clocks.max.sm", "clocks_throttle_reasons.active"),
    *("pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current"),
    *("pcie.link.width.max", "ecc.errors.uncorrected.volatile.total"),
)
"""Fields that are tried first. If the driver does not know one of them, nvidia-smi rejects the
whole query."""
FIRST_ANSWER_SECONDS = 10.0
"""Without persistence mode, a large node may take several seconds."""


def question(program: str, fields: tuple[str, ...], *options: str) -> tuple[str, ...]:
    """The command that prints these fields of every GPU as CSV."""
    # On Linux, nvidia-smi would load kernel modules and create device nodes; a query must not do
    # that.
    held_back = (sys.executable, "-I", "-S", HOLD_BACK) if sys.platform == "linux" else ()
    return (*held_back, program, f"--query-gpu={','.join(fields)}", "--format=csv", *options)


class NvidiaSmi(SampleSource):
    """Samples from an `nvidia-smi` process that keeps printing rows; a sample consists of one row
    per GPU."""

    name: SourceName = "nvidia-smi"

    def __init__(self, lines: StreamingChild, names: list[str], first: Sample) -> None:
        super().__init__()
        self._lines, self._names = lines, names
        # Each sample consists of this many rows, one per GPU.
        self._gpu_count = len(first.gpus)
        self._began = time.monotonic()
        self.first = first

    def read(self, timeout: float) -> Sample:
        deadline = time.monotonic() + timeout
        lines: list[str] = []
        while len(lines) < self._gpu_count:
            try:
                line = self._lines.next(deadline - time.monotonic())
            except EOFError as problem:
                raise SourceEnded(f"{PROGRAM}: {problem}") from problem
            # Skip the heading, which comes once, before the first row.
            if not headings(line):
                lines.append(line)
        return sample_of(self._names, lines, time.monotonic() - self._began)

    def close(self) -> None:
        self._lines.end()


def sample_of(names: list[str], lines: list[str], seconds: float) -> Sample:
    """A sample from the rows that nvidia-smi printed at one moment, this many seconds after the
    start."""
    rows = next(rows_by_moment(names, lines), {})
    # Use our own clock, because nvidia-smi's counts only whole seconds.
    return Sample(at=utc_now(), seconds=round(seconds, 3), gpus=gpus_of(rows))


LONGEST_REASON = 200
"""How many characters of nvidia-smi's error message are shown."""


def open_nvidia_smi(interval: float) -> NvidiaSmi:
    """The nvidia-smi source, which prints a sample every `interval` seconds. Raises SourceEnded if
    the program is missing or shows no GPU."""
    system = System()
    program = system.which(PROGRAM)
    if program is None:
        raise SourceEnded(f"{PROGRAM}: not found")
    fields: tuple[str, ...] = FIELDS
    answer = system.run(question(program, fields), FIRST_ANSWER_SECONDS)
    # If the query failed, ask only for the basic fields, because an old driver rejects fields that
    # it does not know.
    if answer.exit:
        fields = BASIC_FIELDS
        answer = system.run(question(program, fields), FIRST_ANSWER_SECONDS)
    if answer.problem:
        raise SourceEnded(f"{PROGRAM}: {answer.problem}")
    heading, *lines = answer.stdout.splitlines() or [""]
    names = headings(heading)
    first = sample_of(names, lines, 0.0) if names else None
    # Check the output too, because nvidia-smi exits with 0 even if it only printed an error.
    if first is None or not first.gpus:
        printed = answer.stdout or answer.stderr
        reason = printed.strip().splitlines() or ["no answer"]
        raise SourceEnded(f"{PROGRAM}: {reason[0][:LONGEST_REASON]}")
    milliseconds = max(1, round(interval * 1000))
    loop = f"--loop-ms={milliseconds}"
    child = StreamingChild(question(program, fields, loop))
    return NvidiaSmi(child, names, first)
