"""Sustained load on one device: products and memory compared bit for bit, rate and clocks."""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from ..device.gpus import gpu_uuid, least
from ..device.importing import first_line
from ..device.watching import watched
from ..judging.tolerance import numbers
from ..values import FAILED, PASSED, Outcome, asked, kind

SIZES = {"cpu": 1024, "cuda": 8192}
"""Edges of the product."""
MEMORY_SHARE = 0.25
"""Of what is free: the buffer that is copied and compared."""
MOST_BYTES = {"cpu": 64 << 20, "cuda": 2 << 30}
WINDOW_SECONDS = 60.0
"""The first and the last minute are compared; of a shorter run, the first and last third."""
STEADY, LESS_STEADY = 0.9, 0.7
"""The share of its first rate that a GPU must keep; in a laptop, or where only the power limit
lowers the clock: warm silicon draws more, so the clock within the same limit falls (inferred: an
H100 at its 700 W kept 1.005 of its first rate for 26 s). A CPU shares its time with other programs:
its rate is told alone."""
CAPPED = "sw_power_cap"
MOVING = re.compile(r"Laptop|Max-Q|Mobile")
KEPT = "of its first rate, at least"
SETTLE_SECONDS = 2.0


class Load(NamedTuple):
    """What a run of load did."""

    products: int = 0
    wrong_products: int = 0
    copies: int = 0
    wrong_bytes: int = 0
    rates: Tuple[Tuple[float, float], ...] = ()
    """(seconds since the start, TFLOPS) of each second or so."""
    watched: Dict[str, Any] = {}
    """What `nvidia-smi` said (`summed`); empty without it."""


class Least(NamedTuple):
    """What a device must reach."""

    kept: Optional[float] = None
    """The share of its first rate; None for a CPU."""
    tflops: float = 0.0


def load(device: str) -> Outcome:
    """Load a device for the asked time and judge what it did."""
    if kind(device) != "cuda":
        return judged(loaded(device, asked().seconds, time.monotonic), Least())
    lost, done = "", Load()
    with watched(gpu_uuid(torch, device)) as said:
        try:
            done = loaded(device, asked().seconds, time.monotonic)
        except RuntimeError as problem:
            time.sleep(SETTLE_SECONDS)  # the driver tells it a moment later
            lost, error = first_line(problem), problem
    done = done._replace(watched=said)
    if not lost:
        return judged(done, least_of(torch.cuda.get_device_name(device), said))
    if not said.get("lost"):
        raise error
    return Outcome(FAILED, "; ".join([*faults(done, Least()), lost]), spent=True)


def loaded(device: str, seconds: float, clock: Callable[[], float]) -> Load:
    """Products and copies in turn until the time is over, each compared with the first."""
    multiply, work = _product(device)
    first, copied = multiply(), _memory(device)
    began = mark = clock()
    products = wrong = bad_bytes = since = 0
    rates: List[Tuple[float, float]] = []
    while mark - began < seconds or not rates:
        wrong += not torch.equal(multiply(), first)
        products += 1
        since += 1
        now = clock()
        if now - mark < min(1.0, seconds / 6):
            continue
        rates.append((now - began, work * since / (now - mark) / 1e12))
        bad_bytes += copied(len(rates))
        mark, since = clock(), 0
    return Load(products, wrong, len(rates), bad_bytes, tuple(rates))


def _product(device: str) -> Tuple[Callable[[], Any], float]:
    """A product, and its number of floating-point operations."""
    size = SIZES[kind(device)]
    dtype = torch.float16 if kind(device) == "cuda" else torch.float32
    left, right = (numbers(torch, size, size, salt=salt).to(device, dtype) for salt in (1, 2))
    return (lambda: left @ right), 2.0 * size**3


def _memory(device: str) -> Callable[[int], int]:
    """Writes a pattern that changes each time, copies it, and counts the bytes that differ."""
    most = MOST_BYTES[kind(device)]
    free = torch.cuda.mem_get_info(device)[0] if kind(device) == "cuda" else most * 4
    elements = int(min(free * MEMORY_SHARE, most) // 16)
    place = torch.arange(elements, dtype=torch.int64, device=device)

    def copied(turn: int) -> int:
        there = (place * 2_654_435_761 + turn).clone()
        return 8 * int((there != place * 2_654_435_761 + turn).sum().item())

    return copied


def least_of(name: str, said: Dict[str, Any]) -> Least:
    """What a model must reach, by what the driver said of its clocks.

    Where nobody knows what held them, it may have been the power limit.
    """
    held = said.get("reasons", (CAPPED,)) == (CAPPED,)
    kept = LESS_STEADY if held or MOVING.search(name) else STEADY
    return Least(kept, least("speed-half", name) or 0.0)


def judged(done: Load, limit: Least) -> Outcome:
    """The outcome of a load; the worst fault first."""
    kept, rate = _rates(done.rates)
    said = [f"{done.products} products and {done.copies} copies compared", f"{rate:.3g} TFLOPS"]
    if done.watched.get("hottest") is not None:
        said.append(f"{done.watched['hottest']} C at most")
    if done.watched.get("reasons"):
        said.append(f"clocks held by {', '.join(done.watched['reasons'])}")
    fault = next(faults(done, limit), None)
    detail = f"{fault}; {', '.join(said)}" if fault else ", ".join(said)
    return Outcome(FAILED if fault else PASSED, detail, kept, limit.kept, KEPT)


def faults(done: Load, limit: Least) -> Iterator[str]:
    """What makes a run fail, the gravest first."""
    said, (kept, rate) = done.watched, _rates(done.rates)
    if said.get("lost"):
        yield "the GPU fell off the bus"
    if done.wrong_products:
        yield f"{done.wrong_products} of {done.products} products differ from the first one"
    if done.wrong_bytes:
        yield f"{done.wrong_bytes} bytes of memory changed"
    if said.get("ecc_new", 0) > 0:
        yield f"{said['ecc_new']} new uncorrectable ECC errors"
    if kept < (limit.kept or 0.0):
        yield f"the rate fell to {kept:.0%} of the rate at the start"
    if rate < limit.tflops:
        yield f"{rate:.1f} TFLOPS, {limit.tflops:.1f} is the minimum for this model"


def _rates(rates: Tuple[Tuple[float, float], ...]) -> Tuple[float, float]:
    """The mean rate of the last window, as a share of the first one's and in TFLOPS.

    >>> _rates(((1.0, 4.0), (2.0, 4.0), (3.0, 2.0)))
    (0.5, 2.0)
    """
    if not rates:
        return 1.0, float("inf")
    whole = rates[-1][0]
    window = min(WINDOW_SECONDS, whole / 3)
    first = [rate for when, rate in rates if when <= window] or [rates[0][1]]
    last = [rate for when, rate in rates if when > whole - window] or [rates[-1][1]]
    rate = sum(last) / len(last)
    return rate * len(first) / sum(first), rate
