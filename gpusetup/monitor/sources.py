"""The sources of samples, and the choice of the GPUs to watch. Reads the machine.

NVML reports the most, `nvidia-smi` and amdgpu's files less (`polled.py`); without any of them, only
the machine can be watched. A child process asks NVML, so the monitor itself cannot hang in it: if
the child hangs, crashes or cannot start, `SourceEnded` gives the reason.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Literal

from gpusetup.child_scripts.driver_answers import LIMITS, is_plausible
from gpusetup.errors import UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import fields, replace
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.probe.deadline import Notify, announced
from gpusetup.readings.environment import positions_named
from gpusetup.system.processes import StreamingChild, no_answer_in

PATIENCE_SECONDS = 10.0
"""How many seconds a sample may be late before we give up the source, by default."""
SourceName = Literal["nvml", "nvidia-smi", "amdgpu", "machine"]


class SourceEnded(Exception):
    """Raised if a source has no more samples; the message gives the reason.

    `blocked`: whether the source did not respond in time, or something prevents its use.
    """

    def __init__(self, problem: str, *, blocked: bool = False) -> None:
        super().__init__(problem)
        self.blocked = blocked


class SampleSource:
    """A source that returns one sample after another."""

    name: SourceName

    def __init__(self) -> None:
        self.first: Sample | None = None
        """The sample that was read to check whether there is a GPU; `next` returns it first."""
        self.not_watched: str | None = None
        """Why a better source is not used."""
        self.watched: Sequence[int] | None = None
        """The indexes of the GPUs to watch, in this order; None means all GPUs."""

    def next(self, timeout: float) -> Sample:
        """The next sample. Raises TimeoutError if none comes within `timeout` seconds, and
        SourceEnded at the end."""
        sample = self.first or self.read(timeout)
        self.first = None
        gpus = sample.gpus
        if self.watched is not None:
            by_index = {gpu.index: gpu for gpu in gpus}
            # nvidia-smi leaves out a GPU that was lost.
            gpus = tuple(by_index[index] for index in self.watched if index in by_index)
        return replace(sample, gpus=tuple(map(plausible, gpus)))

    def read(self, timeout: float) -> Sample:
        raise NotImplementedError

    def close(self) -> None:
        """End the processes that this source has started."""


class PolledSource(SampleSource):
    """A source that is asked for the GPUs at each interval. Without any, the samples are empty, so
    that the command and the machine can be watched."""

    def __init__(
        self,
        interval: float,
        name: SourceName = "machine",
        read_gpus: Callable[[], tuple[GpuSample, ...]] = tuple,
    ) -> None:
        super().__init__()
        self.name = name
        self._interval, self._read_gpus = interval, read_gpus
        self._began = time.monotonic()
        self._count = 0  # the number of the next interval

    def read(self, timeout: float) -> Sample:
        """The sample at the next interval; TimeoutError if that is later than `timeout`."""
        wait = self._began + self._count * self._interval - time.monotonic()
        if wait > timeout:
            time.sleep(timeout)
            raise TimeoutError
        # If the previous sample was late, the next one may already be due.
        time.sleep(max(0.0, wait))
        seconds = time.monotonic() - self._began
        # Samples that were missed meanwhile are skipped, not taken later.
        self._count = int(seconds / self._interval) + 1
        return self.sample_of(self._read_gpus())

    def sample_of(self, gpus: tuple[GpuSample, ...]) -> Sample:
        """A sample of these GPUs, taken now."""
        # Our recordings have times such as `2026-11-20T06:00:00.000Z`.
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        seconds = round(time.monotonic() - self._began, 3)
        return Sample(at=now.replace("+00:00", "Z"), seconds=seconds, gpus=gpus)


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
        """The next sample of the child; SourceEnded if it has failed or ended."""
        deadline = time.monotonic() + timeout
        while True:
            remaining = deadline - time.monotonic()
            try:
                line = self._lines.next(remaining)
            except EOFError as problem:
                raise SourceEnded(f"NVML: {problem}") from problem
            if line.startswith(FAILED):
                failure = json.loads(line)
                # NVML's own message for a missing library begins with "NVML".
                message = failure["message"].removeprefix("NVML ")
                raise SourceEnded(f"NVML: {message}", blocked=failure["init"] in FORBIDDEN)
            if line.startswith(SAMPLE):
                return from_json(line, Sample, what="a sample of read_nvml")

    def close(self) -> None:
        self._lines.end()


def open_nvml(lines: StreamingChild, limit: float, notify: Notify) -> Nvml:
    """The NVML source of samples, read from this child's output. Raises SourceEnded if the child
    does not respond or lists no GPU."""
    source = Nvml(lines)
    try:
        with announced(lambda: ["NVML"], limit, notify):
            source.first = source.next(limit)
        if not source.first.gpus:
            raise SourceEnded("NVML: lists no GPU")
    except TimeoutError as problem:
        source.close()
        raise SourceEnded(f"NVML: {no_answer_in(limit)}", blocked=True) from problem
    except BaseException:
        # Whatever goes wrong, Ctrl-C included, the child must not be left behind.
        source.close()
        raise
    return source


MOST_POWER = 3.0
"""No card draws this many times its power limit, so a sensor that says so is wrong."""
CHECKED_FIELDS = tuple(part.name for part in fields(GpuSample) if part.name in LIMITS)


def plausible(gpu: GpuSample) -> GpuSample:
    """The sample without impossible values: they become None, and `problem` names them."""
    wrong = [field for field in CHECKED_FIELDS if not is_plausible(field, getattr(gpu, field))]
    if (gpu.power_watts or 0) > MOST_POWER * (gpu.power_limit_watts or math.inf):
        wrong.append("power_watts")
    if not wrong:
        return gpu
    # If the source itself reports a problem, show that one.
    problem = gpu.problem or ", ".join(f"{field} is not plausible" for field in wrong)
    return replace(gpu, problem=problem, **dict.fromkeys(wrong))


# --- which GPUs to watch --------------------------------------------------------------------------

VARIABLE = "CUDA_VISIBLE_DEVICES"


def named_gpus(names: Sequence[str], gpus: Sequence[GpuSample]) -> tuple[int, ...]:
    """The indexes of the GPUs with these indexes or UUID prefixes, without duplicates. Raises
    UsageError for a name that matches no GPU or several.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-ab"))
    >>> named_gpus(("1", "gpu-aa", "1"), two)
    (1, 0)
    """
    identities = [(gpu.index, (gpu.uuid or "").lower()) for gpu in gpus]
    indexes = []
    for name in names:
        positions = positions_named(name.lower(), identities)
        if not positions:
            # Show the UUID too, because it never changes, unlike the index.
            there_are = ", ".join(f"{gpu.index} ({gpu.uuid or 'UUID unknown'})" for gpu in gpus)
            raise UsageError(f"No single GPU is called {name!r}", hint=f"choose from: {there_are}")
        indexes += [gpus[position].index for position in positions]
    return tuple(dict.fromkeys(indexes))


def visible_gpus(
    variable: str, gpus: Sequence[GpuSample], *, pci_order: bool
) -> tuple[tuple[int, ...] | None, str]:
    """The indexes of the GPUs that CUDA_VISIBLE_DEVICES leaves visible (None if unknown, so that
    all are watched), and a note for the user. `pci_order`: whether CUDA numbers the GPUs by bus
    address, too (CUDA_DEVICE_ORDER).

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-bb"))
    >>> visible_gpus("1", two, pci_order=True)
    ((1,), 'CUDA_VISIBLE_DEVICES=1: watching GPU 1')
    """
    setting = f"{VARIABLE}={variable}"
    # CUDA numbers the fastest GPU first, whereas NVML numbers them by bus address; with a single
    # model, both orders are the same.
    orders_differ = len({gpu.name for gpu in gpus}) > 1 and not pci_order
    has_index = any(word.strip().isdecimal() for word in variable.split(","))
    if orders_differ and has_index:
        return None, f"{setting} uses CUDA's order, which is unknown here: watching every GPU"
    positions = positions_named(variable, [(gpu.index, gpu.uuid) for gpu in gpus])
    watched = tuple(gpus[position].index for position in positions)
    if not watched:
        return None, f"{setting} matches no GPU here, so the monitor watches every GPU"
    return watched, f"{setting}: watching GPU {', '.join(map(str, watched))}"
