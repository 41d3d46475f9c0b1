"""Checks one device under sustained load: products, memory, speed and clocks."""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from ..device.gpus import faulty_below, gpu_uuid
from ..device.importing import first_line
from ..device.watching import watching
from ..judging.answers import normal
from ..values import FAILED, PASSED, SLOW, UNABLE, WRONG, Outcome, kind, run_options

SIZES = {"cpu": 1024, "cuda": 8192}
"""Kind of device -> the size of the square matrices."""
MEMORY_SHARE = 0.25
"""The share of the free memory that the pattern and its copy use."""
MOST_BYTES = {"cpu": 64 << 20, "cuda": 2 << 30}
WINDOW_SECONDS = 60.0
"""The first and the last window, whose speeds are compared; at most a third of the run each."""
KEPT_SHARE = 0.9
"""A GPU fails if its speed falls below this share of its first speed. A CPU shares its time with
other programs, so its speed is only reported."""
KEPT_SHARE_UNDER_CAP = 0.7
"""The share that must be kept by laptop GPUs, and by GPUs whose clock is lowered only by the power
limit. Warm silicon draws more power, so the clock falls within the same power limit (inferred: an
H100 at its 700 W kept 1.005 of its first rate for 26 s)."""
POWER_CAP = "sw_power_cap"
"""The throttle reason of a GPU that has reached its power limit."""
LAPTOP_NAMES = re.compile(r"Laptop|Max-Q|Mobile")
KEPT = "of its first rate"


class Load(NamedTuple):
    """What happened during a run under load."""

    products: int = 0
    wrong_products: int = 0
    copies: int = 0
    wrong_bytes: int = 0
    rates: Tuple[Tuple[float, float], ...] = ()
    """(seconds since the start, TFLOPS), about once per second."""
    watched: Dict[str, Any] = {}
    """What `nvidia-smi` reported (`summary_of`); empty without nvidia-smi."""


def load(device: str) -> Outcome:
    """Load the device for as long as the user requested, and judge the results."""
    # `nvidia-smi` reports nothing about a CPU.
    if kind(device) != "cuda":
        return outcome_of_load(run_under_load(device, run_options().seconds, time.monotonic))
    done = Load()
    error: Optional[RuntimeError] = None
    with watching(gpu_uuid(torch, device)) as readings:
        try:
            done = run_under_load(device, run_options().seconds, time.monotonic)
        except RuntimeError as problem:
            error = problem
            # Wait, because the driver takes a moment to report that a GPU is lost.
            time.sleep(2.0)
    done = done._replace(watched=readings)
    if error is None:
        name = torch.cuda.get_device_name(device)
        # If the driver's reasons for lower clocks are unknown, the power limit may be one of them.
        may_slow_down = readings.get("reasons", (POWER_CAP,)) == (POWER_CAP,)
        is_laptop = LAPTOP_NAMES.search(name) is not None
        kept = KEPT_SHARE_UNDER_CAP if may_slow_down or is_laptop else KEPT_SHARE
        # Many models have no published figure.
        return outcome_of_load(done, kept, faulty_below("speed-half", name) or 0.0)
    # The GPU was not lost, so this is the program's own error.
    if not readings.get("lost"):
        raise error
    problems = [*(fault for fault, _ in faults(done, 0.0, 0.0)), first_line(error)]
    return Outcome(FAILED, "; ".join(problems), spent=True)


def run_under_load(device: str, seconds: float, clock: Callable[[], float]) -> Load:
    """Compute products and copies until the time is up, and compare each with the first one."""
    multiply, operations = square_product(device)
    first_product = multiply()
    wrong_bytes_of_copy = memory_pattern(device)
    products = wrong_products = wrong_bytes = products_of_window = 0
    rates: List[Tuple[float, float]] = []
    # Measure in at least six windows, so that there is a first and a last rate to compare.
    window_seconds = min(1.0, seconds / 6)
    began = window_began = clock()
    while window_began - began < seconds:
        # The same kernel with the same numbers gives the same result, so every bit must match.
        wrong_products += not torch.equal(multiply(), first_product)
        products += 1
        products_of_window += 1
        now = clock()
        passed = now - window_began
        if passed < window_seconds:
            continue
        rates.append((now - began, operations * products_of_window / passed / 1e12))
        wrong_bytes += wrong_bytes_of_copy(len(rates))
        # Leave the time of the copy out of the products' rate.
        window_began, products_of_window = clock(), 0
    return Load(products, wrong_products, len(rates), wrong_bytes, tuple(rates))


