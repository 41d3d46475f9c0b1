"""Sustained load on one device: products and memory compared bit for bit, rate and NVML watched."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..device.identity import gpu_uuid
from ..device.importing import first_line
from ..device.known_gpus import peaks
from ..device.nvml import Watch, summed, watch
from ..values import FAILED, PASSED, Outcome, asked

SIZES = {"cpu": (512, 1024), "cuda": (1024, 2048, 4096, 8192)}
"""Edges of the product; the first that keeps the device busy for long enough is taken."""
LONG_ENOUGH_SECONDS = {"cpu": 0.02, "cuda": 0.01}
MEMORY_SHARE = 0.25
"""Of what is free: the buffer that is copied and compared."""
MOST_BYTES = {"cpu": 64 << 20, "cuda": 2 << 30}
WINDOW_SECONDS = 60.0
"""The first and the last minute are compared; of a shorter run, the first and last third."""
STEADY = {"cuda": 0.9}
"""The share of its first rate that a device must keep. A CPU shares its time with other
programs, so its rate is told and not judged."""
LESS_STEADY = 0.7
"""The same where only the power limit lowers the clock, or in a laptop: warm silicon draws
more, so the clock within the same limit falls (inferred; never measured by this project)."""
CAPPED = "sw_power_cap"
LEAST_CAPPED = 0.25
"""The share of the peak below which no power limit is an excuse: a Tesla T4, whose 70 W hold it
most, makes 24 of its 65 TFLOPS (NVIDIA's developer forum, topic 264462)."""
MOVING = re.compile(r"Laptop|Max-Q|Mobile")
FLOORS = {
    7: (0.45, "half of what Volta and Turing reach in cuBLAS' own samples (inferred)"),
    8: (0.6, "best measured on A100: 0.81 to 0.87 (ml-engineering, accelerator page)"),
    9: (0.55, "best measured on H100: 0.80 (ml-engineering, accelerator page)"),
    10: (0.5, "best measured on B200, B300, GB200: 0.73 to 0.79 (ml-engineering)"),
    12: (0.5, "as its neighbours (inferred)"),
}
"""Major capability -> the share of the published dense float16 peak that 8192-products must
reach, and why. Never run against a GPU by this project."""


class Load(NamedTuple):
    """What a run of load did."""

    products: int
    wrong_products: int
    copies: int
    wrong_bytes: int
    rates: Tuple[Tuple[float, float], ...]
    """(seconds since the start, TFLOPS) of each second or so."""
    watched: Dict[str, Any]
    """What NVML said (`summed`); empty without NVML."""


class Yardstick(NamedTuple):
    """What the GPU model should reach."""

    tflops: float
    floor: float
    because: str


def load(device: str) -> Outcome:
    """Load a device for the asked time and judge what it did."""
    import torch

    seconds = asked().seconds
    uuid, name, major = _named(torch, device)
    gpu = watch(uuid) if uuid else None
    with contextlib.ExitStack() as stack:
        watching = stack.enter_context(Watch(gpu)) if gpu else None
        try:
            done = loaded(torch, device, seconds, time.monotonic)
        except RuntimeError as problem:
            time.sleep(SETTLE_SECONDS if watching else 0.0)  # NVML tells it a moment later
            said = _watched(watching)
            if not (said.get("lost") or said.get("xids")):
                raise
            return broken(first_line(problem), said)
    said = _watched(watching)
    done, kind = done._replace(watched=said), device.partition(":")[0]
    against = yardstick(name, major, said.get("mhz"), said.get("reasons", ()))
    return judged(done, least_kept(kind, name, said.get("reasons")), against)


SETTLE_SECONDS = 2.0


def _watched(watching: Optional[Watch]) -> Dict[str, Any]:
    """What NVML said until now; nothing without NVML."""
    if watching is None:
        return {}
    return summed([sample for _, sample in watching.samples], watching.xids)


def broken(problem: str, said: Dict[str, Any]) -> Outcome:
    """A load that ended in an error of CUDA, with what NVML says that happened."""
    nothing = Load(0, 0, 0, 0, (), said)
    told = "; ".join((*faults(nothing, None, 0.0, 0.0, None), problem))
    return Outcome(FAILED, told, spent=True)


def _named(torch: Any, device: str) -> Tuple[Optional[str], Optional[str], Optional[int]]:
    """UUID, name and major capability of a GPU; nothing for the CPU."""
    if not device.startswith("cuda"):
        return None, None, None
    found = torch.cuda.get_device_properties(device)
    major = int(getattr(found, "major", 0)) or None
    return gpu_uuid(torch, device), str(found.name), major


# --- the work -------------------------------------------------------------------------------------


def loaded(torch: Any, device: str, seconds: float, clock: Callable[[], float]) -> Load:
    """Products and copies in turn until the time is over, each compared with the first."""
    multiply, work = _product(torch, device)
    first = multiply()
    copied = _memory(torch, device)
    began = mark = clock()
    products = wrong = copies = bad_bytes = since = 0
    rates: List[Tuple[float, float]] = []
    while mark - began < seconds or not rates:
        wrong += not torch.equal(multiply(), first)
        products += 1
        since += 1
        now = clock()
        if now - mark < min(1.0, seconds / 6):
            continue
        rates.append((now - began, work * since / (now - mark) / 1e12))
        bad_bytes += copied(copies)
        copies += 1
        mark, since = clock(), 0
    return Load(products, wrong, copies, bad_bytes, tuple(rates), {})


def _product(torch: Any, device: str) -> Tuple[Callable[[], Any], float]:
    """A product that takes long enough, and its number of floating-point operations."""
    kind = device.partition(":")[0]
    dtype = torch.float16 if kind == "cuda" else torch.float32
    for size in SIZES[kind]:
        made = torch.Generator().manual_seed(asked().seed % 2**63)
        left, right = (torch.randn(size, size, generator=made).to(device, dtype) for _ in "ab")
        taken = min(_taken(torch, device, left, right) for _ in range(3))
        if taken >= LONG_ENOUGH_SECONDS[kind]:
            break
    return (lambda: left @ right), 2.0 * size**3


def _taken(torch: Any, device: str, left: Any, right: Any) -> float:
    began = time.perf_counter()
    left @ right
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _memory(torch: Any, device: str) -> Callable[[int], int]:
    """Writes a pattern that changes each time, copies it, and counts the bytes that differ."""
    kind = device.partition(":")[0]
    free = torch.cuda.mem_get_info(device)[0] if kind == "cuda" else MOST_BYTES["cpu"] * 4
    elements = int(min(free * MEMORY_SHARE, MOST_BYTES[kind]) // 16)
    place = torch.arange(elements, dtype=torch.int64, device=device)

    def copied(turn: int) -> int:
        written = place * 2_654_435_761 + turn
        there = written.clone()
        return 8 * int((there != place * 2_654_435_761 + turn).sum().item())

    return copied


# --- the judgement --------------------------------------------------------------------------------


def yardstick(
    name: Optional[str],
    major: Optional[int],
    mhz: Optional[float],
    reasons: Tuple[str, ...] = (),
) -> Optional[Yardstick]:
    """The published peak of a GPU and the share it must reach. None where no peak is known.

    At its present clock where that depends on the laptop around it, or where the power limit alone
    holds it: that is how the card was built. Where NVML does not tell the clock, nobody knows what
    held it, and only the least is asked.
    """
    row = peaks().get(name or "")
    floor = FLOORS.get(major or 0)
    if row is None or floor is None or (name or "").startswith(WITHOUT_TENSOR_CORES):
        return None
    tflops, boost, variable = row
    if variable:
        return Yardstick(tflops * mhz / boost, *floor) if mhz and boost else None
    if mhz is None:
        return Yardstick(tflops, LEAST_CAPPED, "the clock is not known")
    if reasons != (CAPPED,) or not boost:
        return Yardstick(tflops, *floor)
    least = LEAST_CAPPED / floor[0]
    return Yardstick(tflops * min(1.0, max(least, mhz / boost)), *floor)


WITHOUT_TENSOR_CORES = "NVIDIA GeForce GTX"
"""Their published peak is that of sums in float16; cuBLAS keeps them in float32."""


def least_kept(
    kind: str, name: Optional[str], reasons: Optional[Tuple[str, ...]]
) -> Optional[float]:
    """The share of its first rate that a device must keep; None where that is not judged.

    >>> least_kept("cuda", "Tesla T4", ("sw_power_cap",)), least_kept("cuda", "Tesla T4", ())
    (0.7, 0.9)
    """
    # Where nobody knows what held the clock, it may have been the power limit.
    if kind in STEADY and (reasons in (None, (CAPPED,)) or MOVING.search(name or "")):
        return LESS_STEADY
    return STEADY.get(kind)


def judged(done: Load, least: Optional[float], against: Optional[Yardstick]) -> Outcome:
    """The outcome of a load; the worst fault first. `least`: the share of its rate to keep."""
    start, end = windows(done.rates)
    kept = end / start if start else 0.0
    detail = _told(done, end, against)
    for fault in faults(done, least, kept, end, against):
        return Outcome(FAILED, f"{fault}; {detail}", kept, least, KEPT)
    return Outcome(PASSED, detail, kept, least, KEPT)


KEPT = "of its first rate, at least"


def faults(
    done: Load, least: Optional[float], kept: float, rate: float, against: Optional[Yardstick]
) -> Iterator[str]:
    """What makes a run fail, the gravest first."""
    said = done.watched
    if said.get("lost"):
        yield "the GPU fell off the bus"
    if done.wrong_products:
        yield f"{done.wrong_products} of {done.products} products differ from the first one"
    if done.wrong_bytes:
        yield f"{done.wrong_bytes} bytes of memory changed"
    if said.get("xids"):
        yield f"the driver reported Xid {', '.join(map(str, said['xids']))}"
    if said.get("ecc_new", 0) > 0:
        yield f"{said['ecc_new']} new uncorrectable ECC errors"
    throttled = f" ({', '.join(said['reasons'])})" if said.get("reasons") else ""
    if kept < (least or 0.0):
        yield f"the rate fell to {kept:.0%} of the first{throttled}"
    if against and rate < against.floor * against.tflops:
        yield (
            f"{rate:.1f} TFLOPS are {rate / against.tflops:.0%} of this model's peak, "
            f"{against.floor:.0%} is the least{throttled}"
        )


def windows(rates: Tuple[Tuple[float, float], ...]) -> Tuple[float, float]:
    """The mean rate of the first and of the last window.

    >>> windows(((1.0, 4.0), (2.0, 4.0), (3.0, 2.0)))
    (4.0, 2.0)
    """
    whole = rates[-1][0]
    window = min(WINDOW_SECONDS, whole / 3)
    first = [rate for when, rate in rates if when <= window] or [rates[0][1]]
    last = [rate for when, rate in rates if when > whole - window] or [rates[-1][1]]
    return sum(first) / len(first), sum(last) / len(last)


def _told(done: Load, rate: float, against: Optional[Yardstick]) -> str:
    parts = [f"{done.products} products and {done.copies} copies compared", f"{rate:.3g} TFLOPS"]
    if against:
        parts[-1] += f" ({rate / against.tflops:.0%} of peak)"
    said = done.watched
    if said.get("hottest") is not None:
        parts.append(f"{said['hottest']} C at most")
    if said.get("reasons"):
        parts.append(f"clocks held by {', '.join(said['reasons'])}")
    return ", ".join(parts)
