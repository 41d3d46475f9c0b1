"""The base classes of the sources of samples, and which GPUs are watched.

NVML tells most (`nvml.py`), `nvidia-smi` less (`smi.py`); without either the machine remains.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Literal

from gpusetup.errors import UsageError
from gpusetup.model.frozen import fields, replace
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.readings.plausibility import LIMITS, implausible

PATIENCE_SECONDS = 10.0
"""How long a sample may be late before the source is given up, where nobody says."""
SourceName = Literal["nvml", "nvidia-smi", "amdgpu", "xpu-smi", "powermetrics", "machine"]


class SourceEnded(Exception):
    """Raised if a source has no more samples; the message gives the reason.

    `blocked`: it does not answer in time, or something is in its way.
    """

    def __init__(self, problem: str, *, blocked: bool = False) -> None:
        super().__init__(problem)
        self.blocked = blocked


class SampleSource:
    """A source that returns one sample after another."""

    name: SourceName

    def __init__(self) -> None:
        self.first: Sample | None = None
        """What was read to see whether there is a GPU; it is the first answer of `next`."""
        self.not_watched: str | None = None
        """Why a better source is not used."""
        self.positions: Sequence[int] | None = None
        """Which of the GPUs are watched, by their place in a sample; None: all."""

    def next(self, timeout: float) -> Sample:
        """The next sample. Raises TimeoutError if none comes within `timeout` seconds, and
        SourceEnded at the end."""
        sample = self.first or self.read(timeout)
        self.first = None
        gpus = sample.gpus
        if self.positions is not None:
            # nvidia-smi leaves out a GPU that was lost.
            present = [position for position in self.positions if position < len(gpus)]
            gpus = tuple(gpus[position] for position in present)
        checked = map(plausible, gpus)
        return replace(sample, gpus=tuple(checked))

    def read(self, timeout: float) -> Sample:
        raise NotImplementedError

    def close(self) -> None:
        """End the processes that run for this source."""


class Machine(SampleSource):
    """A source of empty samples at each interval, so that the command and the machine can be
    watched without a GPU."""

    name: SourceName = "machine"

    def __init__(self, interval: float) -> None:
        super().__init__()
        self._interval = interval
        self._began = time.monotonic()
        self._count = 0

    def read(self, timeout: float) -> Sample:
        due = self._began + self._count * self._interval
        wait = due - time.monotonic()
        if wait > timeout:
            time.sleep(timeout)
            raise TimeoutError
        # It is due already if the last one came late.
        time.sleep(max(0.0, wait))
        seconds = time.monotonic() - self._began
        # Samples that came too late are left out, not caught up.
        intervals = int(seconds / self._interval)
        self._count = intervals + 1
        return Sample(at=utc_now(), seconds=round(seconds, 3))


def utc_now() -> str:
    """The current UTC time in the format of our recordings: `2026-11-20T06:00:00.000Z`.

    >>> len(utc_now()), utc_now()[-1]
    (24, 'Z')
    """
    time = datetime.now(timezone.utc)
    # Three digits: a sample is not more exact.
    milliseconds = time.microsecond // 1000
    whole_seconds = f"{time:%Y-%m-%dT%H:%M:%S}"
    return f"{whole_seconds}.{milliseconds:03d}Z"


CHECKED_FIELDS = tuple(part.name for part in fields(GpuSample) if part.name in LIMITS)


def plausible(gpu: GpuSample) -> GpuSample:
    """The sample without impossible values; they become None, and `problem` names them."""
    figures = {field: getattr(gpu, field) for field in CHECKED_FIELDS}
    wrong = implausible(figures)
    if not wrong:
        return gpu
    problems = [f"{field} is not plausible" for field in wrong]
    # What the source says itself comes first.
    problem = gpu.problem or ", ".join(problems)
    removed = dict.fromkeys(wrong)
    return replace(gpu, problem=problem, **removed)


# --- which GPUs -----------------------------------------------------------------------------------

VARIABLE = "CUDA_VISIBLE_DEVICES"
SHORTEST = len("GPU-")
"""A beginning of a UUID is longer."""


def named_positions(names: Sequence[str], gpus: Sequence[GpuSample]) -> tuple[int, ...]:
    """The positions of the GPUs with these indexes or UUID prefixes, each once. Raises UsageError
    for a name that matches no GPU or several.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-ab"))
    >>> named_positions(("1", "gpu-aa", "1"), two)
    (1, 0)
    """
    positions: list[int] = []
    for name in names:
        matching = [position for position, gpu in enumerate(gpus) if is_called(gpu, name)]
        # A beginning that several UUIDs share names none of them.
        if len(matching) != 1:
            raise no_such_gpu(name, gpus, is_ambiguous=bool(matching))
        positions += matching
    # Each once, in the order in which they were named.
    distinct = dict.fromkeys(positions)
    return tuple(distinct)


def no_such_gpu(name: str, gpus: Sequence[GpuSample], *, is_ambiguous: bool) -> UsageError:
    """The error for a name that matches no GPU or several; its hint lists the GPUs."""
    gpu_names = []
    for gpu in gpus:
        # The UUID is what tells them apart on another day.
        uuid = gpu.uuid or "UUID unknown"
        gpu_names.append(f"{gpu.index} ({uuid})")
    problem = "Several GPUs are" if is_ambiguous else "No GPU is"
    hint = f"there are: {', '.join(gpu_names)}"
    return UsageError(f"{problem} called {name!r}", hint=hint)


def is_called(gpu: GpuSample, name: str) -> bool:
    """Whether a GPU has this index, or a UUID that begins with this name."""
    if name == str(gpu.index):
        return True
    # `GPU-` alone would name all of them.
    if len(name) <= SHORTEST:
        return False
    uuid = (gpu.uuid or "").lower()
    return uuid.startswith(name.lower())


def visible_positions(
    variable: str, gpus: Sequence[GpuSample], *, pci_order: bool
) -> tuple[tuple[int, ...] | None, str]:
    """The positions that CUDA_VISIBLE_DEVICES leaves visible (None if unknown: all are watched),
    and a note for the person.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-bb"))
    >>> visible_positions("1", two, pci_order=True)
    ((1,), 'CUDA_VISIBLE_DEVICES=1: watching GPU 1')
    """
    setting = f"{VARIABLE}={variable}"
    parts = [part.strip() for part in variable.split(",")]
    names = [part for part in parts if part]
    has_indexes = any(name.isdecimal() for name in names)
    models = {gpu.name for gpu in gpus}
    # CUDA counts the fastest GPU first, NVML by the bus: with one model both are the same.
    counts_differ = len(models) > 1 and not pci_order
    if has_indexes and counts_differ:
        return None, f"{setting} counts in CUDA's order, unknown here: watching every GPU"
    try:
        positions = named_positions(names, gpus)
    except UsageError:
        positions = ()
    if not positions:
        return None, f"{setting} names no GPU here, so the monitor watches every GPU"
    indexes = [str(gpus[position].index) for position in positions]
    labels = ", ".join(indexes)
    return positions, f"{setting}: watching GPU {labels}"
