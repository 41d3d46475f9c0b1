"""Lines in which nvidia-smi says that it can no longer read a GPU, and the samples of a lost GPU
that they stand for. Pure functions.

A log ends with such a line: nvidia-smi prints no row for the GPU after it, and mostly none at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import GpuSample, Sample

LOST_HANDLE = re.compile(
    r"unable to determine the device handle for gpu\s*"
    r"(?:(?P<index>\d{1,3})\s*:\s+)?(?P<bus>[0-9a-f]+:[0-9a-f:.]+)?",
    re.I,
)
"""`GPU1: 0000:A1:00.0: …` or, from older drivers, `GPU 0000:A1:00.0: …`."""
LOST_DRIVER = re.compile(r"failed to initialize nvml: .*(unknown error|gpu is lost)", re.I)
"""Other endings, such as a version mismatch, are no fault of a GPU."""


NO_LONGER = "nvidia-smi can no longer"
"""How a reason begins that a line of nvidia-smi gave."""


class LostGpu(NamedTuple):
    """What one line says about a GPU that can no longer be read."""

    gpu_index: int | None
    """The GPU; None if the line does not number it."""
    reason: str
    """What nvidia-smi could not do, in words."""


def loss_in(line: str) -> LostGpu | None:
    """The loss that a line of nvidia-smi reports; None if it reports none.

    >>> loss_in("Unable to determine the device handle for GPU1: 0000:A1:00.0: GPU is lost.")
    LostGpu(gpu_index=1, reason='nvidia-smi can no longer read the GPU at 0000:A1:00.0')
    >>> loss_in("Failed to initialize NVML: Driver/library version mismatch")
    """
    handle = LOST_HANDLE.search(line)
    if handle:
        index = handle["index"]
        bus_address = (handle["bus"] or "").rstrip(":.")
        place = f"the GPU at {bus_address}" if bus_address else "a GPU"
        reason = f"{NO_LONGER} read {place}"
        return LostGpu(int(index) if index else None, reason)
    if LOST_DRIVER.search(line):
        return LostGpu(None, f"{NO_LONGER} reach the driver")
    return None


def reason_of(gpu: GpuSample) -> str | None:
    """The reason that a line of nvidia-smi gave for the loss of a GPU; None if its own sample tells
    that it is lost."""
    problem = gpu.problem or ""
    return problem if problem.startswith(NO_LONGER) else None


class LossWatch:
    """Passes on the lines of a log and remembers the last loss that one of them reported."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.loss: LostGpu | None = None
        self.is_last_line = False
        """Whether nothing but empty lines followed the loss."""

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            loss = loss_in(line)
            if loss is None:
                if line.strip():
                    self.is_last_line = False
                yield line
            else:
                self.loss = loss
                self.is_last_line = True


def with_losses(
    lines: Iterable[str],
    read: Callable[[Iterable[str], float], Iterator[Sample]],
    interval: float,
) -> Iterator[Sample]:
    """Yields the samples that `read` finds in these lines, with the GPUs that they report as lost.

    `interval`: seconds between samples of a log that tells no time.
    """
    watch = LossWatch(lines)
    latest: Sample | None = None
    seen: dict[int, GpuSample] = {}
    step = interval
    for sample in read(iter(watch), interval):
        present = {gpu.index for gpu in sample.gpus}
        absent = [gpu for index, gpu in seen.items() if index not in present]
        # A GPU that merely has no row in this moment is not lost.
        lost_gpus = gpus_lost(watch.loss, absent) if watch.loss else ()
        seen.update((gpu.index, gpu) for gpu in sample.gpus)
        if latest is not None and sample.seconds > latest.seconds:
            step = sample.seconds - latest.seconds
        latest = sample
        yield replace(sample, gpus=(*sample.gpus, *lost_gpus))
    if latest is None or watch.loss is None or not watch.is_last_line:
        return
    lost_gpus = gpus_lost(watch.loss, list(seen.values()))
    if not lost_gpus:
        # A GPU that this log has no row of: without it nvidia-smi reads the others no more either.
        lost_gpus = gpus_lost(watch.loss._replace(gpu_index=None), list(seen.values()))
    yield Sample(at="", seconds=latest.seconds + step, gpus=lost_gpus)


def gpus_lost(loss: LostGpu, gpus: Iterable[GpuSample]) -> tuple[GpuSample, ...]:
    """Those of these GPUs that the loss is about (all if it numbers none), as lost."""
    lost_gpus = []
    for gpu in gpus:
        if loss.gpu_index in (None, gpu.index):
            lost_gpu = GpuSample(
                index=gpu.index, name=gpu.name, uuid=gpu.uuid, lost=True, problem=loss.reason
            )
            lost_gpus.append(lost_gpu)
    return tuple(lost_gpus)
