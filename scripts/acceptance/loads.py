"""The eight workloads that monitor is asked about, each made here: NAME SECONDS DEVICE.

Run as a program of its own, as a training is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], object]


class Setting:
    """Where a workload runs, and how large it may be."""

    def __init__(self, device: str) -> None:
        self.device, self.on_card = device, device.startswith("cuda")

    def square(self, side: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        side = side if self.on_card else min(side, 256)
        return torch.randn(side, side, device=self.device, dtype=dtype)

    def wait(self) -> None:
        if self.on_card:
            torch.cuda.synchronize()


def input_starved(at: Setting) -> Step:
    """A quarter of the time computing, the rest waiting for data."""
    a = at.square(4096)

    def step() -> None:
        began = time.perf_counter()
        while time.perf_counter() - began < 0.05:
            a @ a
            at.wait()
        time.sleep(0.15)

    return step


def launch_bound(at: Setting) -> Step:
    """Kernels of a few elements, one after the other."""
    a = torch.ones(16, device=at.device)

    def step() -> None:
        for _ in range(2000):
            a.add_(1).mul_(0.5)
        at.wait()

    return step


def memory_bound(at: Setting) -> Step:
    """Copies within the card's memory, with nothing computed."""
    count = 2**30 if at.on_card else 2**20
    a = torch.ones(count, device=at.device, dtype=torch.uint8)
    b = torch.empty_like(a)

    def step() -> None:
        for _ in range(50):
            b.copy_(a)
        at.wait()

    return step


def memory_tight(at: Setting) -> Step:
    """All memory but one part in a hundred is held, by plain allocations."""
    held = []
    if at.on_card:
        block, (free, total) = 1 << 30, torch.cuda.mem_get_info()
        for _ in range((free - total // 100) // block):
            held.append(torch.empty(block, dtype=torch.uint8, device=at.device))
    step = good(at)
    return lambda: (step(), held)


def good(at: Setting) -> Step:
    """Products of a moderate size, without a pause."""
    a = at.square(2048, torch.bfloat16)

    def step() -> None:
        for _ in range(200 if at.on_card else 2):
            a @ a
        at.wait()

    return step


def idle(at: Setting) -> Step:
    """A context, and nothing to do."""
    at.square(16)
    return lambda: time.sleep(0.2)


def bursts(at: Setting) -> Step:
    """A second of work, then a second of none."""
    step = good(at)

    def burst() -> None:
        began = time.perf_counter()
        while time.perf_counter() - began < 1:
            step()
        time.sleep(1)

    return burst


def power(at: Setting) -> Step:
    """Products so large that the card reaches its power limit by itself."""
    a = at.square(16384, torch.bfloat16)

    def step() -> None:
        for _ in range(5 if at.on_card else 1):
            a @ a
        at.wait()

    return step


LOADS: dict[str, Callable[[Setting], Step]] = {
    "input-starved": input_starved,
    "launch-bound": launch_bound,
    "memory-bound": memory_bound,
    "memory-tight": memory_tight,
    "good": good,
    "idle": idle,
    "bursts": bursts,
    "power": power,
}


def main(name: str, seconds: float, device: str) -> None:
    step: Any = LOADS[name](Setting(device))
    step()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        step()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
