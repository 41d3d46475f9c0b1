"""Measures how fast a device multiplies and copies, and how much faster than the CPU it is."""

from __future__ import annotations

import functools
import time
from typing import Any, Callable

import torch

from ..device.gpus import faulty_below
from ..judging.answers import normal
from ..values import FAILED, PASSED, SLOW, Outcome, figure, kind

ROUNDS = 7
"""How many rounds are measured. The best one counts, because other programs slow some down."""
SLOWEST_COPY = 0.2
"""A device that copies slower than this (in GB/s) is faulty. For comparison, one lane of PCIe 1.0
carries 0.25, and a CPU core from 2005 copies 2 in memory."""
SLOWEST_PRODUCTS = {"cpu": 0.001, "cuda": 0.05}
"""A device that multiplies slower than this, in TFLOP/s in float32, is faulty. The CPU's limit is a
twentieth of a core with SSE at 2.5 GHz (20 GFLOP/s). The GPUs' limit is a fifth of the smallest GPU
that torch supports (Jetson Nano, 0.24 by its data sheet)."""
PRODUCT_SIZES = {"cpu": 768, "cuda": 4096}
"""Kind of device -> the size of the square matrices that are multiplied."""
LONG_ENOUGH_SECONDS = 0.02
"""The length of a round on a GPU. A single product is too short: it takes less time than launching
it and waiting for it, and less than the clock needs to rise from idle."""
MOST_TIMES = 1000
"""The most calls in a round on a GPU."""
CPU_SIZE = 2048
"""The size on a CPU beside a GPU: two old cores take 0.4 s for such a product."""


def speed(device: str, name: str = "float32", check: str = "speed") -> Outcome:
    """The speed of matrix products. A GPU that is throttled or busy does not reach the minimum."""
    size = PRODUCT_SIZES[kind(device)]
    lowest = least_rate(device, check)
    detail = f"{size} x {size} products in {name}"
    return outcome_of_rate(detail, product_rate(device, name), lowest, "TFLOP/s")


speed_half = functools.partial(speed, name="float16", check="speed-half")


def product_rate(device: str, name: str, size: int = 0) -> float:
    """The speed of square matrix products in a number format, in TFLOP/s; by default of the size in
    PRODUCT_SIZES."""
    size = size or PRODUCT_SIZES[kind(device)]
    a, b = (normal(device, size, size, salt=f"speed {side}", name=name) for side in "ab")
    product = torch.empty_like(a)
    return best_rate(device, lambda: torch.mm(a, b, out=product), 2 * size**3 / 1e12)


def speed_over_cpu(device: str) -> Outcome:
    """How many times faster the GPU multiplies in float32 than this machine's CPU. It does not
    fail: a slow GPU next to many CPU cores is not a fault."""
    cpu, gpu = product_rate("cpu", "float32", CPU_SIZE), product_rate(device, "float32")
    size = PRODUCT_SIZES[kind(device)]
    detail = (
        f"products of {size} x {size}: {figure(gpu)} TFLOP/s, against {figure(cpu)} on the CPU at "
        f"{CPU_SIZE} with {torch.get_num_threads()} threads"
    )
    return Outcome(PASSED, detail, gpu / cpu, unit="times the CPU in float32")


def least_rate(device: str, check: str) -> float:
    """The rate below which the device fails a check, in GB/s for `copy-within`, else in TFLOP/s:
    the minimum for its kind of device or, if higher, for its GPU model."""
    lowest_of_all = SLOWEST_COPY if check == "copy-within" else SLOWEST_PRODUCTS[kind(device)]
    if kind(device) != "cuda":
        return lowest_of_all
    name = str(torch.cuda.get_device_properties(device).name)
    # Many models have no published figure, so only the general limit applies to them.
    return max(lowest_of_all, faulty_below(check, name) or 0.0)


def best_rate(device: str, run: Callable[[], Any], work: float) -> float:
    """Units of work per second in the best round. A call of `run` does `work` units."""
    on_gpu = kind(device) == "cuda"

    def seconds_of(times: int) -> float:
        if on_gpu:
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        for _ in range(times):
            run()
        # A GPU computes while the host continues, so wait for it.
        if on_gpu:
            torch.cuda.synchronize(device)
        # Avoid a division by zero if the clock does not advance.
        return max(time.perf_counter() - began, 1e-9)

    # The first call loads the kernel. The best of three calls shows how many fill a round.
    run()
    seconds_once = min(seconds_of(1) for _ in range(3))
    times = 1
    if on_gpu:
        times = min(MOST_TIMES, 1 + int(LONG_ENOUGH_SECONDS / seconds_once))
    best_seconds = min(seconds_of(times) for _ in range(ROUNDS))
    return work * times / best_seconds


def outcome_of_rate(detail: str, rate: float, lowest: float, unit: str) -> Outcome:
    """The outcome for a rate: passed if it reaches the minimum `lowest`."""
    if rate >= lowest:
        return Outcome(PASSED, detail, rate, lowest, unit)
    hint = "look for another job on the device, a power limit, or a card in the wrong slot"
    return Outcome(FAILED, f"{detail}, but slowly", rate, lowest, unit, hint, problem=SLOW)
