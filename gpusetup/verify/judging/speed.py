"""Is a device as fast as its kind, and as its neighbours? Pure.

The published figures of a model are its best; what its libraries reach is a share of them. A
device below half of that share is at fault. Devices of one name in one machine are compared with
each other, where a tenth less is worth a word.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..values import FAILED, HOST, PASSED, Outcome, Result

REACHED = {"speed": 0.7, "speed-half": 0.5, "copy-within": 0.35}
"""The share of the published figure that a sound device reaches: 4096-products in float32 and in
float16 (stress has the sources), and bytes copied, each of which is read and written (inferred:
0.7 to 0.9 of the bandwidth is what copies reach)."""
HALF, TENTH = 0.5, 0.1


class Figures(NamedTuple):
    """What is published of a GPU model: TFLOPS, and GB/s of its memory."""

    half: Optional[float]
    single: Optional[float]
    memory: Optional[float]
    variable: bool = False
    """Whether the clock depends on the laptop around it: then nothing is asked."""


def least(check: str, known: Optional[Figures]) -> Optional[float]:
    """The rate below which a model is at fault; None where nothing is known of it.

    >>> round(least("copy-within", Figures(312.0, 19.5, 1555.0)))
    272
    >>> least("speed", Figures(6.2, 3.1, 128.0, variable=True))
    """
    if known is None or known.variable or check not in REACHED:
        return None
    figure = {"speed": known.single, "speed-half": known.half, "copy-within": known.memory}[check]
    return HALF * REACHED[check] * figure if figure else None


def held(sample: Any) -> str:
    """What NVML says of the clock at this moment; empty where nobody asked it."""
    if sample is None:
        return ""
    said = [f"{sample.sm_mhz} MHz"] if sample.sm_mhz is not None else []
    said += [f"{sample.temperature_celsius} C"] if sample.temperature_celsius is not None else []
    said += [f"held by {', '.join(sample.reasons)}"] if sample.reasons else []
    return f" ({', '.join(said)})" if said else ""


def beside(facts: Dict[str, Any], results: Sequence[Result]) -> Optional[Result]:
    """The result about neighbours; None where no two devices of one name have rates."""
    names = {row["device"]: row.get("name") for row in facts.get("devices", ())}
    alike = [name for name in set(names.values()) if list(names.values()).count(name) > 1]
    rates = _rates(names, alike, results)
    if not rates:
        return None
    slow = sorted(_slower(rates))
    if not slow:
        return Result("neighbours", HOST, Outcome(PASSED, "devices of one name are as fast"))
    share, told = slow[0][0], "; ".join(text for _, text in slow)
    hint = "compare `nvidia-smi -q -d PERFORMANCE,CLOCK` of both: power, cooling, slot, other jobs"
    status = FAILED if share < HALF else PASSED
    means = "this device holds up every job that uses all of them" if status == FAILED else None
    return Result("neighbours", HOST, Outcome(status, told, hint=hint), means=means)


Rates = Dict[Tuple[str, Any], Dict[str, Outcome]]
"""(check, name) -> device -> what it reached."""


def _rates(names: Dict[str, Any], alike: List[Any], results: Sequence[Result]) -> Rates:
    rates: Rates = {}
    for result in results:
        name, found = names.get(result.device), result.outcome
        if name in alike and found.value and (found.unit or "").endswith("/s"):
            rates.setdefault((result.name, name), {})[result.device] = found
    return rates


def _slower(rates: Rates) -> Iterator[Tuple[float, str]]:
    """(share of the others' rate, sentence) of each device and rate that is a tenth below."""
    for (check, _), by_device in rates.items():
        for device, found in by_device.items():
            others = [o.value or 0.0 for d, o in by_device.items() if d != device]
            share = (found.value or 0.0) / median(others) if others and median(others) else 1.0
            if share < 1 - max(TENTH, 3 * (found.spread or 0.0)):
                yield share, f"{device} reaches {share:.0%} of its neighbours in {check}"


def backwards(readings: Sequence[float]) -> Optional[str]:
    """Where a clock went back or stood still for long, in words; None where it did not.

    >>> backwards([1.0, 2.0, 1.5])
    'reading 2 is 0.5 s before the one before'
    >>> backwards([1.0, 1.0, 2.0])
    """
    for place in range(1, len(readings)):
        if readings[place] < readings[place - 1]:
            back = readings[place - 1] - readings[place]
            return f"reading {place} is {back:g} s before the one before"
    if len(readings) > 1 and readings[0] == readings[-1]:
        return f"{len(readings)} readings are one and the same"
    return None
