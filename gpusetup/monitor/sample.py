"""Where samples come from: NVML in a child of ours.

Edge. A child that hangs, crashes or was never there is a `SourceEnded` with its reason; we do not
hang with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen, fields, replace
from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.probe.patience import Patience
from gpusetup.readings.measures import LIMITS, wrong_in
from gpusetup.system.processes import Lines, no_answer_in

PATIENCE_SECONDS = 10.0
"""How long a sample may be late before NVML is given up, where nobody says."""
FORBIDDEN = (4, 17)
"""NVML: no permission, blocked by the operating system."""


class SourceEnded(Exception):
    """NVML gives no more samples; the text says why.

    `blocked`: it does not answer in time, or this or something else is in the way.
    """

    def __init__(self, problem: str, *, blocked: bool = False) -> None:
        super().__init__(f"NVML: {problem}")
        self.blocked = blocked


class Hello(Frozen):
    init: int | None
    message: str = ""
    driver_version: str | None = None
    gpus: tuple[GpuSample, ...] = ()


class Nvml:
    """The child `child_scripts/watch_nvml.py`, which prints one line a sample."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.gpus: tuple[GpuSample, ...] = ()

    def choose(self, places: Sequence[int]) -> None:
        self._lines.tell(json.dumps(list(places)))

    def next(self, timeout: float) -> Sample:
        said = from_json(self.line(timeout), Sample, what="a sample of watch_nvml")
        return replace(said, gpus=tuple(map(measured, said.gpus)))

    def close(self) -> None:
        self._lines.end()

    def line(self, timeout: float) -> str:
        """The next answer. Raises TimeoutError if none comes in time."""
        said, until = list[str](), time.monotonic() + timeout
        while True:
            try:
                line = self._lines.next(until - time.monotonic())
            except EOFError as problem:
                raise SourceEnded(": ".join((str(problem), *said[-1:]))) from problem
            if line.startswith(ANSWERS):
                return line
            said.append(line)


ANSWERS = ('{"init"', '{"at"')
"""How the lines of `watch_nvml` begin; anything else was printed by a library."""


def measured(gpu: GpuSample) -> GpuSample:
    """A sample without what cannot be: that is a trouble, and no measurement."""
    wrong = wrong_in({field: getattr(gpu, field) for field in SAMPLED})
    if not wrong:
        return gpu
    said = ", ".join(f"{field} is not plausible" for field in wrong)
    return replace(gpu, problem=gpu.problem or said, **dict.fromkeys(wrong))


SAMPLED = tuple(part.name for part in fields(GpuSample) if part.name in LIMITS)


def opened(lines: Lines, patience: Patience) -> Nvml:
    """NVML by the child that `start_nvml` started. Raises SourceEnded if it does not answer."""
    source = Nvml(lines)
    try:
        with patience.waiting_for("NVML"):
            said = source.line(patience.left())
        hello = from_json(said, Hello, what="the answer of watch_nvml")
        if hello.init != 0:
            raise SourceEnded(hello.message, blocked=hello.init in FORBIDDEN)
        if not hello.gpus:
            raise SourceEnded("lists no GPU")
    except TimeoutError as problem:
        source.close()
        raise SourceEnded(no_answer_in(patience.limit), blocked=True) from problem
    except BaseException:
        source.close()
        raise
    source.gpus = hello.gpus
    return source
