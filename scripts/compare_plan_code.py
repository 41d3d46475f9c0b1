"""Compares `plan --code` with what real steps on the CPU allocate, and prints the errors.

    python scripts/compare_plan_code.py [--short] [--only NAME]... [--json]

Each workload runs twice: on fake tensors in a child of this interpreter
(gpusetup/child_scripts/trace_code.py), and for real, where the profiler records every allocation
and release of torch's CPU allocator. Both run the same step
(gpusetup/child_scripts/trace_step.py); FSDP2 runs for real in as many gloo processes
as it names, and the copies that gloo makes for itself are left out. The exit code is 1 when a
workload misses its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from gpusetup.commands.plan_trace import trace  # noqa: E402
from gpusetup.plan.code.trace import CodeRequest  # noqa: E402

INSIDE = HERE.parent / "gpusetup" / "child_scripts"
WORKLOADS = "compare_workloads"
SECONDS = 600.0
LETTING_GO_SECONDS = 0.05
AGAIN = 2
"""How often a step of several processes is run again where it seems to take more than traced: a
release by gloo's own thread is not seen, which makes the real peak look higher, never lower."""


@dataclass(frozen=True)
class Case:
    """One workload, and the relative error that its peak may have, in percent."""

    function: str
    batch: int
    limit_percent: float
    amp: str | None = None
    checkpointing: bool = False
    gpus: int = 1
    strategy: str = "fsdp"
    optimizer: str = "adamw"
    foreach: bool = False

    @property
    def name(self) -> str:
        extras = (self.amp, "checkpointing" if self.checkpointing else None)
        shards = f"{self.strategy} x{self.gpus}" if self.gpus > 1 else None
        form = "foreach" if self.foreach else None
        optimizer = self.optimizer if self.optimizer != "adamw" else None
        return " ".join(filter(None, (self.function, *extras, shards, optimizer, form)))

    def request(self) -> CodeRequest:
        """What `plan --code` is asked."""
        return CodeRequest(
            code=f"{WORKLOADS}:{self.function}",
            batch=self.batch,
            amp=self.amp,  # type: ignore[arg-type]
            checkpointing=self.checkpointing,
            strategy=self.strategy if self.gpus > 1 else "single",
            gpus=self.gpus,
            optimizer=self.optimizer,
            foreach=self.foreach,
            as_on="cpu",
            line=False,
        )


SHORT = (
    Case("transformer", 16, 1, amp="bf16", checkpointing=True),
    Case("mlp", 2048, 1, foreach=True),
    Case("convnet", 16, 5),
    Case("transformer", 8, 6, gpus=2),
)
"""What the tests run."""
LONG = (
    *(
        Case(name, batch, limit, amp, checkpointing)
        for name, batch, limit in (
            ("transformer", 16, 1),
            ("mlp", 2048, 1),
            ("convnet", 16, 5),
        )
        for amp in (None, "bf16")
        for checkpointing in (False, True)
    ),
    Case("mlp", 16, 1),
    Case("mlp", 16, 1, foreach=True),
    Case("mlp", 16, 1, optimizer="sgd"),
    Case("transformer", 1, 1, foreach=True),
    Case("hugging", 4, 1),
    Case("hugging", 4, 1, "bf16", True),
    *(
        Case(name, 8, 6, amp, checkpointing, gpus)
        for name in ("transformer", "mlp")
        for gpus in (2, 4)
        for amp, checkpointing in ((None, False), ("bf16", False), (None, True), ("bf16", True))
    ),
    Case("transformer", 1, 6, gpus=4),
    Case("transformer", 8, 6, gpus=2, strategy="ddp"),
    Case("mlp", 8, 6, "bf16", gpus=2, strategy="ddp"),
    Case("mlp", 8, 6, gpus=2, strategy="zero1"),
    Case("mlp", 8, 6, gpus=4, strategy="zero1"),
)


# --- the real step, in a child -----------------------------------------------------------------


