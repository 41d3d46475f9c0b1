"""Runs real training steps of one setting and says what they took: the trials of `gpusetup tune`.

Run by the target interpreter by path; each line of standard input is a request in JSON, each line
of standard output its answer (what the user's code prints goes to standard error). `bench_serve.py`
says which requests share a process; after `"spent": true` the next one needs a fresh one. Python
3.8 syntax.

    {"code": "module:function" | null, "pickle": path | null,
     "batch": 32, "steps": 12, "warm": 1, "device": "auto|cpu|cuda",
     "amp": "bf16|fp16" | null, "compile": false, "optimizer": "adamw",
     "memory_limit_bytes": null, "mode": "steps|devices", "seconds": 60,
     "timed": true}
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import sys
import time
from multiprocessing.spawn import prepare
from typing import Any, Callable, Dict, List, Optional

import bench_serve  # type: ignore[import-not-found, unused-ignore]
import torch
import trace_step as steps  # type: ignore[import-not-found, unused-ignore]

HERE = os.path.dirname(os.path.abspath(__file__))
Answer = Dict[str, Any]
LEAST_SECONDS = 0.5
"""Steps are timed for so long at least: what disturbs them lasts for many short ones."""
ROUNDS = 5
"""Steps are timed in so many rounds."""


# --- what a trial takes of a GPU or of the host, and what it may take -----------------------------

KIB = 1024
LEAK_LEAST = 1 << 20
STEADY = 0.002
"""Two readings that lie no further apart, as a part of them, are one."""


def status(name: str) -> Optional[int]:
    """A size of /proc/self/status in bytes; None if there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        rows = dict(line.split(":", 1) for line in file)
        return int(rows[name].split()[0]) * KIB if name in rows else None
    return None


def steady(rows: List[Dict[str, Optional[int]]], stands: List[Optional[int]]) -> bool:
    """Whether one more step would tell nothing new.

    >>> steady([{"forward": 1000}, {"forward": 1001}], [5, 5, 5])
    True
    >>> steady([{"forward": 9 << 20}, {"forward": 9 << 20}], [0, 2 << 20, 4 << 20])
    False
    """
    if len(rows) < 2:
        return False
    grows = all((stands[i] or 0) - (stands[i - 1] or 0) >= LEAK_LEAST for i in (-2, -1))
    last, before = (max((one or 0 for one in row.values()), default=0) for row in rows[:-3:-1])
    return not grows and abs(last - before) <= STEADY * last


class Cuda:
    """What torch's CUDA allocator counts."""

    def __init__(self, limit: Optional[int]) -> None:
        self.cuda: Any = torch.cuda
        free, total = self.cuda.mem_get_info()
        self.limit = free + self.cuda.memory_reserved()
        self.limit = min(self.limit, limit or self.limit)
        # Always: the drivers of Windows and WSL give the host's memory instead of saying no, and a
        # batch that spills into it would seem to fit.
        self.cuda.set_per_process_memory_fraction(min(1.0, self.limit / total))

    def finish(self) -> None:
        self.cuda.synchronize()

    def begin(self) -> None:
        self.finish()
        self.cuda.reset_peak_memory_stats()

    def peak(self) -> Optional[int]:
        self.finish()
        return int(self.cuda.max_memory_allocated())

    def now(self) -> Optional[int]:
        return int(self.cuda.memory_allocated())

    def busy(self) -> Optional[float]:
        """What NVML says of the last moments, in percent; None without its binding."""
        with contextlib.suppress(Exception):
            return float(self.cuda.utilization())
        return None


