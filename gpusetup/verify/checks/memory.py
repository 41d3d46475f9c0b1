"""The device's memory: patterns over most of what is free, and running out of it."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..device.devices import GIB
from ..device.identity import gpu_uuid
from ..device.lock import alone_on
from ..judging.precision import matmul_limit
from ..judging.tolerance import agree, holds, judged, numbers
from ..values import FAILED, PASSED, SKIPPED, Outcome, asked
from .products import precision_here

MIB = 2**20
CPU_BYTES = 128 * MIB
CHUNK_BYTES = 64 * MIB
GPU_CHUNK_BYTES = 256 * MIB
SHARES = {"alone": 0.9, "display": 0.7, "unified": 0.25}
"""Of the free memory: a GPU for computing, one that draws a screen, one that shares the host's."""
OTHERS, BESIDE = 0.1, 0.1
"""Where so much of a GPU is taken by others, so much of what is free is tested: what they ask for
in these seconds must be there."""
UNIFIED = re.compile(r"\b(GH200|GB10|GB200|Orin|Xavier|Tegra|Thor|Jetson)\b")
SHOWN = 4


class Fault(NamedTuple):
    """One word that was read back wrong."""

    address: int
    wrote: int
    read: int


def memory(device: str) -> Outcome:
    """Patterns written to most of the free memory are read back as they were written."""
    import torch

    with alone_on(gpu_uuid(torch, device) if device != "cpu" else None) as alone:
        wanted, why = amount(torch, device)
        if not alone and device != "cpu":
            wanted, why = wanted // 9, "a tenth: another verify tests this GPU"
        held: List[Any] = []
        try:
            return _proven(torch, device, held, wanted, why)
        finally:
            held.clear()
            if device != "cpu":
                torch.cuda.empty_cache()


def _proven(torch: Any, device: str, held: List[Any], wanted: int, why: str) -> Outcome:
    held += _hold(torch, device, wanted)
    if not held:
        return Outcome(FAILED, "not one block of memory could be had", hint=TAKEN)
    total = sum(int(block.numel()) for block in held) * 8
    faults: List[Fault] = []
    for number in range(len(PATTERNS)):
        _write(torch, held, number)
        for found in _wrong(torch, held, number):
            faults += found[: max(0, SHOWN - len(faults))]
    for found in (*_inverted(torch, held), *_copied(torch, held)):
        faults += found[: max(0, SHOWN - len(faults))]
    if faults:
        return _faulty(faults, total)
    told = f"{total / GIB:.2f} GiB, {len(PATTERNS)} patterns, moving inversions, copies ({why})"
    return Outcome(PASSED, told)


TAKEN = "the memory is taken: `nvidia-smi` shows by whom"
PATTERNS = (
    "addresses",
    "addresses inverted",
    "0101...",
    "1010...",
    "scattered",
    "scattered anew",
    "walking ones",
)
"""Each word its own address finds lines that are mixed up; inverted, it turns every bit."""
STRIPES = 0x5555555555555555
SCATTER = 0x1E3779B97F4A7C15
"""Odd, with as many ones as zeros: multiplied by it, counted numbers look like chance."""