def square_product(device: str) -> Tuple[Callable[[], Any], float]:
    """A product that loads the device (with a GPU's tensor cores), and its number of operations."""
    size = SIZES[kind(device)]
    name = "float16" if kind(device) == "cuda" else "float32"
    a, b = (normal(device, size, size, salt=f"load {side}", name=name) for side in "ab")
    return lambda: a @ b, 2.0 * size**3


def memory_pattern(device: str) -> Callable[[int], int]:
    """A function that copies a pattern, and returns how many bytes of the copy differ."""
    most_bytes = MOST_BYTES[kind(device)]
    free_bytes = int(most_bytes / MEMORY_SHARE)
    if kind(device) == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
    # Each number of the pattern takes 8 bytes, and its copy another 8. While the two are compared,
    # the positions and a product exist too, so at most twice as much memory is used.
    elements = int(min(free_bytes * MEMORY_SHARE, most_bytes) // 16)
    places = torch.arange(elements, dtype=torch.int64, device=device)

    def wrong_bytes_of_copy(turn: int) -> int:
        # This factor spreads the bits, so that neighboring numbers are unlike.
        copy = (places * 2_654_435_761 + turn).clone()
        return 8 * int((copy != places * 2_654_435_761 + turn).sum())

    return wrong_bytes_of_copy


def outcome_of_load(
    done: Load, least_kept: Optional[float] = None, least_tflops: float = 0.0
) -> Outcome:
    """The outcome of a run under load, with the worst fault first."""
    kept, tflops = window_rates(done.rates)
    facts = [f"{done.products} products and {done.copies} copies compared", f"{tflops:.3g} TFLOPS"]
    # Without `nvidia-smi` the report shows only the rates.
    if done.watched.get("hottest") is not None:
        facts.append(f"{done.watched['hottest']} C at most")
    if done.watched.get("reasons"):
        facts.append(f"clocks held by {', '.join(done.watched['reasons'])}")
    detail = ", ".join(facts)
    worst = next(faults(done, least_kept or 0.0, least_tflops), None)
    if worst:
        fault, problem = worst
        return Outcome(FAILED, f"{fault}; {detail}", kept, least_kept, KEPT, problem=problem)
    return Outcome(PASSED, detail, kept, least_kept, KEPT)


def faults(done: Load, least_kept: float, least_tflops: float) -> Iterator[Tuple[str, str]]:
    """The faults that make a run fail and what each shows, the worst first."""
    kept, tflops = window_rates(done.rates)
    if done.watched.get("lost"):
        yield "the GPU fell off the bus", UNABLE
    if done.wrong_products:
        yield f"{done.wrong_products} of {done.products} products differ from the first one", WRONG
    if done.wrong_bytes:
        yield f"{done.wrong_bytes} bytes of memory changed", WRONG
    if done.watched.get("ecc_new", 0) > 0:
        yield f"{done.watched['ecc_new']} new uncorrectable ECC errors", WRONG
    if kept < least_kept:
        yield f"the rate fell to {kept:.0%} of the rate at the start", SLOW
    if tflops < least_tflops:
        yield f"{tflops:.1f} TFLOPS, {least_tflops:.1f} is the minimum for this model", SLOW


def window_rates(rates: Tuple[Tuple[float, float], ...]) -> Tuple[float, float]:
    """The mean rate of the last window as a share of the first window's rate, and in TFLOPS.

    >>> window_rates(((1.0, 4.0), (2.0, 4.0), (3.0, 2.0)))
    (0.5, 2.0)
    """
    # There are no rates if the GPU was lost at once; then the run fails for that reason alone.
    if not rates:
        return 1.0, float("inf")
    duration, last_rate = rates[-1]
    # Even a run of an hour compares only its first and last minute.
    window = min(WINDOW_SECONDS, duration / 3)
    # A window may be empty, because a product can take longer than a window.
    first = [rate for second, rate in rates if second <= window] or [rates[0][1]]
    last = [rate for second, rate in rates if second > duration - window] or [last_rate]
    mean = sum(last) / len(last)
    return mean * len(first) / sum(first), mean
