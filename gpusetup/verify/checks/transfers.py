"""Checks of data transfers: copies, pinned memory, and pairs of GPUs."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any, List

import torch

from ..judging.answers import generator
from ..judging.tolerance import Comparison, holds, outcome_of, same
from ..values import Outcome
from .speed import SLOWEST_COPY, best_rate, least_rate, outcome_of_rate

COPY_BYTES = 64 * 2**20
GB = 1e9


def copied(device: str, starts_on_host: bool = False, ends_on_host: bool = False) -> Outcome:
    """Every byte of a copy arrives; the bandwidth of the best round is measured."""
    start = "cpu" if starts_on_host else device
    end = "cpu" if ends_on_host else device
    sent = random_bits(salt="copied")
    given, target = sent.to(start), torch.zeros_like(sent, device=end)
    rate = best_rate(device, lambda: target.copy_(given), COPY_BYTES / GB)
    part = same(f"{start} to {end}", target, sent)
    # The rate means nothing if bytes are wrong.
    if not part.is_right:
        return outcome_of([part], "what was sent")
    # A bus only has to reach SLOWEST_COPY, because its speed depends on the machine. For a copy
    # within one GPU, the published bandwidth of its model sets the limit.
    lowest = least_rate(device, "copy-within") if start == end else SLOWEST_COPY
    detail = f"{COPY_BYTES >> 20} MiB from {start} to {end}, every bit arrives"
    return outcome_of_rate(detail, rate, lowest, "GB/s")


copy_in = partial(copied, starts_on_host=True)
copy_out = partial(copied, ends_on_host=True)
copy_within = copied


def random_bits(salt: str, most: int = 2**31) -> Any:
    """COPY_BYTES of random int32 numbers between 0 and `most` (exclusive)."""
    return torch.randint(0, most, (COPY_BYTES // 4,), generator=generator(salt)).int()


def pinned(device: str) -> Outcome:
    """Asynchronous copies from and to page-locked memory arrive complete before they are used."""
    # Stay below half of the int32 range, because the device doubles the numbers.
    sent = random_bits(salt="pinned", most=2**30)
    locked = sent.pin_memory()
    on_device = locked.to(device, non_blocking=True)
    returned = torch.empty_like(sent).pin_memory()
    returned.copy_(on_device + on_device, non_blocking=True)
    # The event completes when all copies before it have completed.
    copies_end = torch.cuda.Event()
    copies_end.record(torch.cuda.current_stream(device))
    copies_end.synchronize()
    parts = [
        holds("pinned", bool(locked.is_pinned()), "the memory is not page-locked"),
        same("there and back", returned, sent + sent),
    ]
    # The rate means nothing if bytes are wrong.
    if not all(part.is_right for part in parts):
        return outcome_of(parts, "what was sent")
    rate = best_rate(device, lambda: on_device.copy_(locked, non_blocking=True), COPY_BYTES / GB)
    return outcome_of_rate("page-locked copies arrive whole", rate, SLOWEST_COPY, "GB/s")


ELEMENTS = 1 << 23
"""The number of int32 values in a copy: 32 MiB."""


def peers(_: str) -> Outcome:
    """For every ordered pair of GPUs, a copy from one to the other arrives unchanged."""
    parts: List[Comparison] = []
    for sender, receiver in permutations(range(torch.cuda.device_count()), 2):
        from_device, to_device = f"cuda:{sender}", f"cuda:{receiver}"
        positions = torch.arange(ELEMENTS, dtype=torch.int32, device=from_device)
        # Times an odd number, all positions stay different, even after int32 wraps around. The
        # sender's number shows data that came from another GPU.
        sent = positions * 2_654_435 + sender
        # Fill the target with zeros, so that a copy that never arrives is noticed.
        received = torch.zeros_like(sent, device=to_device)
        received.copy_(sent)
        parts.append(same(f"{from_device} to {to_device}", received, sent))
    # This check opens a context on every GPU. The contexts end with the check's process.
    return outcome_of(parts, "what was sent")._replace(spent=True)