def amount(torch: Any, device: str) -> Tuple[int, str]:
    """Bytes to be tested, and the reason in words."""
    if device == "cpu":
        return min(CPU_BYTES, available_bytes() // 4), "a part of the host's memory"
    free, total = torch.cuda.mem_get_info(device)
    others = int(total) - int(free) - int(torch.cuda.memory_reserved(device))
    name = str(torch.cuda.get_device_properties(device).name)
    kind = sharing(name, attributes(int(device.partition(":")[2] or 0)))
    free = min(int(free), available_bytes()) if kind == "unified" else int(free)
    if kind == "alone" and others > max(OTHERS * int(total), GIB):
        return int(free * BESIDE), f"{BESIDE:.0%} of what is free, others work on this GPU"
    words = {"alone": "", "display": ", it drives a display", "unified": ", shared with the host"}
    return int(free * SHARES[kind]), f"{SHARES[kind]:.0%} of what is free{words[kind]}"


TIMEOUT, INTEGRATED, HOST_TABLES = 17, 18, 100
"""CUdevice_attribute: kernels have a run time limit; the GPU is integrated; it uses the host's page
tables (cuda.h of the CUDA toolkit)."""


def attributes(index: int) -> Dict[int, int]:
    """What the driver says of these attributes; empty where it cannot be asked."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return {}
    handle, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), index):
        return {}
    found = {}
    for attribute in (TIMEOUT, INTEGRATED, HOST_TABLES):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle) == 0:
            found[attribute] = value.value
    return found


def sharing(name: str, found: Dict[int, int]) -> str:
    """With whom a GPU shares its memory: a key of SHARES.

    >>> sharing("NVIDIA GH200 480GB", {}), sharing("NVIDIA A100", {17: 0}), sharing("x", {17: 1})
    ('unified', 'alone', 'display')
    """
    if found.get(INTEGRATED) or found.get(HOST_TABLES) or UNIFIED.search(name):
        return "unified"
    return "display" if found.get(TIMEOUT) else "alone"


def available_bytes() -> int:
    """What the host and this process's cgroup still have."""
    left = [_meminfo(), _cgroup()]
    known = [each for each in left if each is not None]
    return min(known) if known else 4 * CPU_BYTES


def _meminfo() -> Optional[int]:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            rows = dict(line.split(":", 1) for line in file)
        return int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
"""Limit and use, of version 2 and of version 1."""


def _cgroup() -> Optional[int]:
    for limit, used in CGROUPS:
        try:
            with open(limit, encoding="ascii") as most, open(used, encoding="ascii") as now:
                return max(0, int(most.read()) - int(now.read()))
        except (OSError, ValueError):
            continue
    return None


def _hold(torch: Any, device: str, wanted: int) -> List[Any]:
    """Blocks of 64-bit words that together have the wanted size, or what could be had of it."""
    # In eighths at most, so that a pattern and its comparison find room in what is left out.
    size = CHUNK_BYTES if device == "cpu" else max(8, min(GPU_CHUNK_BYTES, wanted // 8))
    held: List[Any] = []
    for _ in range(max(1, wanted // size)):
        try:
            held.append(torch.empty(min(size, wanted) // 8, dtype=torch.int64, device=device))
        except RuntimeError as problem:
            if "memory" not in str(problem):
                raise
            break
    # Two blocks less: the patterns are made and compared in memory of the same device.
    return held[:-2] if device != "cpu" and len(held) > 3 else held


def _pattern(torch: Any, block: Any, number: int, place: int) -> Any:
    """The words of a pattern for a block; the same whenever it is asked for."""
    count = block.numel()
    if number in (0, 1):
        words = torch.arange(count, dtype=torch.int64, device=block.device)
        words.mul_(8).add_(place << 40)
        return words.bitwise_not_() if number == 1 else words
    if number in (2, 3):
        stripe = STRIPES if number == 2 else STRIPES ^ -1
        return torch.full((count,), stripe, dtype=torch.int64, device=block.device)
    words = torch.arange(count, dtype=torch.int64, device=block.device)
    if number == 6:
        return torch.ones_like(words).bitwise_left_shift_(words.add_(place).remainder_(64))
    seed = asked().seed + (number << 20) + (place << 40)
    return words.add_(seed % 2**62).mul_(SCATTER)


def _inverted(torch: Any, held: List[Any]) -> Iterator[List[Fault]]:
    """Moving inversions: block by block upwards each word is read and turned, then downwards."""
    for block in held:
        block.fill_(STRIPES)
    for order, wrote in ((held, STRIPES), (held[::-1], STRIPES ^ -1), (held, STRIPES)):
        for block in order:
            yield from _unlike(torch, block, torch.full_like(block, wrote))
            block.bitwise_not_()


def _copied(torch: Any, held: List[Any]) -> Iterator[List[Fault]]:
    """Each block is copied over the next one, so that reading and writing go on side by side."""
    for place, block in enumerate(held[:-1]):
        block.copy_(_pattern(torch, block, 4, place))
        other = held[place + 1][: block.numel()]
        other.copy_(block[: other.numel()])
        yield from _unlike(torch, other, _pattern(torch, block, 4, place)[: other.numel()])


def _write(torch: Any, held: List[Any], number: int) -> None:
    """All blocks are written before the first is read, so that no cache answers for the memory."""
    for place, block in enumerate(held):
        block.copy_(_pattern(torch, block, number, place))


def _wrong(torch: Any, held: List[Any], number: int) -> Iterator[List[Fault]]:
    for place, block in enumerate(held):
        yield from _unlike(torch, block, _pattern(torch, block, number, place))


def _unlike(torch: Any, block: Any, wanted: Any) -> Iterator[List[Fault]]:
    """The words of a block that are not as wanted, the first ones."""
    if torch.equal(block, wanted):
        return
    places = (block != wanted).nonzero().flatten()
    some = [int(each) for each in places[:SHOWN]]
    start = int(block.data_ptr())
    yield [Fault(start + 8 * i, int(wanted[i]), int(block[i])) for i in some]


def _faulty(faults: List[Fault], total: int) -> Outcome:
    told = "; ".join(described(fault) for fault in faults)
    detail = f"{total / GIB:.2f} GiB tested: {told}"
    return Outcome(FAILED, detail, hint=BROKEN)


BROKEN = "the memory is faulty: look for ECC and Xid lines in `dmesg`, then have it replaced"


def described(fault: Fault) -> str:
    """A fault in words, with the bits that turned.

    >>> described(Fault(0x7f00, 0, 4))
    'at 0x7f00 bit 2 turned (wrote 0x0000000000000000, read 0x0000000000000004)'
    """
    turned = (fault.wrote ^ fault.read) & (2**64 - 1)
    bits = [str(bit) for bit in range(64) if turned >> bit & 1]
    which = f"bit {bits[0]}" if len(bits) == 1 else f"{len(bits)} bits"
    wrote, read = (f"0x{each & (2**64 - 1):016x}" for each in (fault.wrote, fault.read))
    return f"at 0x{fault.address:x} {which} turned (wrote {wrote}, read {read})"


FRACTION = 0.5
FAR_TOO_MUCH = 2**58
"""Bytes; no machine has them, so every allocator must say no."""


def out_of_memory(device: str) -> Outcome:
    """Asking for too much raises an error, and the device goes on computing."""
    import torch

    if device == "cpu":
        return _overdrawn(torch, device, FAR_TOO_MUCH)
    if driver_refuses(torch, device):
        torch.cuda.empty_cache()
        return _overdrawn(torch, device, int(torch.cuda.mem_get_info(device)[1]))
    if not hasattr(torch.cuda, "set_per_process_memory_fraction"):
        return Outcome(SKIPPED, f"torch {torch.__version__} cannot limit a process's memory")
    total = int(torch.cuda.get_device_properties(device).total_memory)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    free = int(free) + int(torch.cuda.memory_reserved(device))
    # Limited, because Windows would give the host's memory instead of saying no.
    torch.cuda.set_per_process_memory_fraction(min(FRACTION, int(free) / total), device)
    try:
        return _overdrawn(torch, device, total)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()


def driver_refuses(torch: Any, device: str) -> bool:
    """Whether the driver says no to more than the GPU has. Windows, also below WSL, and GPUs that
    share the host's memory give of the host's instead."""
    if not sys.platform.startswith("linux") or "microsoft" in platform.release().lower():
        return False
    name = str(torch.cuda.get_device_properties(device).name)
    return sharing(name, attributes(int(device.partition(":")[2] or 0))) != "unified"


def _overdrawn(torch: Any, device: str, count: int) -> Outcome:
    refused, told = False, "the allocation was not refused"
    try:
        block = torch.empty(count, dtype=torch.uint8, device=device)
        told = f"{count} bytes were asked for, {block.numel()} were given"
    except (RuntimeError, MemoryError) as problem:
        said = str(problem)
        refused = isinstance(problem, MemoryError) or any(word in said for word in REFUSALS)
        told = said.split("\n")[0]
    left, right = numbers(torch, 64, 64, salt=1), numbers(torch, 64, 64, salt=2)
    parts = [
        holds("too much memory", refused, told),
        agree(
            "a product afterwards",
            left.to(device) @ right.to(device),
            left.double() @ right.double(),
            64 * 2 * matmul_limit(precision_here(torch, device), 64),
        ),
    ]
    outcome = judged(parts, "")
    if outcome.status != PASSED:
        return outcome
    return Outcome(PASSED, f"refused {count / GIB:.3g} GiB and went on computing")


REFUSALS = ("out of memory", "can't allocate memory", "not enough memory", "Cannot allocate")
