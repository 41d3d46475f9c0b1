"""Composes recordings of the monitor: cards, loops, processes and a host, with noise, by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from gpusetup.model.frozen import Frozen, replace
from gpusetup.monitor.documents import GpuSample, HostSample, ProcessUse, Sample, TreeSample

Use = Callable[[float], float | None]
"""Seconds since the start -> utilisation in percent in the second before."""
Reasons = Callable[[float], Sequence[str]] | Sequence[str]


class Card(Frozen):
    """Rated figures as the makers' data sheets have them; what an idle card draws, about."""

    name: str
    gib: int
    watts: float
    idle: float
    mhz: int


A100 = Card(name="NVIDIA A100-SXM4-80GB", gib=80, watts=400, idle=58, mhz=1410)
H100 = Card(name="NVIDIA H100 80GB HBM3", gib=80, watts=700, idle=72, mhz=1980)
L40S = Card(name="NVIDIA L40S", gib=48, watts=350, idle=36, mhz=2520)
RTX4090 = Card(name="NVIDIA GeForce RTX 4090", gib=24, watts=450, idle=22, mhz=2520)
RTX3060 = Card(
    name="NVIDIA GeForce RTX 3060", gib=12, watts=170, idle=14, mhz=1837,
)  # fmt: skip
BIG, ALL = (A100, H100, L40S), (A100, H100, L40S, RTX4090, RTX3060)


class Gpu(Frozen):
    """How a GPU behaves. `weight`: how much of its power the kernels draw while they run."""

    use: Any
    weight: Any = 0.85
    memory: Any = 80.0
    bus: float | None = 40.0
    heat: float = 66.0
    clock: float = 96.0
    reasons: Any = ()
    holders: tuple[tuple[int, str, str], ...] | None = ((4000, "python", "compute"),)
    nvlink: Any = None
    pcie: float | None = None
    link: float = 31.5e9
    """What its PCIe link carries one way, where `pcie` is told."""


class Tree(Frozen):
    main: Any = 40.0
    workers: int = 0
    each: Any = 0.0
    helpers: Any = 0.0
    """CPU of processes that are neither the busiest nor a loader's workers."""
    reads: Any = 0.0
    inputs: Any = None
    writes: Any = 0.0
    blocked: Any = 0.0
    ranks: int | None = None
    cores: float = 16


class Host(Frozen):
    others: Any = 20.0
    """CPU of everything beside the command."""
    cores: int = 16
    memory: Any = 40.0
    network: Any = 2e5
    writes: Any = 0.0
    reads: Any = None


class Run(Frozen):
    samples: tuple[Sample, ...]
    command: tuple[str, ...] | None = None
    exit: int | None = None


def compose(
    dice: random.Random,
    gpus: Sequence[Gpu],
    tree: Tree | None = None,
    host: Host | None = None,
    *,
    card: Card = A100,
    seconds: float = 90,
    command: str | None = None,
    exit: int | None = None,
) -> Run:
    """A sample each second."""
    samples = tuple(
        Sample(
            at=clock(at),
            seconds=at,
            gpus=tuple(_gpu(gpu, place, at, card, dice) for place, gpu in enumerate(gpus)),
            tree=_tree(tree, at, dice) if tree else None,
            host=_host(host, tree, at, dice) if host else None,
        )
        for at in map(float, range(int(seconds)))
    )
    return Run(samples=samples, command=tuple(command.split()) if command else None, exit=exit)


def _gpu(gpu: Gpu, place: int, at: float, card: Card, dice: random.Random) -> GpuSample:
    use = min(100.0, max(0.0, told(gpu.use, at) + (dice.gauss(0, 2) if told(gpu.use, at) else 0)))
    drawn = card.idle + (card.watts - card.idle) * use / 100 * told(gpu.weight, at)
    mhz = card.mhz * gpu.clock / 100 if use > 0 else card.mhz * 0.2
    reasons = gpu.reasons(at) if callable(gpu.reasons) else gpu.reasons
    total = card.gib << 30
    fields: dict[str, Any] = {
        "name": card.name,
        "uuid": f"GPU-{place:04d}",
        "utilization_percent": round(use),
        "memory_busy_percent": None if gpu.bus is None else round(near(gpu.bus * use / 100, dice)),
        "memory_used_bytes": int(total * min(100.0, told(gpu.memory, at)) / 100),
        "memory_total_bytes": total,
        "temperature_celsius": round(gpu.heat + dice.gauss(0, 1)),
        "power_watts": round(min(card.watts * 1.005, near(drawn, dice)), 1),
        "power_limit_watts": card.watts,
        "power_limit_default_watts": card.watts,
        "clock_sm_mhz": round(mhz + dice.gauss(0, 5)),
        "clock_sm_max_mhz": card.mhz,
        "throttle_reasons": tuple(reasons) if use > 0 or reasons else ("gpu_idle",),
        "processes": None if gpu.holders is None else tuple(
            ProcessUse(pid=pid, name=name, kind=kind)  # type: ignore[arg-type]
            for pid, name, kind in gpu.holders
        ),
        "nvlink_rx_bytes_per_second": rate(value(gpu.nvlink, at), dice),
        "nvlink_tx_bytes_per_second": rate(value(gpu.nvlink, at), dice),
        "pcie_rx_bytes_per_second": rate(gpu.pcie, dice),
        "pcie_tx_bytes_per_second": rate(gpu.pcie, dice),
        "pcie_limit_bytes_per_second": None if gpu.pcie is None else gpu.link,
    }  # fmt: skip
    return GpuSample(index=place, **fields)


