"""The device's memory: patterns over most of what is free, and running out of it."""

from __future__ import annotations

import platform
import sys
from typing import Any, Iterator, List, Tuple

import torch

from ..device.devices import GIB
from ..host import available_bytes
from ..judging.tolerance import holds, judged, numbers, same
from ..values import FAILED, PASSED, Outcome, asked

MIB = 2**20
CPU_BYTES = 128 * MIB
CHUNK_BYTES = {"cpu": 64 * MIB, "cuda": 256 * MIB}
SHARE, UNIFIED = 0.8, 0.25
"""Of the free memory; of that of a GPU that shares the host's."""
OTHERS, BESIDE = 0.1, 0.1
"""Where so much of a GPU is taken by others, so much of what is free is tested: what they ask for
in these seconds must be there."""
TAKEN = "other programs use the memory: `nvidia-smi` shows which"
BROKEN = "the memory is faulty: look for ECC and Xid lines in `dmesg`, then have the card replaced"


def memory(device: str) -> Outcome:
    """Patterns written to most of the free memory are read back as they were written."""
    wanted, why = amount(device)
    held = blocks(device, wanted)
    if not held:
        return Outcome(FAILED, "torch could not allocate any memory", hint=TAKEN)
    tested = f"{sum(block.numel() for block in held) * 8 / GIB:.2f} GiB"
    fault = next(faults(held), "")
    held.clear()
    if device != "cpu":
        torch.cuda.empty_cache()
    if fault:
        return Outcome(FAILED, f"{tested} tested: {fault}", hint=BROKEN)
    return Outcome(PASSED, f"{tested}, {len(PATTERNS)} patterns, each inverted ({why})")


def amount(device: str) -> Tuple[int, str]:
    """Bytes to be tested, and the reason in words."""
    if device == "cpu":
        return min(CPU_BYTES, available_bytes() // 4), "a part of the host's memory"
    free, total = (int(each) for each in torch.cuda.mem_get_info(device))
    if is_unified(device):
        share, why = UNIFIED, ", shared with the host"
        free = min(free, available_bytes())
    elif total - free - torch.cuda.memory_reserved(device) > max(OTHERS * total, GIB):
        share, why = BESIDE, ", others work on this GPU"
    else:
        share, why = SHARE, ""
    return int(free * share), f"{share:.0%} of what is free{why}"


def is_unified(device: str) -> bool:
    """Whether a GPU has no memory of its own."""
    return bool(getattr(torch.cuda.get_device_properties(device), "is_integrated", False))


def blocks(device: str, wanted: int) -> List[Any]:
    """Blocks of 64-bit words that together have the wanted size, or what could be had of it."""
    # In eighths at most, so that a pattern and its comparison find room in what is left out.
    kind = device.partition(":")[0]
    size = max(8, min(CHUNK_BYTES[kind], wanted // 8 if kind == "cuda" else wanted))
    held: List[Any] = []
    for _ in range(max(1, wanted // size)):
        try:
            held.append(torch.empty(size // 8, dtype=torch.int64, device=device))
        except RuntimeError as problem:
            if "memory" not in str(problem):
                raise
            break
    # Two blocks less: the patterns are made and compared in memory of the same device.
    return held[:-2] if kind == "cuda" and len(held) > 3 else held


PATTERNS = ("addresses", "0101...", "scattered", "walking ones")
"""Each word its own address finds lines that are mixed up; inverted, each turns every bit."""
STRIPES = 0x5555555555555555
SCATTER = 0x1E3779B97F4A7C15
"""Odd, with as many ones as zeros: multiplied by it, counted numbers look like chance."""


def _pattern(block: Any, number: int, place: int) -> Any:
    """The words of a pattern for a block; the same whenever it is asked for."""
    words = torch.arange(block.numel(), dtype=torch.int64, device=block.device)
    if number == 0:
        return words.mul_(8).add_(place << 40)
    if number == 1:
        return words.fill_(STRIPES)
    if number == 2:
        return words.add_((asked().seed + (place << 40)) % 2**62).mul_(SCATTER)
    return torch.ones_like(words).bitwise_left_shift_(words.add_(place).remainder_(64))


def faults(held: List[Any]) -> Iterator[str]:
    """Each word that was read back wrong, block by block.

    All blocks are written before the first is read, so that no cache answers for the memory. Then
    each word is read and turned, upwards and downwards (moving inversions).
    """
    every = list(enumerate(held))
    for number in range(len(PATTERNS)):
        for place, block in every:
            block.copy_(_pattern(block, number, place))
        for order, turned in ((every, False), (every[::-1], True)):
            for place, block in order:
                wanted = _pattern(block, number, place)
                yield from _unlike(block, wanted.bitwise_not_() if turned else wanted)
                block.bitwise_not_()


def _unlike(block: Any, wanted: Any) -> Iterator[str]:
    """The first word of a block that is not as wanted, with the bits that turned."""
    if torch.equal(block, wanted):
        return
    place = int((block != wanted).nonzero()[0])
    wrote, read = (int(each[place]) & (2**64 - 1) for each in (wanted, block))
    bits = [str(bit) for bit in range(64) if (wrote ^ read) >> bit & 1]
    which = f"bit {bits[0]}" if len(bits) == 1 else f"{len(bits)} bits"
    at = int(block.data_ptr()) + 8 * place
    yield f"at 0x{at:x} {which} turned (wrote 0x{wrote:016x}, read 0x{read:016x})"


FAR_TOO_MUCH = 2**58
"""Bytes; no machine has them, so every allocator must say no."""
REFUSALS = ("out of memory", "can't allocate memory", "not enough memory", "Cannot allocate")


def out_of_memory(device: str) -> Outcome:
    """Asking for too much raises an error, and the device goes on computing."""
    if device == "cpu":
        return _overdrawn(device, FAR_TOO_MUCH)
    torch.cuda.empty_cache()
    free, total = (int(each) for each in torch.cuda.mem_get_info(device))
    if driver_refuses(device):
        return _overdrawn(device, total)
    # Limited, because Windows would give the host's memory instead of saying no.
    free += int(torch.cuda.memory_reserved(device))
    torch.cuda.set_per_process_memory_fraction(min(0.5, free / total), device)
    try:
        return _overdrawn(device, total)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def driver_refuses(device: str) -> bool:
    """Whether the driver says no to more than the GPU has. Windows, also below WSL, and GPUs that
    share the host's memory give of the host's instead."""
    own = sys.platform.startswith("linux") and "microsoft" not in platform.release().lower()
    return own and not is_unified(device)


def _overdrawn(device: str, count: int) -> Outcome:
    refused, told = False, "the allocation was not refused"
    try:
        block = torch.empty(count, dtype=torch.uint8, device=device)
        told = f"{count} bytes were asked for, {block.numel()} were given"
        del block
    except (RuntimeError, MemoryError) as problem:
        told = str(problem).split("\n")[0]
        refused = isinstance(problem, MemoryError) or any(word in told for word in REFUSALS)
    left, right = (numbers(torch, 64, 64, salt=salt).round() for salt in (1, 2))
    parts = [
        holds("too much memory", refused, told),
        same("a product afterwards", left.to(device) @ right.to(device), left @ right),
    ]
    outcome = judged(parts, "")
    if outcome.status != PASSED:
        return outcome
    return Outcome(PASSED, f"refused {count / GIB:.3g} GiB and went on computing")