def real(case: Case, rank: int, store: str) -> dict[str, int]:
    """The peak of each phase of a real step, from the events of the allocator."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.profiler import ProfilerActivity, profile, record_function

    sys.path.insert(0, str(HERE))
    steps = sibling("trace_step")
    workloads = __import__(WORKLOADS)
    mesh = gloo_mesh(case.gpus, rank, store) if case.gpus > 1 else None
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        job = steps.made(getattr(workloads, case.function), case.batch)
        before = steps.names_of(job.model)
        job.model.train()
        if case.checkpointing:
            steps.checkpoint(job.model)
        if case.gpus > 1 and case.strategy == "fsdp":
            steps.shard(job.model, mesh, case.amp)
        elif case.gpus > 1:
            job.model = torch.nn.parallel.DistributedDataParallel(job.model)
        now = dict(job.model.named_parameters())
        if case.strategy == "zero1":
            job.optimizer = partial(ZeroRedundancyOptimizer, optimizer_class=torch.optim.AdamW)
        optimizer = steps.optimizer_of(job, case.optimizer, case.foreach, before, now)
        steps.warm(optimizer)

        def begin(phase: str) -> None:
            with record_function(f"phase:{phase}"):
                pass

        amp = None if case.gpus > 1 and case.strategy == "fsdp" else case.amp
        for _ in range(2):
            steps.step(job, optimizer, amp, begin, lambda: None)
    return peaks(profiled.profiler.kineto_results.experimental_event_tree())


def peaks(tree: Any) -> dict[str, int]:
    """Phase -> most bytes at once, in the last step that the events show."""
    most: dict[str, int] = {}
    total, phase = 0, "before"
    ours: set[int] = set()
    for event, inside in sorted(events(tree), key=lambda one: one[0].start_time_ns):
        if event.name.startswith("phase:"):
            phase = event.name[6:]
            most[phase] = total
            continue
        size, place = event.extra_fields.alloc_size, event.extra_fields.ptr
        if size > 0 and not inside:
            ours.add(place)
            total += size
        elif place in ours:  # not something that was there before the profile began
            ours.discard(place)
            total += size
        most[phase] = max(most.get(phase, 0), total)
    return most


def events(tree: Any) -> list[tuple[Any, bool]]:
    """The marks of phases and the allocator's events, and whether each is inside a collective.

    Those are gloo's own copies, which its threads release some time later (NCCL has none).
    """
    found: list[tuple[Any, bool]] = []
    waiting = [(event, False) for event in tree]
    while waiting:
        event, inside = waiting.pop()
        below = inside or event.name.startswith("c10d::")
        waiting += [(child, below) for child in event.children]
        if event.name == "[memory]" or event.name.startswith("phase:"):
            found.append((event, inside))
    return found


def gloo_mesh(gpus: int, rank: int, store: str) -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=gpus)
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
        setattr(dist, name, unhurried(getattr(dist, name)))
    return init_device_mesh("cpu", (gpus,))


def unhurried(collective: Any) -> Any:
    """The collective, and a moment in which gloo's thread lets go of its tensors.

    The profiler hears only of what this thread releases: what is last held by another one would
    seem to stand for ever.
    """

    def run(*arguments: Any, **keywords: Any) -> Any:
        work = collective(*arguments, **keywords)
        if work is not None:
            work.wait()
        time.sleep(LETTING_GO_SECONDS)
        return work

    return run


def sibling(name: str) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, INSIDE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- both, and the table -----------------------------------------------------------------------


def traced(case: Case) -> dict[str, int]:
    found = trace(case.request(), seconds=SECONDS, folder=str(HERE))
    return dict(found.asked.phases)


def measured(case: Case) -> dict[str, int]:
    """The peaks of the real step: here, or where it has several processes, in them (rank 0's)."""
    if case.gpus == 1:
        return real(case, 0, "")
    with tempfile.TemporaryDirectory() as folder:
        words = json.dumps(vars(case)), str(Path(folder, "store"))
        argv = [sys.executable, str(Path(__file__).resolve()), "--real", *words]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback()}
        children = [
            subprocess.Popen(
                [*argv, str(rank)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank in range(case.gpus)
        ]
        said = [child.communicate(timeout=SECONDS)[0] for child in children]
    if any(child.returncode for child in children):
        raise SystemExit(f"{case.name}: the real step failed")
    return dict(json.loads(said[0].strip().rpartition("\n")[2]))


def loopback() -> str:
    """The name of the loopback interface."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def compared(case: Case) -> dict[str, Any]:
    """One row of the table: peaks in MiB and errors in percent, by phase and overall."""
    fake, true = traced(case), measured(case)
    for _ in range(AGAIN if case.gpus > 1 else 0):
        if max(true.values()) <= max(fake.values()) * (1 + case.limit_percent / 100):
            break
        once_more = measured(case)
        true = {phase: min(size, once_more[phase]) for phase, size in true.items()}
    row: dict[str, Any] = {"case": case.name, "batch": case.batch, "limit": case.limit_percent}
    for phase in ("forward", "backward", "optimizer"):
        row[phase] = percent(fake[phase], true[phase])
    top_fake, top_true = (max(said[p] for p in fake) for said in (fake, true))
    row |= {"traced_mib": top_fake / 2**20, "real_mib": top_true / 2**20}
    return row | {"peak": percent(top_fake, top_true)}


def percent(found: int, true: int) -> float:
    return 100 * (found - true) / true


def line(row: dict[str, Any]) -> str:
    errors = "".join(f"{row[key]:+9.2f}" for key in ("forward", "backward", "optimizer", "peak"))
    verdict = "" if abs(row["peak"]) <= row["limit"] else "  MISSED"
    return (
        f"{row['case']:38}{row['batch']:6}{row['traced_mib']:10.1f}{row['real_mib']:10.1f}"
        f"{errors}{row['limit']:7g}{verdict}"
    )


HEAD = (
    f"{'workload':38}{'batch':>6}{'traced':>10}{'real MiB':>10}"
    f"{'forward':>9}{'backward':>9}{'optim.':>9}{'peak %':>9}{'limit':>7}"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="only what the tests run")
    parser.add_argument("--only", action="append", default=[], help="cases with this in their name")
    parser.add_argument("--json", action="store_true", help="one JSON line a case")
    parser.add_argument("--real", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.real:
        case, store, rank = options.real
        print(json.dumps(real(Case(**json.loads(case)), int(rank), store)))
        return 0
    cases = [
        case
        for case in (SHORT if options.short else LONG)
        if not options.only or any(word in case.name for word in options.only)
    ]
    print("" if options.json else HEAD + "\n", end="")
    missed = 0
    for case in cases:
        row = compared(case)
        missed += abs(row["peak"]) > row["limit"]
        print(json.dumps(row) if options.json else line(row), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
