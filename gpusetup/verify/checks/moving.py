"""Data on their way: copies and their bandwidth, pinned memory, streams, a CUDA graph, speed.

What is said here of streams, graphs and pinned memory only a GPU can show.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Tuple

from ..device.identity import gpu_uuid
from ..device.known_gpus import figures
from ..device.nvml import watch
from ..judging.speed import backwards, held, least
from ..judging.tolerance import Part, agree, holds, judged, numbers, same, source, summed
from ..values import FAILED, PASSED, Outcome, kind

COPY_BYTES = 64 * 2**20
ROUNDS = 7
GB = 1e9
SLOWEST_COPY = {"cpu": 0.2, "cuda": 0.2}
"""GB/s below which something is wrong: PCIe 1.0 by one lane carries 0.25; a core of 2005 copies
2 in memory."""


def copy_in(device: str) -> Outcome:
    """Host to device."""
    return _copied(device, "cpu", device, pinned=False)


def copy_out(device: str) -> Outcome:
    """Device to host."""
    return _copied(device, device, "cpu", pinned=False)


def copy_within(device: str) -> Outcome:
    """Within the device."""
    return _copied(device, device, device, pinned=False)


def _copied(device: str, from_device: str, to_device: str, pinned: bool) -> Outcome:
    """Every byte arrives; the rate is the best of some rounds, the spread its noise."""
    import torch

    sent = torch.randint(0, 2**31, (COPY_BYTES // 4,), generator=source(torch, 110)).int()
    start, target = sent.to(from_device), torch.zeros_like(sent, device=to_device)
    rate, spread = measured(torch, device, lambda: target.copy_(start), COPY_BYTES / GB)
    part = same(f"{from_device} to {to_device}", target, sent)
    if part.worst:
        return judged([part], "")
    return rated(
        f"{COPY_BYTES >> 20} MiB from {from_device} to {to_device}, every bit arrives",
        (rate, spread),
        SLOWEST_COPY[kind(device)] if from_device != to_device else _least(torch, device, WITHIN),
        "GB/s",
        device,
    )


WITHIN = "copy-within"


def _least(torch: Any, device: str, check: str) -> float:
    """What this model must reach, or the least of all."""
    floor = {WITHIN: SLOWEST_COPY}.get(check, FLOORS)[kind(device)]
    if kind(device) != "cuda":
        return floor
    known = figures(str(torch.cuda.get_device_properties(device).name))
    return max(floor, least(check, known) or 0.0)


def _now(device: str) -> str:
    """What NVML says of a GPU's clock, while it is still warm."""
    if kind(device) != "cuda":
        return ""
    import torch

    gpu = watch(gpu_uuid(torch, device))
    return held(gpu.sample() if gpu else None)


LONG_ENOUGH_SECONDS = 0.02
"""Of a round on a GPU: a single product takes less time there than to start it and to wait for
it, and less than the clock takes to rise from idle."""
MOST_TIMES = 1000


