"""Finds lines in which nvidia-smi reports that it can no longer read a GPU, and turns them into
samples of a lost GPU. Pure functions.

A log ends with such a line, because nvidia-smi then prints no more rows for the GPU, and usually
none for the others.
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
"""Matches `GPU1: 0000:A1:00.0: …` or, from older drivers, `GPU 0000:A1:00.0: …`."""
LOST_DRIVER = re.compile(r"failed to initialize nvml: .*(unknown error|gpu is lost)", re.I)
"""Matches the message only if its ending shows a faulty GPU. Other endings, such as a version
mismatch, do not match."""


NO_LONGER = "nvidia-smi can no longer"
"""How the `reason` of a loss begins if it comes from a line of nvidia-smi."""


class LostGpu(NamedTuple):
    """What one line reports about a GPU that can no longer be read."""

    gpu_index: int | None
    """The GPU's index; None if the line contains no index."""
    reason: str
    """What nvidia-smi could no longer do, in words."""


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
    """The reason for the loss of a GPU that a line of nvidia-smi gave; None if the GPU's own sample
    reports the loss."""
    problem = gpu.problem or ""
    return problem if problem.startswith(NO_LONGER) else None


class LossWatch:
    """Passes on the lines of a log, and remembers the last loss that a line reported."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.loss: LostGpu | None = None
        self.is_last_line = False
        """Whether only empty lines followed the loss."""

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
    """Yields the samples that `read` finds in these lines, and adds the GPUs that the lines report
    as lost.

    `interval`: seconds between samples if the log contains no times.
    """
    watch = LossWatch(lines)
    latest: Sample | None = None
    seen: dict[int, GpuSample] = {}
    step = interval
    for sample in read(iter(watch), interval):
        present = {gpu.index for gpu in sample.gpus}
        absent = [gpu for index, gpu in seen.items() if index not in present]
        # A GPU whose row is only missing at this moment is not lost.
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
        # The lost GPU has no row in this log. Without it, nvidia-smi can no longer read the other
        # GPUs either.
        lost_gpus = gpus_lost(watch.loss._replace(gpu_index=None), list(seen.values()))
    yield Sample(at="", seconds=latest.seconds + step, gpus=lost_gpus)


def gpus_lost(loss: LostGpu, gpus: Iterable[GpuSample]) -> tuple[GpuSample, ...]:
    """Samples that mark GPUs as lost: the GPU that the loss is about, or all of these GPUs if the
    loss names no index."""
    lost_gpus = []
    for gpu in gpus:
        if loss.gpu_index in (None, gpu.index):
            lost_gpu = GpuSample(
                index=gpu.index, name=gpu.name, uuid=gpu.uuid, lost=True, problem=loss.reason
            )
            lost_gpus.append(lost_gpu)
    return tuple(lost_gpus)
