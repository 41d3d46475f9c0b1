"""Recordings of the monitor, composed second by second, each with the verdict and the next step
that are right for what happens in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

GIB = 1 << 30
Value = Callable[[float], float] | float
"""A figure, or a function from the second to the figure."""
Part = Callable[[float], dict[str, Any]]
"""The figures of a GPU, of the command or of the machine at a second."""


def told(given: Value, at: float) -> float:
    return given(at) if callable(given) else given


def gpu(
    use: Value = 96, *, weight: Value = 0.85, memory: Value = 80, card: str = "A100", **more: Any
) -> Part:
    """A card of 80 GiB and 400 W; `weight`: how much of its power the kernels draw while they
    run."""

    def at(second: float) -> dict[str, Any]:
        now = told(use, second)
        return {
            "name": f"NVIDIA {card}",
            "utilization_percent": round(now),
            "memory_busy_percent": 40 * now / 100,
            "memory_used_bytes": int(80 * GIB * told(memory, second) / 100),
            "memory_total_bytes": 80 * GIB,
            "temperature_celsius": 66,
            "power_watts": 58 + 342 * now / 100 * told(weight, second),
            "power_limit_watts": 400,
            "power_limit_default_watts": 400,
            "clock_sm_mhz": 1354 if now else 282,
            "clock_sm_max_mhz": 1410,
            "throttle_reasons": [] if now else ["gpu_idle"],
            "processes": [{"pid": 4000, "name": "python", "kind": "compute"}],
            **{name: told(it, second) for name, it in more.items()},
        }

    return at


def tree(
    main: Value = 40,
    *,
    workers: int = 0,
    each: Value = 0,
    helpers: float = 0,
    io: Mapping[str, Value] = MappingProxyType({}),
    **more: Any,
) -> Part:
    """The command: `main` is the CPU of its busiest process, `each` that of a loader worker, `io`
    what it reads and writes."""

    def at(second: float) -> dict[str, Any]:
        busiest, of_workers = told(main, second), workers * told(each, second)
        figures = {name: told(it, second) for name, it in {**io, **more}.items()}
        return {
            "processes": 1 + workers,
            "cpu_percent": busiest + of_workers + helpers,
            "busiest_cpu_percent": busiest,
            "memory_bytes": 6 * GIB,
            "read_bytes_per_second": 0,
            "input_bytes_per_second": figures.get("read_bytes_per_second", 0),
            "write_bytes_per_second": 0,
            "loader_workers": workers,
            "loader_cpu_percent": of_workers,
            "cores": 16,
            "blocked_processes": 0,
            **figures,
        }

    return at


class Run(NamedTuple):
    said: str
    """`good/ none`: the verdict, its cause and the id of the next step."""
    gpus: tuple[Part, ...]
    tree: Part | None = None
    others: float = 20
    """CPU of everything beside the command."""
    cores: int = 16
    host: dict[str, float] = {}
    command: str | None = "python train.py --config conf/base.yaml"
    exit: int | None = None
    seconds: int = 90

    def text(self) -> str:
        """The recording as JSON lines."""
        head = {"schema": "gpusetup.monitor/1"}
        lines: list[dict[str, Any]] = []
        for second in range(self.seconds):
            command = self.tree(second) if self.tree else None
            machine = {
                "cores": self.cores,
                "cpu_percent": self.others + (command["cpu_percent"] if command else 0),
                "memory_used_bytes": 50 * GIB,
                "memory_total_bytes": 128 * GIB,
                "network_receive_bytes_per_second": 2e5,
                **self.host,
            }
            gpus = [{"index": index, **part(second)} for index, part in enumerate(self.gpus)]
            at = f"2026-11-20T06:{second // 60:02d}:{second % 60:02d}.000Z"
            sample = {**head, "kind": "sample", "at": at, "seconds": second, "gpus": gpus}
            lines.append({**sample, "tree": command, "host": machine})
        end = {"verdict": None, "evidence": "", "source": "nvml", "exit": self.exit}
        words = self.command.split() if self.command else None
        lines.append({**head, "kind": "summary", **end, "command": words})
        return "".join(json.dumps(line) + "\n" for line in lines)


# --- shapes over time -----------------------------------------------------------------------------


def loop(compute: float, wait: float) -> Value:
    """A training step after step: so many seconds of kernels, then so many without."""

    def busy_until(at: float) -> float:
        whole, rest = divmod(at, compute + wait)
        return whole * compute + min(rest, compute)

    return lambda at: 100 * (busy_until(at + 1) - busy_until(at))


def pausing(use: float, work: float, pause: float) -> Value:
    """Work with a pause after it, again and again."""
    return lambda at: use if at % (work + pause) < work else 0.0


def then(second: float, before: float, after: float) -> Value:
    return lambda at: before if at < second else after


READS, INPUTS = "read_bytes_per_second", "input_bytes_per_second"
WRITES, BLOCKED = "write_bytes_per_second", "blocked_processes"
HELD: dict[str, Any] = {"processes": lambda at: [{"pid": 1, "name": "python", "kind": "compute"}]}
EMPTY: dict[str, Any] = {"processes": lambda at: [], "memory": 0.1}
RANKS = tree(100, helpers=300, gpu_processes=4, cores=64)
HUNG = gpu(
    then(110, 96, 100), weight=then(110, 0.85, 0.08), memory_busy_percent=then(110, 40, 0),
    nvlink_rx_bytes_per_second=then(110, 8e10, 0), nvlink_tx_bytes_per_second=then(110, 8e10, 0),
)  # fmt: skip
LAPTOP = gpu(
    96, weight=0.3, card="GeForce RTX 4070 Laptop GPU", clock_sm_mhz=500,
    throttle_reasons=lambda at: ["sw_power_cap"],
)  # fmt: skip
BOTH = [{"pid": pid, "name": "python", "kind": "compute", "sm_percent": 48} for pid in (4000, 9000)]

RUNS: dict[str, Run] = {
    # Good runs, and cards that are held down.
    "workers keep up": Run("good/ none", (gpu(),), tree(70, workers=4, each=24)),
    "short evaluations": Run(
        "good/ none", (gpu(pausing(96, 65, 11)),), tree(70, workers=4, each=20), seconds=320),
    "a good run that was killed": Run(
        "None/failed read-how-it-ended", (gpu(),), tree(70, workers=4, each=24), exit=137),
    "a laptop on battery": Run("throttled/power limit plug-it-in", (LAPTOP,), command=None),
    "the work of others": Run(
        "throttled/others free-the-card", (gpu(97, processes=lambda at: BOTH),),
        tree(70, gpu_processes=1)),
    # GPUs that wait for each other, or for their host.
    "ranks over slow links": Run(
        "communication-bound/collectives fewer-bytes-between-gpus",
        (gpu(99, weight=0.24, memory_busy_percent=15, pcie_rx_bytes_per_second=14e9),) * 4,
        RANKS, cores=64, command="torchrun --nproc_per_node=4 train.py"),
    "one slow rank": Run(
        "uneven/less balance-the-work",
        (gpu(99, weight=0.88), *(gpu(100, weight=0.16, memory_busy_percent=6),) * 3),
        RANKS, cores=64, command="torchrun --nproc_per_node=4 train.py"),
    "a collective hangs": Run(
        "communication-bound/hang see-where-it-waits", (HUNG,) * 4, RANKS, cores=64,
        command="torchrun --nproc_per_node=4 train.py", exit=137, seconds=300),
    "an optimizer on the CPU": Run(
        "communication-bound/host stay-on-the-gpu",
        (gpu(55, weight=0.3, pcie_rx_bytes_per_second=20e9),), tree(350, workers=2, each=5),
        command="deepspeed train.py --deepspeed z3.json"),
    # GPUs that wait for their input.
    "busy workers": Run(
        "input-starved/workers more-workers", (gpu(loop(0.2, 0.4)),),
        tree(40, workers=2, each=94, io={READS: 1e7})),
    "no workers": Run(
        "input-starved/by-itself load-with-workers", (gpu(loop(0.1, 0.3)),),
        tree(98, io={INPUTS: 6e7})),
    "it waits in each step": Run(
        "input-starved/each-step see-where-it-waits", (gpu(loop(0.05, 0.1)),), tree(8)),
    "a slow disk": Run(
        "input-starved/storage faster-storage", (gpu(loop(0.1, 0.6)),),
        tree(12, workers=8, each=9, io={READS: 2e7, BLOCKED: 5})),
    "the machine swaps": Run(
        "memory-tight/host-memory use-less-host-memory", (gpu(loop(0.15, 0.9)),),
        tree(10, workers=4, each=6, io={READS: 1e8, BLOCKED: 3}),
        host={"memory_used_bytes": 127 * GIB}),
    "a container's quota": Run(
        "input-starved/cores more-cores", (gpu(loop(0.3, 0.7)),),
        tree(40, workers=4, each=38, cores=2), others=300, cores=48),
    "a small model without input": Run(
        "launch-bound/core larger-work", (gpu(20, memory=25, pcie_rx_bytes_per_second=2e8),),
        tree(99, io={INPUTS: 1e6})),
    "out of memory": Run(
        "memory-tight/before-the-end leave-a-margin", (gpu(96, memory=then(77, 80, 99.3)),),
        tree(70, workers=4, each=20), exit=1, seconds=80),
    "a language model answers": Run(
        "memory-bound/bus fewer-bytes",
        (gpu(99, weight=0.55, memory=70, memory_busy_percent=82),), tree(100),
        command="python generate.py"),
    # Little happens.
    "torch computes on the CPU": Run(
        "idle/unused see-whether-torch-can", (gpu(0, **EMPTY),), tree(1100)),
    "the model is on the CPU": Run(
        "idle/computes move-to-the-gpu", (gpu(0, memory=2, **HELD),), tree(1100)),
    "a server between requests": Run(
        "bursty/requests send-more-requests", (gpu(pausing(80, 2, 6), memory=90),), tree(35),
        command="python -m vllm.entrypoints.openai.api_server --model org/m", seconds=180),
    "checkpoints": Run(
        "bursty/pauses shorter-pauses", (gpu(pausing(97, 20, 25)),),
        tree(60, io={WRITES: lambda at: 6e8 if at % 45 >= 20 else 0}), seconds=400),
    "a job stands still": Run(
        "bursty/hang see-where-it-waits", (gpu(then(140, 96, 0)),), tree(then(140, 70, 0.3)),
        seconds=290),
    "CPU: one core computes": Run("cpu-bound/computes use-a-gpu", (), tree(100)),
    "CPU: it waits": Run("idle/waits see-where-it-waits", (), tree(3)),
}  # fmt: skip
"""What happens in a run -> the run. The labels were written for what happens, not for what a rule
makes of it."""
