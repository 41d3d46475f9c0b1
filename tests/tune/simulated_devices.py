"""GPUs on paper with a model on each: what a search for the largest batch meets.

Every phase needs a fixed part and a part for each sample, the highest phase counts, and memory is
taken in blocks. What is read is off by up to 1.5 %, another value at every step. A device may have
one of `TROUBLES`. All is drawn from a seed; the true maxima run from 7 to 7,192, with troubles
from 1 on.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator

from gpusetup.model.frozen import Frozen, replace
from gpusetup.tune.search import Trial

MIB = 1 << 20
JITTER, STEPS = 0.015, 12
SMALLEST, LARGEST = 7, 7192
PHASES = ("forward", "backward", "optimizer")
CAPACITIES = (4, 6, 8, 11, 12, 16, 24, 32, 40, 48, 80, 96, 141)


class Device(Frozen):
    """A device with a model on it."""

    capacity_bytes: int
    static_bytes: int
    fixed: dict[str, int]
    each: dict[str, float]
    workspaces: tuple[tuple[int, int], ...] = ()
    """From this batch on, so many bytes more."""
    bends: tuple[tuple[int, float], ...] = ()
    """From this batch on, a sample takes so many times as much."""
    block_bytes: int = 2 * MIB
    lost: float = 0.0
    """Between blocks, at most this part of the capacity; each size loses another one of it."""
    by_process: bool = False
    """Only the peak of the whole process is read, and never reset: a host's address space."""

    def need(self, batch: int) -> dict[str, int]:
        extra = sum(size for start, size in self.workspaces if batch >= start)
        samples = batch + sum((more - 1) * max(0, batch - start) for start, more in self.bends)
        sizes = {phase: self.fixed[phase] + self.each[phase] * samples + extra for phase in PHASES}
        block = self.block_bytes
        return {phase: math.ceil(size / block) * block for phase, size in sizes.items()}

    def runs(self, batch: int) -> bool:
        part = random.Random(batch * 7919 + self.static_bytes).uniform(0.5, 1.0) * self.lost
        return max(self.need(batch).values()) <= self.capacity_bytes * (1 - part)

    def maximum(self) -> int:
        whole, low, high = replace(self, lost=0.0), 0, 1 << 20
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if whole.runs(middle) else (low, middle)
        return next((batch for batch in range(low, 0, -1) if self.runs(batch)), 0)

    def trial(self, batch: int, draw: random.Random) -> Trial:
        """What the allocator's counters say of some steps."""
        if not self.runs(batch):
            return Trial(batch=batch, status="oom")
        need = self.need(batch)
        top = dict.fromkeys(PHASES, max(need.values()))
        readings = [
            top if self.by_process else {phase: read(size, draw) for phase, size in need.items()}
            for _ in range(STEPS)
        ]
        phases = {p: round(statistics.mean(row[p] for row in readings)) for p in PHASES}
        static = self.static_bytes
        return Trial(
            batch=batch,
            status="ok",
            peak_bytes=min(max(phases.values()), self.capacity_bytes),
            static_bytes=static if self.by_process else read(static, draw),
            phases=phases,
        )


def read(size: int, draw: random.Random) -> int:
    return round(size * (1 + draw.uniform(-JITTER, JITTER)))


def devices(seed: int, count: int, *, hard: bool = False) -> Iterator[Device]:
    """Their true maxima are spread evenly by size; with `hard` one trouble after the other."""
    draw, troubles = random.Random(seed), tuple(TROUBLES.values())
    for index in range(count):
        goal = round(SMALLEST * (LARGEST / SMALLEST) ** (index / max(1, count - 1)))
        device = None
        while device is None or not (1 if hard else goal) <= device.maximum() <= LARGEST:
            device = straight(draw, goal)
            if hard:
                device = troubles[index % len(troubles)](draw, device, goal)
        yield device


def straight(draw: random.Random, goal: int) -> Device:
    capacity = draw.choice(CAPACITIES) * 1024 * MIB
    static = round(draw.uniform(0.02, 0.5) * capacity)
    fixed = {phase: round(static * draw.uniform(1.0, 1.25)) for phase in PHASES}
    steepest = (capacity - max(fixed.values())) / (goal + draw.random())
    each = {phase: steepest * draw.uniform(0.3, 1.0) for phase in PHASES}
    each |= {draw.choice(("forward", "backward")): steepest, "optimizer": 0.0}
    return Device(capacity_bytes=capacity, static_bytes=static, fixed=fixed, each=each)


def workspaces(draw: random.Random, device: Device, goal: int) -> Device:
    found = tuple(
        (draw.randint(2, goal + 1), round(draw.uniform(0.002, 0.03) * device.capacity_bytes))
        for _ in range(draw.randint(1, 3))
    )
    return replace(device, workspaces=found)


def bends(draw: random.Random, device: Device, goal: int) -> Device:
    return replace(device, bends=((draw.randint(2, goal + 1), draw.uniform(0.7, 1.5)),))


def blocks(draw: random.Random, device: Device, goal: int) -> Device:
    part = draw.uniform(0.001, 0.01)
    return replace(device, block_bytes=round(part * device.capacity_bytes / MIB) * MIB or MIB)


def losses(draw: random.Random, device: Device, goal: int) -> Device:
    return replace(device, lost=draw.uniform(0.002, 0.03))


def process(draw: random.Random, device: Device, goal: int) -> Device:
    static = round(draw.uniform(0.5, 0.9) * device.capacity_bytes)
    steepest = (device.capacity_bytes - static) / (goal + draw.random())
    each = {"forward": 0.9 * steepest, "backward": steepest, "optimizer": 0.0}
    return replace(
        device,
        static_bytes=static,
        fixed=dict.fromkeys(PHASES, static),
        each=each,
        by_process=True,
    )


def tiny(draw: random.Random, device: Device, goal: int) -> Device:
    return straight(draw, draw.randint(1, 12))


TROUBLES: dict[str, Callable[[random.Random, Device, int], Device]] = {
    one.__name__: one for one in (workspaces, bends, blocks, losses, process, tiny)
}
