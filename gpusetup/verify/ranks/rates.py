"""How fast the ranks exchange: a sweep over sizes, reported; `--baseline` compares runs."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Tuple

from ..values import PASSED, Outcome
from .group import Group, begin, together

SIZES = {"cpu": (1 << 14, 1 << 18, 1 << 22, 1 << 24), "cuda": (1 << 16, 1 << 20, 1 << 24, 1 << 28)}
"""Bytes of a message."""
REPEATS = 5


def bandwidth(device: str) -> Outcome:
    """The bus bandwidth of the collectives by message size."""
    return together("bandwidth", _swept)


def _swept(group: Group) -> Outcome:
    import torch

    lines: List[str] = []
    best, spread = 0.0, 0.0
    kind = group.device.partition(":")[0]
    sizes = [size for size in SIZES[kind] if size <= group.most_bytes]
    for name, factor, make in _ways(group.world):
        rates = []
        for size in sizes:
            begin(f"bandwidth/{name}-{size}")
            run = make(torch, group, size // 4 // group.world * group.world)
            rate, spread_now = _rate(torch, group, run, size * factor)
            rates.append(rate)
            if name == "all_reduce" and rate >= best:
                best, spread = rate, spread_now
        lines.append(f"{name} " + "/".join(f"{rate:.2g}" for rate in rates))
    label = "/".join(_size(size) for size in sizes)
    detail = f"bus bandwidth in GB/s at {label}: " + ", ".join(lines) + "; the largest all_reduce"
    return Outcome(PASSED, detail, best, None, "GB/s", spread=spread)


def _size(count: int) -> str:
    """
    >>> _size(1 << 14), _size(1 << 24)
    ('16 KiB', '16 MiB')
    """
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


Way = Tuple[str, float, Callable[[Any, Group, int], Callable[[], Any]]]


def _ways(world: int) -> Tuple[Way, ...]:
    """Name, bytes over the bus for each one of the message (nccl-tests' factor), the call."""
    share = (world - 1) / world
    return (
        ("all_reduce", 2 * share, _all_reduce),
        ("all_gather", share, _all_gather),
        ("reduce_scatter", share, _reduce_scatter),
        ("broadcast", 1.0, _broadcast),
        ("all_to_all", share, _all_to_all),
    )


def _all_reduce(torch: Any, group: Group, count: int) -> Callable[[], Any]:
    tensor = torch.zeros(count, device=group.device)
    return lambda: torch.distributed.all_reduce(tensor)


def _all_gather(torch: Any, group: Group, count: int) -> Callable[[], Any]:
    found = torch.empty(count, device=group.device)
    part = torch.zeros(count // group.world, device=group.device)
    return lambda: torch.distributed.all_gather_into_tensor(found, part)


def _reduce_scatter(torch: Any, group: Group, count: int) -> Callable[[], Any]:
    part = torch.empty(count // group.world, device=group.device)
    tensor = torch.zeros(count, device=group.device)
    return lambda: torch.distributed.reduce_scatter_tensor(part, tensor)


def _broadcast(torch: Any, group: Group, count: int) -> Callable[[], Any]:
    tensor = torch.zeros(count, device=group.device)
    return lambda: torch.distributed.broadcast(tensor, 0)


def _all_to_all(torch: Any, group: Group, count: int) -> Callable[[], Any]:
    found, tensor = (torch.zeros(count, device=group.device) for _ in range(2))
    return lambda: torch.distributed.all_to_all_single(found, tensor)


def _rate(torch: Any, group: Group, run: Callable[[], Any], moved: float) -> Tuple[float, float]:
    """Bus bandwidth in GB/s (the median), and by which part the repeats differed."""
    run()  # the first call of a size sets buffers up
    rates = sorted(moved / seconds / 1e9 for seconds in _timed(torch, group, run))
    middle = rates[len(rates) // 2]
    return middle, (rates[-1] - rates[0]) / middle


def _timed(torch: Any, group: Group, run: Callable[[], Any]) -> List[float]:
    if group.device.startswith("cuda"):
        return [_on_gpu(torch, run) for _ in range(REPEATS)]
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        run()
        found.append(max(time.perf_counter() - began, 1e-9))
    return found


def _on_gpu(torch: Any, run: Callable[[], Any]) -> float:
    """Seconds between two events around the call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return max(float(start.elapsed_time(end)) / 1e3, 1e-9)
