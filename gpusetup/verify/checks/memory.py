"""Checks of the device's memory: patterns over most of it, and what happens when it runs out."""

from __future__ import annotations

import platform
import re
import sys
from typing import Any, Iterator, List, Optional, Tuple

import torch

from ..device.devices import GIB
from ..judging.answers import whole_numbers
from ..judging.tolerance import holds, outcome_of, same
from ..values import FAILED, PASSED, WRONG, Outcome, kind, run_options

MIB = 2**20
CPU_BYTES = 128 * MIB
CHUNK_BYTES = {"cpu": 64 * MIB, "cuda": 256 * MIB}
TESTED_SHARE = 0.8
"""The share of a GPU's free memory that is tested."""
TESTED_SHARE_UNIFIED = 0.25
"""The tested share for a GPU that shares the host's memory."""
MOST_TAKEN_BY_OTHERS = 0.1
"""If other programs take more than this share of a GPU's memory, less of it is tested."""
TESTED_SHARE_BESIDE_OTHERS = 0.1
"""The tested share when other programs use the GPU, so small that they can still allocate memory
during the test."""
WORD_BYTES = 8
"""Memory is written and compared in words of 64 bits."""
TAKEN = "other programs use the memory: `nvidia-smi` shows which"
BROKEN = "the memory is faulty: look for ECC and Xid lines in `dmesg`, then have the card replaced"


def memory(device: str) -> Outcome:
    """Most of the free memory returns the patterns that are written to it."""
    byte_count, reason = bytes_to_test(device)
    tested_blocks = allocated_blocks(device, byte_count)
    if not tested_blocks:
        return Outcome(FAILED, "torch could not allocate any memory", hint=TAKEN)
    tested = f"{sum(block.numel() for block in tested_blocks) * WORD_BYTES / GIB:.2f} GiB"
    fault = next(faults(tested_blocks), "")
    # Free the memory for the checks that follow.
    tested_blocks.clear()
    if device != "cpu":
        torch.cuda.empty_cache()
    if fault:
        return Outcome(FAILED, f"{tested} tested: {fault}", hint=BROKEN, problem=WRONG)
    return Outcome(PASSED, f"{tested}, {len(PATTERNS)} patterns, each inverted ({reason})")


