"""Data on their way: copies, their bandwidth, pinned memory, streams, a CUDA graph, other GPUs.

What is said here of streams, graphs and pinned memory only a GPU can show.
"""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any, List, Tuple

import torch

from ..judging.tolerance import Part, agree, holds, judged, numbers, same, source
from ..values import PASSED, Outcome
from .speed import SLOWEST_COPY, least_rate, measured, rated

COPY_BYTES = 64 * 2**20
GB = 1e9


def copy_in(device: str) -> Outcome:
    """Host to device."""
    return _copied(device, "cpu", device)


def copy_out(device: str) -> Outcome:
    """Device to host."""
    return _copied(device, device, "cpu")


def copy_within(device: str) -> Outcome:
    """Within the device."""
    return _copied(device, device, device)


def _copied(device: str, from_device: str, to_device: str) -> Outcome:
    """Every byte arrives; the rate is the best of some rounds."""
    sent = torch.randint(0, 2**31, (COPY_BYTES // 4,), generator=source(torch, 110)).int()
    start, target = sent.to(from_device), torch.zeros_like(sent, device=to_device)
    found = measured(device, lambda: target.copy_(start), COPY_BYTES / GB)
    part = same(f"{from_device} to {to_device}", target, sent)
    if part.worst:
        return judged([part], "")
    floor = SLOWEST_COPY
    if from_device == to_device:
        floor = least_rate(device, "copy-within")
    detail = f"{COPY_BYTES >> 20} MiB from {from_device} to {to_device}, every bit arrives"
    return rated(detail, found, (floor, "GB/s"))


def pinned(device: str) -> Outcome:
    """Page-locked memory: copies that do not wait arrive whole, both ways."""
    sent = torch.randint(0, 2**30, (COPY_BYTES // 4,), generator=source(torch, 112)).int()
    locked = sent.pin_memory()
    there = locked.to(device, non_blocking=True)
    back = torch.empty_like(sent).pin_memory()
    back.copy_(there + there, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(device))
    done.synchronize()
    parts = [
        holds("pinned", bool(locked.is_pinned()), "the memory is not page-locked"),
        same("there and back", back, sent + sent),
    ]
    if any(part.worst for part in parts):
        return judged(parts, "")
    found = measured(device, lambda: there.copy_(locked, non_blocking=True), COPY_BYTES / GB)
    return rated("page-locked copies arrive whole", found, (SLOWEST_COPY, "GB/s"))


LINKS = 64
CHAINED, SEEN = 2**25, 2**20
"""Numbers of which one addition takes a GPU longer (some 60 us on the fastest) than its launch
takes the host, else the chain would be over before anybody could read it too early; and how many
are read."""


def streams(device: str) -> Outcome:
    """Work on two streams happens in the order that events ask for, whatever takes longer."""
    with torch.cuda.device(device):
        first, second = torch.cuda.Stream(device), torch.cuda.Stream(device)
        torch.cuda.synchronize(device)
        parts = [_chained(device, (first, second), turn) for turn in range(8)]
    return judged(parts, "the order that was asked for")


def _chained(device: str, both: Tuple[Any, Any], turn: int) -> Part:
    """A long chain on one stream, its result used on another after an event."""
    first, second = both
    block = torch.full((CHAINED,), float(turn), device=device)
    out = torch.zeros(SEEN, device=device)
    for stream in both:
        stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(first):
        for _ in range(LINKS):
            block.add_(1.0)
        ready = first.record_event()
    with torch.cuda.stream(second):
        second.wait_event(ready)
        out.copy_(block[-SEEN:])
    second.synchronize()
    return same(f"turn {turn}", out, torch.full((SEEN,), float(turn + LINKS)))


def graph(device: str) -> Outcome:
    """A captured CUDA graph computes anew from what its inputs hold at each replay."""
    fixed, other = (numbers(torch, 128, 128, salt=114 + place).to(device) for place in (0, 1))
    parts = []
    with torch.cuda.device(device):
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
        for turn in range(4):
            fixed.copy_(numbers(torch, 128, 128, salt=116 + turn))
            captured.replay()
            eager = (fixed @ other).relu()
            parts.append(agree(f"replay {turn}", out, eager, 1e-3 * float(eager.abs().max())))
    return judged(parts, "the same without a graph")


ELEMENTS = 1 << 23
"""int32 values a copy: 32 MiB."""


def copies_between_gpus(_: str) -> Outcome:
    """What one GPU sends, another holds afterwards, for every ordered pair."""
    rates: List[float] = []
    parts: List[Part] = []
    direct = 0
    for giver, taker in permutations(range(torch.cuda.device_count()), 2):
        there, here = f"cuda:{taker}", f"cuda:{giver}"
        sent = torch.arange(ELEMENTS, dtype=torch.int32, device=here) * 2_654_435 + giver
        found = torch.zeros_like(sent, device=there)
        rates.append(measured(there, partial(found.copy_, sent), 4 * ELEMENTS / GB))
        parts.append(same(f"{here} to {there}", found, sent))
        direct += bool(torch.cuda.can_device_access_peer(giver, taker))
    # Its contexts on every GPU end with its process.
    outcome = judged(parts, "what was sent")._replace(spent=True)
    if outcome.status != PASSED:
        return outcome
    detail = f"{len(rates)} pairs exact, {direct} of them direct; the slowest"
    return outcome._replace(detail=detail, value=min(rates), unit="GB/s")
