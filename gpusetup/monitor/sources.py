"""Where samples come from, and which of the GPUs are watched.

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
SourceName = Literal["nvml", "nvidia-smi", "machine"]


class SourceEnded(Exception):
    """A source gives no more samples; the text says why.

    `blocked`: it does not answer in time, or something is in its way.
    """

    def __init__(self, problem: str, *, blocked: bool = False) -> None:
        super().__init__(problem)
        self.blocked = blocked


class Source:
    """Gives one sample after the other."""

    name: SourceName

    def __init__(self) -> None:
        self.first: Sample | None = None
        """What was read to see whether there is a GPU; it is the first answer of `next`."""
        self.not_watched: str | None = None
        """Why a better source is not used."""
        self.positions: Sequence[int] | None = None
        """Which of the GPUs are watched, by their place in a sample; None: all."""

    def next(self, timeout: float) -> Sample:
        """The next sample. Raises TimeoutError if none comes in time, SourceEnded at the end."""
        sample = self.first or self.read(timeout)
        self.first = None
        gpus = sample.gpus
        if self.positions is not None:
            # nvidia-smi leaves out a GPU that was lost.
            gpus = tuple(gpus[position] for position in self.positions if position < len(gpus))
        return replace(sample, gpus=tuple(map(plausible, gpus)))

    def read(self, timeout: float) -> Sample:
        raise NotImplementedError

    def close(self) -> None:
        """End what runs for this source."""


class Machine(Source):
    """A clock: samples without a GPU, so that the command and the machine are watched."""

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
        time.sleep(max(0.0, wait))
        seconds = time.monotonic() - self._began
        # Samples that came too late are left out, not caught up.
        self._count = int(seconds / self._interval) + 1
        return Sample(at=utc_now(), seconds=round(seconds, 3))


def utc_now() -> str:
    """
    >>> len(utc_now()), utc_now()[-1]
    (24, 'Z')
    """
    time = datetime.now(timezone.utc)
    milliseconds = time.microsecond // 1000
    return f"{time:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


CHECKED_FIELDS = tuple(part.name for part in fields(GpuSample) if part.name in LIMITS)


def plausible(gpu: GpuSample) -> GpuSample:
    """A sample without what cannot be: that is a trouble, and no measurement."""
    wrong = implausible({field: getattr(gpu, field) for field in CHECKED_FIELDS})
    if not wrong:
        return gpu
    problem = ", ".join(f"{field} is not plausible" for field in wrong)
    return replace(gpu, problem=gpu.problem or problem, **dict.fromkeys(wrong))


# --- which GPUs -----------------------------------------------------------------------------------

VARIABLE = "CUDA_VISIBLE_DEVICES"
SHORTEST = len("GPU-")
"""A beginning of a UUID is longer."""


def named_positions(names: Sequence[str], gpus: Sequence[GpuSample]) -> tuple[int, ...]:
    """The places of the GPUs with these indexes, or beginnings of UUIDs.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-ab"))
    >>> named_positions(("1", "gpu-aa", "1"), two)
    (1, 0)
    """
    positions: list[int] = []
    for name in names:
        matching = [position for position, gpu in enumerate(gpus) if is_called(gpu, name)]
        if len(matching) != 1:
            gpu_names = [f"{gpu.index} ({gpu.uuid or 'UUID unknown'})" for gpu in gpus]
            problem = "Several GPUs are" if matching else "No GPU is"
            hint = f"there are: {', '.join(gpu_names)}"
            raise UsageError(f"{problem} called {name!r}", hint=hint)
        positions += matching
    return tuple(dict.fromkeys(positions))


def is_called(gpu: GpuSample, name: str) -> bool:
    """Whether a GPU has this index, or a UUID that begins so."""
    if name == str(gpu.index):
        return True
    return len(name) > SHORTEST and (gpu.uuid or "").lower().startswith(name.lower())


def visible_positions(
    variable: str, gpus: Sequence[GpuSample], *, pci_order: bool
) -> tuple[tuple[int, ...] | None, str]:
    """The places that the variable leaves, None if that is not known, and a word about it.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-bb"))
    >>> visible_positions("1", two, pci_order=True)
    ((1,), 'CUDA_VISIBLE_DEVICES=1: watching GPU 1')
    """
    setting = f"{VARIABLE}={variable}"
    names = [name.strip() for name in variable.split(",") if name.strip()]
    has_indexes = any(name.isdecimal() for name in names)
    has_several_models = len({gpu.name for gpu in gpus}) > 1
    # CUDA counts the fastest GPU first, NVML by the bus: with one model both are the same.
    if has_indexes and has_several_models and not pci_order:
        return None, f"{setting} counts in CUDA's order, unknown here: watching every GPU"
    try:
        positions = named_positions(names, gpus)
    except UsageError:
        positions = ()
    if not positions:
        return None, f"{setting} names no GPU here, so the monitor watches every GPU"
    labels = ", ".join(str(gpus[position].index) for position in positions)
    return positions, f"{setting}: watching GPU {labels}"
