"""Samples of NVML, from a child of ours, and which of its GPUs are watched.

Edge. A child that hangs, crashes or was never there is a `SourceEnded` with its reason; we do not
hang with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from gpusetup.errors import UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import fields, replace
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.probe.deadline import Deadline
from gpusetup.readings.plausibility import LIMITS, implausible
from gpusetup.system.processes import StreamingChild, no_answer_in

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


class Nvml:
    """The child `child_scripts/read_nvml.py`, which prints one line a sample."""

    def __init__(self, lines: StreamingChild) -> None:
        self._lines = lines
        self.first: Sample | None = None
        """What was read to see whether there is a GPU; it is the first answer of `next`."""
        self.places: Sequence[int] | None = None
        """Which of the GPUs are watched; None: all."""

    def next(self, timeout: float) -> Sample:
        """The next sample. Raises TimeoutError if none comes in time, SourceEnded at the end."""
        sample, self.first = self.first or self._read(timeout), None
        places = range(len(sample.gpus)) if self.places is None else self.places
        return replace(sample, gpus=tuple(plausible(sample.gpus[place]) for place in places))

    def _read(self, timeout: float) -> Sample:
        last_line, deadline = "", time.monotonic() + timeout
        while True:
            try:
                line = self._lines.next(deadline - time.monotonic())
            except EOFError as problem:
                raise SourceEnded(": ".join(filter(None, (str(problem), last_line)))) from problem
            if line.startswith(FAILED):
                failure = json.loads(line)
                raise SourceEnded(failure["message"], blocked=failure["init"] in FORBIDDEN)
            if line.startswith(SAMPLE):
                return from_json(line, Sample, what="a sample of read_nvml")
            last_line = line

    def close(self) -> None:
        self._lines.end()


FAILED, SAMPLE = '{"init"', '{"at"'
"""How the lines of `read_nvml` begin; anything else was printed by a library."""


def plausible(gpu: GpuSample) -> GpuSample:
    """A sample without what cannot be: that is a trouble, and no measurement."""
    wrong = implausible({field: getattr(gpu, field) for field in CHECKED_FIELDS})
    if not wrong:
        return gpu
    problem = ", ".join(f"{field} is not plausible" for field in wrong)
    return replace(gpu, problem=gpu.problem or problem, **dict.fromkeys(wrong))


CHECKED_FIELDS = tuple(part.name for part in fields(GpuSample) if part.name in LIMITS)


def open_nvml(lines: StreamingChild, deadline: Deadline) -> Nvml:
    """NVML by the child that `start_nvml` started. Raises SourceEnded if it does not answer."""
    source = Nvml(lines)
    try:
        with deadline.waiting_for("NVML"):
            source.first = source.next(deadline.left())
        if not source.first.gpus:
            raise SourceEnded("lists no GPU")
    except TimeoutError as problem:
        source.close()
        raise SourceEnded(no_answer_in(deadline.limit), blocked=True) from problem
    except BaseException:
        source.close()
        raise
    return source


VARIABLE = "CUDA_VISIBLE_DEVICES"
SHORTEST = len("GPU-")
"""A beginning of a UUID is longer."""


def named_places(names: Sequence[str], gpus: Sequence[GpuSample]) -> tuple[int, ...]:
    """The places of the GPUs with these indexes, or beginnings of UUIDs.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-ab"))
    >>> named_places(("1", "gpu-aa", "1"), two)
    (1, 0)
    """
    places = []
    for name in names:
        start = name.lower() if len(name) > SHORTEST else "none"
        matching = [
            place
            for place, gpu in enumerate(gpus)
            if name == str(gpu.index) or (gpu.uuid or "").lower().startswith(start)
        ]
        if len(matching) != 1:
            known = ", ".join(f"{gpu.index} ({gpu.uuid or 'UUID unknown'})" for gpu in gpus)
            problem = "Several GPUs are" if matching else "No GPU is"
            raise UsageError(f"{problem} called {name!r}", hint=f"there are: {known}")
        places += matching
    return tuple(dict.fromkeys(places))


def visible_places(
    variable: str, gpus: Sequence[GpuSample], *, pci_order: bool
) -> tuple[tuple[int, ...] | None, str]:
    """The places that the variable leaves, None if that is not known, and a word about it.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-bb"))
    >>> visible_places("1", two, pci_order=True)
    ((1,), 'CUDA_VISIBLE_DEVICES=1: watching GPU 1')
    """
    setting, names = f"{VARIABLE}={variable}", [*filter(None, map(str.strip, variable.split(",")))]
    mixed = len({gpu.name for gpu in gpus}) > 1
    if any(map(str.isdecimal, names)) and mixed and not pci_order:
        return None, f"{setting} counts in CUDA's order, unknown here: watching every GPU"
    try:
        places = named_places(names, gpus)
    except UsageError:
        places = ()
    if not places:
        return None, f"{setting} names no GPU here, so the monitor watches every GPU"
    labels = ", ".join(str(gpus[place].index) for place in places)
    return places, f"{setting}: watching GPU {labels}"
