"""Samples that a child process reads from NVML. Reads the machine.

If the child hangs, crashes or cannot start, `SourceEnded` gives the reason. The monitor itself
cannot hang in NVML.
"""

from __future__ import annotations

import json
import time

from gpusetup.model.codec import from_json
from gpusetup.monitor.documents import Sample
from gpusetup.monitor.sources import SampleSource, SourceEnded, SourceName
from gpusetup.probe.deadline import Deadline
from gpusetup.system.processes import StreamingChild, no_answer_in

FORBIDDEN = (4, 17)
"""NVML's error codes for "no permission" and "blocked by the operating system"."""
FAILED, SAMPLE = '{"init"', '{"at"'
"""How the lines of `read_nvml` begin. Any other line was printed by a library."""


class Nvml(SampleSource):
    """The samples that the child process `child_scripts/read_nvml.py` prints, one per line."""

    name: SourceName = "nvml"

    def __init__(self, lines: StreamingChild) -> None:
        super().__init__()
        self._lines = lines

    def read(self, timeout: float) -> Sample:
        last_line, deadline = "", time.monotonic() + timeout
        while True:
            remaining = deadline - time.monotonic()
            try:
                line = self._lines.next(remaining)
            except EOFError as problem:
                # The last line that a library printed often says why the child ended.
                reasons = [reason for reason in (str(problem), last_line) if reason]
                raise SourceEnded(f"NVML: {': '.join(reasons)}") from problem
            if line.startswith(FAILED):
                failure = json.loads(line)
                # NVML's own message for a missing library begins with "NVML".
                message = failure["message"].removeprefix("NVML ")
                raise SourceEnded(f"NVML: {message}", blocked=failure["init"] in FORBIDDEN)
            if line.startswith(SAMPLE):
                return from_json(line, Sample, what="a sample of read_nvml")
            last_line = line

    def close(self) -> None:
        self._lines.end()


def open_nvml(lines: StreamingChild, deadline: Deadline) -> Nvml:
    """The NVML source of samples, read from this child's output. Raises SourceEnded if the child
    does not respond or lists no GPU."""
    source = Nvml(lines)
    try:
        with deadline.waiting_for("NVML"):
            source.first = source.next(deadline.left())
        if not source.first.gpus:
            raise SourceEnded("NVML: lists no GPU")
    except TimeoutError as problem:
        source.close()
        raise SourceEnded(f"NVML: {no_answer_in(deadline.limit)}", blocked=True) from problem
    except BaseException:
        source.close()
        raise
    return source
