"""How fast a device multiplies and copies."""

from __future__ import annotations

import time
from typing import Any, Callable, Tuple

import torch

from ..device.gpus import least
from ..judging.tolerance import numbers
from ..values import FAILED, PASSED, Outcome, kind

ROUNDS = 7
SLOWEST_COPY = 0.2
"""GB/s below which something is wrong: PCIe 1.0 by one lane carries 0.25; a core of 2005 copies
2 in memory."""
SLOWEST_PRODUCTS = {"cpu": 0.001, "cuda": 0.05}
"""TFLOP/s in float32 below which something is wrong: a twentieth of a core with SSE at 2.5 GHz (20
GFLOP/s); a fifth of the smallest GPU that torch supports (Jetson Nano, 0.24 by its data sheet)."""
FAST = {"cpu": 768, "cuda": 4096}
LONG_ENOUGH_SECONDS = 0.02
"""Of a round on a GPU: a single product takes less time there than to start it and to wait for
it, and less than the clock takes to rise from idle."""
MOST_TIMES = 1000


def speed(device: str) -> Outcome:
    """Products per second in float32."""
    return _speed(device, "float32", "speed")


def speed_half(device: str) -> Outcome:
    """Products per second in float16, where GPUs have their tensor cores."""
    return _speed(device, "float16", "speed-half")


def _speed(device: str, name: str, check: str) -> Outcome:
    size = FAST[kind(device)]
    left, right = (
        numbers(torch, size, size, salt=111 + place).to(getattr(torch, name)).to(device)
        for place in (0, 1)
    )
    out = torch.empty_like(left)
    found = measured(device, lambda: torch.mm(left, right, out=out), 2 * size**3 / 1e12)
    floor = least_rate(device, check)
    return rated(f"{size} x {size} products in {name}", found, (floor, "TFLOP/s"))


def least_rate(device: str, check: str) -> float:
    """What this model must reach, or the least of all."""
    floor = SLOWEST_COPY if check == "copy-within" else SLOWEST_PRODUCTS[kind(device)]
    if kind(device) != "cuda":
        return floor
    name = str(torch.cuda.get_device_properties(device).name)
    return max(floor, least(check, name) or 0.0)


def measured(device: str, run: Callable[[], Any], work: float) -> float:
    """Work per second in the best of ROUNDS."""
    on_gpu = kind(device) == "cuda"

    def timed(times: int) -> float:
        if on_gpu:
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(times):
            run()
        if on_gpu:
            torch.cuda.synchronize(device)
        return max(time.perf_counter() - began, 1e-9)

    run()
    once = min(timed(1) for _ in range(3))
    times = min(MOST_TIMES, 1 + int(LONG_ENOUGH_SECONDS / once)) if on_gpu else 1
    return work * times / min(timed(times) for _ in range(ROUNDS))


def rated(detail: str, rate: float, lowest: Tuple[float, str]) -> Outcome:
    """Passed at the floor or above."""
    if rate >= lowest[0]:
        return Outcome(PASSED, detail, rate, *lowest)
    hint = "look for another job on the device, a power limit, or a card in the wrong slot"
    return Outcome(FAILED, f"{detail}, but slowly", rate, *lowest, hint)
