"""Runs for the monitor's tests: a training loop in numbers, sampled as NVML would sample it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from gpusetup.monitor.values import GpuSample, ProcessUse, Sample, TreeSample

TOTAL = 80 << 30
Use = Callable[[float], float | None]
"""Seconds since the start -> utilisation in percent in the second before."""


class Gpu:
    """How one GPU behaves over a run; numbers or functions of the time."""

    def __init__(
        self,
        use: Use | float,
        *,
        memory: Use | float = 80.0,
        memory_busy: float | None = 40.0,
        power: float | None = 75.0,
        clock: float | None = 97.0,
        heat: float = 68.0,
        reasons: Callable[[float], Sequence[str]] | Sequence[str] = (),
        processes: int | None = 1,
        lost_after: float | None = None,
        mig: int | None = None,
        noise: float = 2.0,
    ) -> None:
        self.__dict__.update(locals())

    def sample(self, index: int, at: float, dice: random.Random) -> GpuSample:
        known: dict[str, Any] = vars(self)
        if known["lost_after"] is not None and at > known["lost_after"]:
            return GpuSample(index=index, name="NVIDIA A100 80GB", lost=True, problem="GPU is lost")
        use = value(known["use"], at)
        shaken = None if use is None else min(100.0, max(0.0, round(use + self.shake(use, dice))))
        busy = (use or 0.0) / 100
        watts, mhz, bus = known["power"], known["clock"], known["memory_busy"]
        told = known["reasons"](at) if callable(known["reasons"]) else known["reasons"]
        rows = [ProcessUse(pid=100 + n, name="python") for n in range(known["processes"] or 0)]
        return GpuSample(
            index=index,
            mig_index=known["mig"],
            name="NVIDIA A100 80GB",
            uuid=f"GPU-{index}",
            utilization_percent=shaken,
            memory_busy_percent=None if bus is None else round(bus * busy),
            memory_used_bytes=int(TOTAL * (value(known["memory"], at) or 0.0) / 100),
            memory_total_bytes=TOTAL,
            temperature_celsius=round(known["heat"] + dice.uniform(-1, 1)),
            power_watts=None if watts is None else 60 + (4 * watts - 60) * min(1.0, busy * 1.1),
            power_limit_watts=None if watts is None else 400.0,
            clock_sm_mhz=None if mhz is None else round(14.1 * mhz),
            clock_sm_max_mhz=None if mhz is None else 1410,
            throttle_reasons=tuple(told) if use or told else ("gpu_idle",),
            processes=None if known["processes"] is None else tuple(rows),
        )

    def shake(self, use: float, dice: random.Random) -> float:
        noise: float = vars(self)["noise"]
        return dice.uniform(-noise, noise) if 0 < use < 100 else 0.0


def value(given: Use | float | None, at: float) -> float | None:
    return given(at) if callable(given) else given


def tree(
    *,
    busiest: float,
    workers: int = 0,
    each: float = 0.0,
    disk: float = 0.0,
    reads: float = 0.0,
    cores: int = 16,
) -> TreeSample:
    return TreeSample(
        processes=1 + workers,
        cpu_percent=busiest + workers * each,
        busiest_cpu_percent=busiest,
        memory_bytes=4 << 30,
        read_bytes_per_second=disk,
        input_bytes_per_second=max(reads, disk),
        loader_workers=workers,
        loader_cpu_percent=workers * each,
        cores=cores,
    )


def samples(
    gpus: Sequence[Gpu],
    beside: TreeSample | None = None,
    *,
    seconds: float = 60,
    interval: float = 1.0,
    seed: int = 7,
) -> list[Sample]:
    dice = random.Random(seed)
    count = int(seconds / interval)
    return [
        Sample(
            at=clock(n * interval),
            seconds=round(n * interval, 3),
            gpus=tuple(gpu.sample(index, n * interval, dice) for index, gpu in enumerate(gpus)),
            tree=beside,
        )
        for n in range(count)
    ]


def clock(seconds: float) -> str:
    return f"2026-11-20T06:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}.000Z"


def loop(compute: float, wait: float) -> Use:
    """A training step after step: so many seconds of kernels, then so many without."""

    def busy_until(at: float) -> float:
        whole, rest = divmod(at, compute + wait)
        return whole * compute + min(rest, compute)

    def use(at: float) -> float:
        return 100 * (busy_until(at + 1) - busy_until(at))

    return use


def between(start: float, end: float, use: Use | float, otherwise: Use | float = 0.0) -> Use:
    return lambda at: value(use if start <= at < end else otherwise, at) or 0.0


def pausing(use: float, work: float, pause: float) -> Use:
    """Work with a pause after it, again and again."""
    return lambda at: use if at % (work + pause) < work else 0.0