class Host:
    """What is resident of this process."""

    def __init__(self, limit: Optional[int]) -> None:
        self.limit = None
        """Its parent knows what the host has free."""
        if limit:  # a guess that is far off must not take the host's memory
            with contextlib.suppress(ImportError, OSError, ValueError):
                import resource

                most = (status("VmSize") or 0) + limit + limit // 4
                resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    def finish(self) -> None:
        """There is no device to wait for."""

    def begin(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    def peak(self) -> Optional[int]:
        return status("VmHWM")

    def now(self) -> Optional[int]:
        return status("VmRSS")

    def busy(self) -> Optional[float]:
        return None


# --- what is trained ---------------------------------------------------------------------------


def function_of(request: Answer) -> Callable[..., Any]:
    """The function that gives the model and its batch."""
    if request.get("code"):
        return steps.function_named(request["code"])  # type: ignore[no-any-return]
    return saved(request["pickle"])


def saved(path: str) -> Callable[[], Answer]:
    """A job that the user's process saved a moment ago, as a function without parameters.

    Classes of the user's script (`__main__`) are found by running that script under another name,
    as multiprocessing does.
    """
    with open(path + ".json", encoding="utf-8") as file:
        prepare(json.load(file))

    def build() -> Answer:
        job = torch.load(path, weights_only=False)
        return {key: value for key, value in job.items() if value is not None}

    return build


def device_of(request: Answer) -> str:
    wished = str(request.get("device") or "auto")
    if wished.startswith("cuda:"):
        torch.cuda.set_device(wished)  # what counts memory and time asks the current device
    return ("cuda" if torch.cuda.is_available() else "cpu") if wished == "auto" else wished


def memory_of(device: str, request: Answer) -> Any:
    kind = Cuda if device.startswith("cuda") else Host
    return kind(request.get("memory_limit_bytes"))


# --- the steps ---------------------------------------------------------------------------------


class Trial:
    """One setting, ready to run steps."""

    def __init__(self, request: Answer) -> None:
        random.seed(0)  # the same weights and samples in every trial
        torch.manual_seed(0)
        self.device = device_of(request)
        job = steps.made(function_of(request), request["batch"])
        self.memory = memory_of(self.device, request)
        model = job.model.to(self.device).train()
        steps.optimizer_of(job, request.get("optimizer") or "adamw")
        self.job, job.batch = job, steps.mapped(job.batch, self.moved)
        job.model = torch.compile(model) if request.get("compile") else model
        self.cast = steps.autocast(self.device.partition(":")[0], request.get("amp"))
        scaled = request.get("amp") == "fp16" and self.device.startswith("cuda")
        # A small scale: where a step is skipped for an overflow, the optimizer has no states.
        self.scaler = torch.amp.GradScaler("cuda", init_scale=256.0) if scaled else None
        self.loss: Any = None

    def moved(self, one: Any) -> Any:
        return one.to(self.device, non_blocking=True) if hasattr(one, "to") else one

    def step(self, begin: Callable[[str], None] = lambda _: None) -> None:
        self.loss = steps.step(self.job, self.cast, begin, self.scaler)

    def read(self) -> Dict[str, Optional[int]]:
        """One step, synchronised after each phase: phase -> its peak, where the device tells."""
        peaks: Dict[str, Optional[int]] = {}
        begun: List[str] = []

        def begin(phase: str) -> None:
            peaks.update((name, self.memory.peak()) for name in begun[-1:])
            begun.append(phase)
            self.memory.begin()

        self.step(begin)
        return peaks

    def timed(self, count: int) -> float:
        """The seconds of a step, of so many between which nothing waits for the device."""
        began = time.perf_counter()
        for _ in range(count):
            self.step()
        self.memory.finish()
        return (time.perf_counter() - began) / count


def run_steps(request: Answer) -> Answer:
    """Warm-up, steps whose memory is read until it is steady, and then steps that are timed.

    Without `timed` the speed is that of the steps that were read, which wait after each phase.
    """
    trial, most = Trial(request), request["steps"]
    for _ in range(request.get("warm", 1)):
        trial.step()
    memory, ends = trial.memory, time.monotonic() + float(request.get("seconds") or 60)
    rows: List[Dict[str, Optional[int]]] = []
    seconds: List[float] = []
    stands = [memory.now()]
    while len(rows) < most and (not rows or time.monotonic() < ends):
        began = time.perf_counter()
        rows.append(trial.read())
        seconds.append(time.perf_counter() - began)
        stands.append(memory.now())
        if steady(rows, stands):
            break
    busy = None
    if request.get("timed", True):
        left = max(0.0, ends - time.monotonic()) / min(seconds)
        count = int(min(max(most, LEAST_SECONDS / min(seconds)), left))
        each = max(1, count // ROUNDS)
        seconds = [trial.timed(each) for _ in range(min(ROUNDS, max(2, count)))]
        busy = memory.busy()
    loss = float(trial.loss)
    return {**summary(rows, seconds, request["batch"]), "static_bytes": stands[0],
            "utilization_percent": busy, "loss": loss if math.isfinite(loss) else None}  # fmt: skip


def summary(rows: List[Dict[str, Optional[int]]], seconds: List[float], batch: int) -> Answer:
    """
    >>> summary([{"forward": 10}, {"forward": 12}], [0.5, 0.5], 8)["phases"]
    {'forward': 11}
    """
    known = [name for name in rows[0] if all(row[name] is not None for row in rows)]
    peaks = [max((row[name] or 0 for name in known), default=0) for row in rows]
    ordered, cut = sorted(seconds), len(seconds) // 4
    middle = ordered[len(ordered) // 2]
    apart = 100 * (ordered[-1 - cut] - ordered[cut]) / middle
    return {
        "status": "ok",
        "phases": {name: sum(row[name] or 0 for row in rows) // len(rows) for name in known},
        "peak_bytes": max(peaks) if known else None,
        "noise": (max(peaks) - min(peaks)) / 2 / max(1, max(peaks)),
        "readings": len(rows),
        "samples_per_second": batch / middle,
        "spread_percent": apart if len(seconds) > 1 else None,
    }


def run_devices(request: Answer) -> Answer:
    """Which device there is, its name, and what may be used of its memory."""
    device = device_of(request)
    cuda = device.startswith("cuda")
    memory = memory_of(device, request)
    old = cuda and torch.cuda.get_device_capability(device) < (8, 0)
    return {"status": "ok", "device": device, "limit_bytes": memory.limit,
            "name": torch.cuda.get_device_name(device) if cuda else "the CPU",
            "counts": memory.peak() is not None, "half": "fp16" if old else "bf16"}  # fmt: skip


MODES: Dict[str, Callable[[Answer], Answer]] = {
    "steps": run_steps,
    "devices": run_devices,
}


def run(request: Answer) -> Answer:
    return MODES[request.get("mode") or "steps"](request)


if __name__ == "__main__":
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != HERE]
    bench_serve.serve(run)
    os._exit(0)
