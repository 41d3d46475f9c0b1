"""The eight workloads that monitor is asked about: NAME SECONDS DEVICE, run as a training is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

BLOCK = 1 << 30


class Products(NamedTuple):
    """Products of square matrices for a while, then a pause."""

    side: int
    busy_seconds: float = 0.2
    pause_seconds: float = 0.0


PRODUCTS = {
    "input-starved": Products(4096, 0.05, 0.15),
    "good": Products(2048),
    "memory-tight": Products(2048),
    "idle": Products(16, 0.0, 0.2),
    "bursts": Products(2048, 1.0, 1.0),
    "power": Products(16384),
}
"""The last one so large that the card reaches its power limit by itself."""


def products(row: Products, device: str) -> Callable[[], object]:
    side = row.side if device != "cpu" else min(row.side, 256)
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    count = 1 if device == "cpu" else max(5, 400_000 // side)  # so that no pause is seen

    def step() -> None:
        began = time.perf_counter()
        while time.perf_counter() - began < row.busy_seconds:
            for _ in range(count):
                a @ a
            waited(device)
        time.sleep(row.pause_seconds)

    return step


def waited(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def launch_bound(device: str) -> Callable[[], object]:
    """Kernels of a few elements, one after the other."""
    a = torch.ones(16, device=device)

    def step() -> None:
        for _ in range(2000):
            a.add_(1).mul_(0.5)
        waited(device)

    return step


def memory_bound(device: str) -> Callable[[], object]:
    """Copies within the card's memory, with nothing computed."""
    a = torch.ones(BLOCK if device != "cpu" else 1 << 20, device=device, dtype=torch.uint8)
    b = torch.empty_like(a)

    def step() -> None:
        for _ in range(50):
            b.copy_(a)
        waited(device)

    return step


def main(name: str, seconds: float, device: str) -> None:
    held: list[torch.Tensor] = []
    if name == "memory-tight" and device != "cpu":  # all but one part in a hundred
        free, total = torch.cuda.mem_get_info()
        while len(held) < (free - total // 100) // BLOCK:
            held.append(torch.empty(BLOCK, dtype=torch.uint8, device=device))
    others = {"launch-bound": launch_bound, "memory-bound": memory_bound}
    step = others[name](device) if name in others else products(PRODUCTS[name], device)
    ends = time.monotonic() + seconds
    step()
    while time.monotonic() < ends:
        step()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
