"""One trial of `gpusetup tune`: real training steps of one setting, and what they took.

`bench.py` runs it, and answers with what it says. Python 3.8 syntax.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from multiprocessing.spawn import prepare
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
# Python leaves a script's own folder off the path under PYTHONSAFEPATH or `-P`.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import trace_step as steps  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trial_memory  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Answer = Dict[str, Any]

# --- what is trained ---------------------------------------------------------------------------


def saved_job(path: str) -> Callable[[], Answer]:
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


# --- the steps ---------------------------------------------------------------------------------


LEAST_SECONDS = 0.5
"""Steps are timed for so long at least: what disturbs them lasts for many short ones. A request may
ask for more."""
ROUNDS = 5
"""Steps are timed in so many rounds."""
BURSTS = 2
"""How many batches of each loader worker a round of timed steps uses at least."""
LOSS_STEPS = 20
"""The losses of so many first steps are kept: with the same seed they can be compared."""
MOST_READY = 16
"""Batches at most that loader workers have ready before steps are timed."""


class Trial:
    """One setting, ready to run steps."""

    def __init__(self, request: Answer) -> None:
        random.seed(0)  # the same weights and samples in every trial
        torch.manual_seed(0)
        self.device = trial_memory.device_of(request)
        self.batch_size: int = request["batch"]
        code = request.get("code")
        function = steps.function_named(code) if code else saved_job(request["pickle"])
        self.memory = trial_memory.memory_of(self.device, request)
        self.imported_bytes = self.memory.now()
        """What is taken before anything is made: the same for every size in one process."""
        job = steps.job_for(function, self.batch_size)
        model = job.model.to(self.device).train()
        steps.optimizer_of(job, request.get("optimizer") or "adamw")
        self.job, job.batch = job, self.moved(job.batch)
        job.model = torch.compile(model) if request.get("compile") else model
        self.cast = steps.autocast(self.device.partition(":")[0], request.get("amp"))
        scaled = request.get("amp") == "fp16" and self.device.startswith("cuda")
        # A small scale: where a step is skipped for an overflow, the optimizer has no states.
        self.scaler = torch.amp.GradScaler("cuda", init_scale=256.0) if scaled else None
        self.losses: List[Any] = []
        self.batches: Optional[Iterator[Any]] = None
        """Where each step takes its batch from; None: all steps train on one batch."""

    def moved(self, batch: Any) -> Any:
        """A batch on the device."""

        def to_device(leaf: Any) -> Any:
            return leaf.to(self.device, non_blocking=True) if hasattr(leaf, "to") else leaf

        return steps.map_leaves(batch, to_device)

    def step(self, begin: Callable[[str], None] = lambda _: None) -> None:
        if self.batches is not None:
            self.job.batch = self.moved(next(self.batches))
        loss = steps.step(self.job, self.cast, begin, self.scaler)
        # Those after are of other samples, or of more steps than another setting runs.
        if self.batches is None and len(self.losses) < LOSS_STEPS:
            self.losses.append(loss)
        self.loss = loss

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

    def complete_losses(self, step_seconds: float, most_seconds: float) -> None:
        """More steps on the one batch, so that as many losses as possible can be compared."""
        missing = LOSS_STEPS - len(self.losses)
        for _ in range(int(min(missing, most_seconds / step_seconds))):
            self.step()

    def start_loader(self, workers: Optional[int], most_seconds: float) -> Answer:
        """From now on each step takes its batch from the data set's loader, as training does.

        Workers are ahead by some batches when the first one arrives. These are used up first, or
        the steps would seem faster than the loader is.
        """
        dataset = self.job.dataset
        if workers is None:
            workers = int(getattr(dataset, "num_workers", 0))
        # Another order each time: what the last trial read is in the system's cache.
        seed = int.from_bytes(os.urandom(4), "little")
        self.batches = steps.batches_of(dataset, self.batch_size, workers, seed)
        ends = time.monotonic() + most_seconds
        ahead = min(MOST_READY, workers * (getattr(dataset, "prefetch_factor", None) or 2))
        for _ in range(1 + ahead):
            self.step()
            if time.monotonic() > ends:
                break
        self.memory.finish()
        return {"workers": workers, "dataset_length": steps.length_of(dataset)}


def run_steps(request: Answer) -> Answer:
    """Warm-up, steps whose memory is read until it is steady, and then steps that are timed.

    Without `timed` the speed is that of the steps that were read, which wait after each phase.
    With `loaded` the timed steps take their batches from the job's data set, if it has one.
    """
    trial, most_steps = Trial(request), request["steps"]
    for _ in range(request.get("warm", 1)):
        trial.step()
    memory, ends = trial.memory, time.monotonic() + float(request.get("seconds") or 60)
    rows: List[Dict[str, Optional[int]]] = []
    seconds: List[float] = []
    static_bytes = memory.now()
    while len(rows) < most_steps and (not rows or time.monotonic() < ends):
        began = time.perf_counter()
        rows.append(trial.read())
        seconds.append(time.perf_counter() - began)
        if trial_memory.is_steady(rows):
            break
    loader: Answer = {}
    busy = None
    if request.get("timed", True):
        if request.get("loaded") and trial.job.dataset is not None:
            trial.complete_losses(min(seconds), (ends - time.monotonic()) / 4)
            loader = trial.start_loader(request.get("workers"), (ends - time.monotonic()) / 2)
            seconds = [trial.timed(1)]
            # Workers deliver in bursts, one batch each: a round of a step or two would show these.
            most_steps = max(most_steps, ROUNDS * BURSTS * loader["workers"])
        least_seconds = request.get("least_seconds") or LEAST_SECONDS
        wished_steps = max(most_steps, least_seconds / min(seconds))
        seconds = timed_rounds(trial, min(seconds), wished_steps, ends)
        busy = memory.busy()
    trial.batches = None  # ends the workers
    losses = [finite(loss) for loss in trial.losses]
    return {
        **summary(rows, seconds, request["batch"]),
        **loader,
        "static_bytes": static_bytes,
        "reserved_bytes": memory.reserved(),
        "imported_bytes": trial.imported_bytes,
        "utilization_percent": busy,
        "loss": finite(trial.loss),
        "losses": losses,
    }


def timed_rounds(trial: Trial, step_seconds: float, wished: float, ends: float) -> List[float]:
    """The seconds of a step in some rounds of steps, two rounds at least."""
    affordable = max(0.0, ends - time.monotonic()) / step_seconds
    count = int(min(wished, affordable))
    rounds = min(ROUNDS, max(2, count))
    return [trial.timed(max(1, count // ROUNDS)) for _ in range(rounds)]


def finite(loss: Any) -> Optional[float]:
    """A loss as a number; None for NaN and infinity, which JSON does not have."""
    number = float(loss)
    return number if math.isfinite(number) else None


def summary(rows: List[Dict[str, Optional[int]]], seconds: List[float], batch: int) -> Answer:
    """What the steps took together: the middle of their times, the means of their peaks.

    >>> summary([{"forward": 10}, {"forward": 12}], [0.5, 0.5], 8)["phases"]
    {'forward': 11}
    """
    phases = {}
    for name in rows[0]:
        sizes = [row[name] for row in rows]
        known_sizes = [size for size in sizes if size is not None]
        if len(known_sizes) == len(rows):
            phases[name] = sum(known_sizes) // len(rows)
    peaks = [trial_memory.highest(row) for row in rows]
    half_range = (max(peaks) - min(peaks)) / 2
    ordered, quarter = sorted(seconds), len(seconds) // 4
    middle = ordered[len(ordered) // 2]
    middle_half = ordered[-1 - quarter] - ordered[quarter]
    spread = 100 * middle_half / middle
    return {
        "status": "ok",
        "phases": phases,
        "peak_bytes": max(peaks) if phases else None,
        "noise": half_range / max(1, max(peaks)),
        "readings": len(rows),
        "samples_per_second": batch / middle,
        "spread_percent": spread if len(seconds) > 1 else None,
    }