def bytes_to_test(device: str) -> Tuple[int, str]:
    """How many bytes of a device's memory to test, and in words why."""
    if device == "cpu":
        # A quarter leaves room for patterns of the same size, and for other programs.
        return min(CPU_BYTES, available_bytes() // 4), "a part of the host's memory"
    free, total = map(int, torch.cuda.mem_get_info(device))
    taken_by_others = total - free - torch.cuda.memory_reserved(device)
    share, words = TESTED_SHARE, ""
    if is_unified(device):
        # The host's limit (for example of a cgroup) may be lower than what the driver reports.
        free = min(free, available_bytes())
        share, words = TESTED_SHARE_UNIFIED, ", shared with the host"
    # A tenth of a small GPU's memory is little, so others must use more than one GiB.
    elif taken_by_others > max(MOST_TAKEN_BY_OTHERS * total, GIB):
        share, words = TESTED_SHARE_BESIDE_OTHERS, ", others work on this GPU"
    return int(free * share), f"{share:.0%} of what is free{words}"


ASSUMED_BYTES = 2**29
"""How many bytes we assume to be free if the system does not report it."""
CGROUP = "/sys/fs/cgroup/memory."
"""The start of the names of the files with a cgroup's memory limit (`max`) and use (`current`)."""


def available_bytes() -> int:
    """How many bytes of memory this process can still use on the host and in its cgroup."""
    available = []
    limit, use = number_in(f"{CGROUP}max"), number_in(f"{CGROUP}current")
    # If there is no limit, the file contains "max".
    if limit is not None and use is not None:
        available.append(max(0, limit - use))
    host_kibibytes = number_in("/proc/meminfo", r"MemAvailable:\s*(\d+)")
    if host_kibibytes is not None:
        available.append(host_kibibytes * 1024)
    return min(available, default=ASSUMED_BYTES)


def number_in(path: str, pattern: str = r"(\d+)") -> Optional[int]:
    """The first number that `pattern` finds in a kernel file; None if there is none."""
    try:
        with open(path, encoding="ascii") as file:
            match = re.search(pattern, file.read())
    except OSError:
        return None
    return int(match.group(1)) if match else None


def is_unified(device: str) -> bool:
    """Whether the GPU shares the host's memory."""
    properties = torch.cuda.get_device_properties(device)
    return bool(getattr(properties, "is_integrated", False))


def allocated_blocks(device: str, byte_count: int) -> List[Any]:
    """Blocks of 64-bit words of `byte_count` bytes in total (at least a word), or as many as could
    be allocated. On a GPU, if there are more than three, two of them are given back, to leave room
    for a pattern and its comparison."""
    on_gpu = kind(device) == "cuda"
    # At least eight blocks, so that the two are not most of the memory.
    most_bytes = byte_count // 8 if on_gpu else byte_count
    block_bytes = max(WORD_BYTES, min(CHUNK_BYTES[kind(device)], most_bytes))
    allocated: List[Any] = []
    for _ in range(max(1, byte_count // block_bytes)):
        try:
            words = torch.empty(block_bytes // WORD_BYTES, dtype=torch.int64, device=device)
        except RuntimeError as problem:
            # Another program may have taken memory meanwhile, so test what could be allocated.
            if "memory" not in str(problem):
                raise
            break
        allocated.append(words)
    return allocated[:-2] if on_gpu and len(allocated) > 3 else allocated


PATTERNS = ("addresses", "0101...", "scattered", "walking ones")
"""Words with their own address show mixed-up address lines; inverting flips every bit."""
STRIPES = 0x5555555555555555
SCATTER = 0x1E3779B97F4A7C15
"""An odd number with as many ones as zeros. Counting numbers multiplied by it look random."""


def pattern_words(block: Any, pattern: str, block_number: int) -> Any:
    """The words of a block's test pattern; always the same for the same arguments."""
    places = torch.arange(block.numel(), dtype=torch.int64, device=block.device)
    # Start above the addresses within any block, so that no two blocks contain the same words. The
    # remainder below keeps the sum with the seed within int64.
    block_address = block_number << 40
    if pattern == "addresses":
        return places.mul_(WORD_BYTES).add_(block_address)
    if pattern == "0101...":
        return places.fill_(STRIPES)
    if pattern == "scattered":
        return places.add_((run_options().seed + block_address) % 2**62).mul_(SCATTER)
    # Walking ones: in each word, one bit is set, the next one in the next word.
    bit_numbers = places.add_(block_number).remainder_(64)
    return torch.ones_like(bit_numbers).bitwise_left_shift_(bit_numbers)


def faults(tested_blocks: List[Any]) -> Iterator[str]:
    """How many words of each block are wrong, for every pattern and direction (moving inversions).

    All blocks are written before the first one is read, so that no cache hides the memory.
    """
    upwards = list(enumerate(tested_blocks))
    downwards = upwards[::-1]
    for pattern in PATTERNS:
        for number, block in upwards:
            block.copy_(pattern_words(block, pattern, number))
        for order in (upwards, downwards):
            for number, block in order:
                written = pattern_words(block, pattern, number)
                # On the way back, every bit is inverted.
                if order is downwards:
                    written.bitwise_not_()
                # Compare the whole block first, because it is nearly always right.
                if not torch.equal(block, written):
                    yield f"{int((block != written).sum())} words differ from {pattern}"
                block.bitwise_not_()


FAR_TOO_MUCH = 2**58
"""A number of bytes that no machine has, so every allocator must refuse it."""
REFUSALS = ("out of memory", "can't allocate memory", "not enough memory", "Cannot allocate")


def out_of_memory(device: str) -> Outcome:
    """Requesting too much memory raises an error, and the device still computes afterwards. A
    driver that silently uses the host's memory instead makes training slow."""
    # On Windows and WSL, and on GPUs that share the host's memory, the driver gives out host memory
    # beyond the GPU's. WSL uses the driver of Windows.
    is_linux = sys.platform.startswith("linux") and "microsoft" not in platform.release().lower()
    if device == "cpu" or not is_linux or is_unified(device):
        return request_too_much(device, FAR_TOO_MUCH)
    torch.cuda.empty_cache()
    # All of a GPU's memory is too much, because this process's context uses some of it.
    _, total = map(int, torch.cuda.mem_get_info(device))
    return request_too_much(device, total)


def request_too_much(device: str, byte_count: int) -> Outcome:
    """The outcome of requesting this many bytes and then computing a product."""
    is_refused = False
    try:
        block = torch.empty(byte_count, dtype=torch.uint8, device=device)
        answer = f"{byte_count} bytes were requested, and {block.numel()} were given"
        del block
    except (RuntimeError, MemoryError) as problem:
        answer = str(problem).split("\n")[0]
        names_memory = any(words in answer for words in REFUSALS)
        is_refused = isinstance(problem, MemoryError) or names_memory
    # Use whole numbers, so that every bit of their product is known.
    a, b = (whole_numbers(64, 64, most=4, salt=salt).float() for salt in ("left", "right"))
    product = a.to(device) @ b.to(device)
    parts = [
        holds("too much memory", is_refused, answer),
        same("a product afterwards", product, a @ b),
    ]
    outcome = outcome_of(parts, "")
    if outcome.status != PASSED:
        return outcome
    return Outcome(PASSED, f"refused {byte_count / GIB:.3g} GiB and went on computing")