def measured(torch: Any, device: str, run: Callable[[], Any], work: float) -> Tuple[float, float]:
    """Work per second in the best of ROUNDS, and by which part the median is slower."""
    run()
    times = _times(torch, device, run)

    def repeated() -> None:
        for _ in range(times):
            run()

    seconds = sorted(_timed(torch, device, repeated) for _ in range(ROUNDS))
    best, middle = seconds[0], seconds[ROUNDS // 2]
    return work * times / best, 1 - best / middle


def _times(torch: Any, device: str, run: Callable[[], Any]) -> int:
    """How often a round does the work."""
    if not device.startswith("cuda"):
        return 1
    once = min(_timed(torch, device, run) for _ in range(3))
    return min(MOST_TIMES, 1 + int(LONG_ENOUGH_SECONDS / once))


def _timed(torch: Any, device: str, run: Callable[[], Any]) -> float:
    _settle(torch, device)
    began = time.perf_counter()
    run()
    _settle(torch, device)
    return max(time.perf_counter() - began, 1e-9)


def _settle(torch: Any, device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def rated(
    detail: str, found: Tuple[float, float], floor: float, unit: str, device: str = "cpu"
) -> Outcome:
    """Passed at the floor or above."""
    rate, spread = found
    if rate >= floor:
        return Outcome(PASSED, detail, rate, floor, unit, spread=round(spread, 4))
    hint = "look for another job on the device, a power limit, or a card in the wrong slot"
    detail = f"{detail}, but slowly{_now(device)}"
    return Outcome(FAILED, detail, rate, floor, unit, hint, spread=spread)


FLOORS = {"cpu": 0.001, "cuda": 0.05}
"""TFLOP/s in float32 below which something is wrong: a twentieth of a core with SSE at 2.5 GHz (20
GFLOP/s); a fifth of the smallest GPU that torch supports (Jetson Nano, 0.24 by its data sheet)."""
FAST = {"cpu": 768, "cuda": 4096}


def speed(device: str) -> Outcome:
    """Products per second in float32; the figure to compare with a baseline."""
    return _speed(device, "float32")


def speed_half(device: str) -> Outcome:
    """Products per second in float16, where GPUs have their tensor cores."""
    return _speed(device, "float16")


def _speed(device: str, name: str) -> Outcome:
    import torch

    size = FAST[kind(device)]
    left, right = (numbers(torch, size, size, salt=111 + place) for place in (0, 1))
    here = [each.to(getattr(torch, name)).to(device) for each in (left, right)]
    out = torch.empty(size, size, dtype=here[0].dtype, device=device)
    work = 2 * size**3 / 1e12
    found = measured(torch, device, lambda: torch.mm(*here, out=out), work)
    floor = _least(torch, device, "speed" if name == "float32" else "speed-half")
    return rated(f"{size} x {size} products in {name}", found, floor, "TFLOP/s", device)


READINGS = 2000


def clock(device: str) -> Outcome:
    """The clocks of this machine go forward while the device computes."""
    import torch

    block = torch.ones(2**16, device=device)
    for name, read in (("monotonic", time.monotonic), ("perf_counter", time.perf_counter)):
        readings = []
        for turn in range(READINGS):
            readings.append(read())
            if turn % 50 == 0:
                block.mul_(1.0)
        wrong = backwards(readings)
        if wrong:
            return Outcome(FAILED, f"time.{name}: {wrong}", hint=CLOCK)
    return Outcome(PASSED, f"{READINGS} readings of two clocks, each at or after the one before")


CLOCK = "look at the clock source: /sys/devices/system/clocksource/clocksource0/current_clocksource"


def pinned(device: str) -> Outcome:
    """Page-locked memory: copies that do not wait arrive whole, both ways."""
    import torch

    sent = torch.randint(0, 2**31, (COPY_BYTES // 4,), generator=source(torch, 112)).int()
    locked = sent.pin_memory()
    parts = [holds("pinned", bool(locked.is_pinned()), "the memory is not page-locked")]
    there = locked.to(device, non_blocking=True)
    doubled = there + there
    back = torch.empty_like(sent).pin_memory()
    back.copy_(doubled, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(device))
    done.synchronize()
    parts.append(same("there and back", back, sent + sent))
    if any(part.worst for part in parts):
        return judged(parts, "")
    found = measured(torch, device, lambda: there.copy_(locked, non_blocking=True), COPY_BYTES / GB)
    return rated("page-locked copies arrive whole", found, SLOWEST_COPY["cuda"], "GB/s")


LINKS = 64
CHAINED, SEEN = 2**25, 2**20
"""Numbers of which one addition takes a GPU longer (some 60 us on the fastest) than its launch
takes the host, else the chain would be over before anybody could read it too early; and how many
are read."""


def streams(device: str) -> Outcome:
    """Work on two streams happens in the order that events ask for, whatever takes longer."""
    import torch

    with torch.cuda.device(device):
        first, second = torch.cuda.Stream(device), torch.cuda.Stream(device)
        torch.cuda.synchronize(device)
        parts = [_chained(torch, device, first, second, turn) for turn in range(8)]
        parts.append(_clocked(torch, device, first))
    return judged(parts, "the order that was asked for")


def _chained(torch: Any, device: str, first: Any, second: Any, turn: int) -> Part:
    """A long chain on one stream, its result used on another after an event."""
    current = torch.cuda.current_stream(device)
    numbers_here = torch.full((CHAINED,), float(turn), device=device)
    out = torch.zeros(SEEN, device=device)
    first.wait_stream(current)
    second.wait_stream(current)
    with torch.cuda.stream(first):
        for _ in range(LINKS):
            numbers_here.add_(1.0)
        ready = first.record_event()
    with torch.cuda.stream(second):
        second.wait_event(ready)
        out.copy_(numbers_here[-SEEN:])
    second.synchronize()
    wanted = torch.full((SEEN,), float(turn + LINKS))
    return same(f"turn {turn}", out, wanted)


TRIES = 5


def _clocked(torch: Any, device: str, stream: Any) -> Part:
    """More work takes longer by the device's own clock.

    Tried anew where it does not: a host that is busy may start the one addition late.
    """
    block = torch.zeros(2**22, device=device)
    stream.wait_stream(torch.cuda.current_stream(device))
    for _ in range(TRIES):
        short, long = _lasted(torch, block, stream)
        if 0 <= short < long:
            break
    good = 0 <= short < long
    return holds("events", good, f"1 addition took {short:.3f} ms, {LINKS} took {long:.3f} ms")


def _lasted(torch: Any, block: Any, stream: Any) -> Tuple[float, float]:
    """Milliseconds of one addition and of LINKS of them."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    with torch.cuda.stream(stream):
        block.add_(1.0)
        marks[0].record(stream)
        block.add_(1.0)
        marks[1].record(stream)
        for _ in range(LINKS):
            block.add_(1.0)
        marks[2].record(stream)
    stream.synchronize()
    return marks[0].elapsed_time(marks[1]), marks[1].elapsed_time(marks[2])


def graph(device: str) -> Outcome:
    """A captured CUDA graph computes anew from what its inputs hold at each replay."""
    import torch

    left, right = (numbers(torch, 128, 128, salt=114 + place) for place in (0, 1))
    with torch.cuda.device(device):
        fixed, other = left.to(device), right.to(device)
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(3):
                (fixed @ other).relu()
        torch.cuda.current_stream(device).wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        # On the stream of its own device: the usual one is made once, on the first device.
        with torch.cuda.graph(captured, stream=side):
            out = (fixed @ other).relu()
        parts = [_replayed(torch, captured, (fixed, other, out), turn) for turn in range(4)]
    return judged(parts, "the same without a graph")


def _replayed(torch: Any, captured: Any, held: Tuple[Any, Any, Any], turn: int) -> Part:
    fixed, other, out = held
    fixed.copy_(numbers(torch, 128, 128, salt=116 + turn))
    captured.replay()
    eager = (fixed @ other).relu()
    allowed = 128 * summed(128) + 1e-2 * float(eager.abs().max()) / 100
    return agree(f"replay {turn}", out, eager, allowed)