def _tree(tree: Tree, at: float, dice: random.Random) -> TreeSample:
    main, each = near(told(tree.main, at), dice), near(told(tree.each, at), dice)
    helpers = near(told(tree.helpers, at), dice)
    reads = near(told(tree.reads, at), dice)
    inputs = reads if tree.inputs is None else near(told(tree.inputs, at), dice)
    blocked = told(tree.blocked, at)
    return TreeSample(
        processes=1 + tree.workers,
        cpu_percent=round(main + tree.workers * each + helpers, 1),
        busiest_cpu_percent=round(main, 1),
        memory_bytes=6 << 30,
        read_bytes_per_second=round(reads),
        input_bytes_per_second=round(max(reads, inputs)),
        loader_workers=tree.workers,
        loader_cpu_percent=round(tree.workers * each, 1),
        cores=tree.cores,
        write_bytes_per_second=round(told(tree.writes, at)),
        blocked_processes=int(blocked) + (dice.random() < blocked % 1),
        gpu_processes=tree.ranks,
    )


def _host(host: Host, tree: Tree | None, at: float, dice: random.Random) -> HostSample:
    mine = 0.0
    if tree:
        mine = told(tree.main, at) + tree.workers * told(tree.each, at) + told(tree.helpers, at)
    return HostSample(
        cpu_percent=min(host.cores * 100.0, near(mine + told(host.others, at), dice)),
        cores=host.cores,
        memory_used_bytes=int((128 << 30) * told(host.memory, at) / 100),
        memory_total_bytes=128 << 30,
        disk_read_bytes_per_second=None if host.reads is None else near(told(host.reads, at), dice),
        disk_write_bytes_per_second=told(host.writes, at),
        network_receive_bytes_per_second=near(told(host.network, at), dice),
    )


def clock(seconds: float) -> str:
    return f"2026-11-20T06:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}.000Z"


def told(given: Use | float, at: float) -> float:
    return value(given, at) or 0.0


def near(given: float, dice: random.Random) -> float:
    return max(0.0, given * dice.gauss(1, 0.05))


def rate(given: float | None, dice: random.Random) -> float | None:
    return None if given is None else near(given / 2, dice)


# --- shapes over time -----------------------------------------------------------------------------


def value(given: Use | float | None, at: float) -> float | None:
    return given(at) if callable(given) else given


def loop(compute: float, wait: float) -> Use:
    """A training step after step: so many seconds of kernels, then so many without."""

    def busy_until(at: float) -> float:
        whole, rest = divmod(at, compute + wait)
        return whole * compute + min(rest, compute)

    def use(at: float) -> float:
        return 100 * (busy_until(at + 1) - busy_until(at))

    return use


def pausing(use: float, work: float, pause: float) -> Use:
    """Work with a pause after it, again and again."""
    return lambda at: use if at % (work + pause) < work else 0.0


def random_bursts(work: float, rest: float, use: float = 95) -> Use:
    """Work and rest of changing length, as requests come or cells are run."""
    dice, ends, at, busy = random.Random(7), [], 0.0, True
    while at < 4000:
        at += dice.uniform(0.4, 1.6) * (work if busy else rest)
        ends.append((at, busy))
        busy = not busy
    return lambda now: use if next(busy for end, busy in ends if now < end) else 0.0


def then(*parts: tuple[float, Use | float]) -> Use:
    """One behaviour after the other: until this second, that."""
    return lambda at: told(next((use for end, use in parts if at < end), parts[-1][1]), at)


TRAIN = "python train.py --config conf/base.yaml"
HOST = Host()
RANK_HOLDERS = tuple(((4000 + n, "python", "compute"),) for n in range(8))


def ranks(count: int, *gpus: Gpu) -> list[Gpu]:
    """One process a GPU; the last behaviour is that of all the rest."""
    told = [gpus[min(n, len(gpus) - 1)] for n in range(count)]
    return [replace(gpu, holders=RANK_HOLDERS[n]) for n, gpu in enumerate(told)]
