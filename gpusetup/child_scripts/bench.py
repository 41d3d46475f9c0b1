"""Runs real training steps with one setting and measures them: the trials of `gpusetup tune`.

The target interpreter runs this file by its path. Each line of standard input is a request in JSON,
and each line of standard output is its answer (what the user's code prints goes to standard error).
After an answer with `"spent": true`, the next request needs a new process. Python 3.8 syntax.

    {"code": "module:function" | null, "pickle": path | null,
     "batch": 32, "steps": 12, "device": "auto|cpu|cuda",
     "amp": "bf16|fp16" | null, "compile": false,
     "memory_limit_bytes": null, "mode": "steps|devices", "seconds": 60,
     "timed": true, "loaded": false, "workers": 4 | null}
"""

from __future__ import annotations

import gc
import json
import math
import os
import random
import sys
import time
from multiprocessing.spawn import prepare
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
# With PYTHONSAFEPATH or `-P`, Python leaves a script's own folder off the path.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trace_step as steps  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trial_memory  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Answer = Dict[str, Any]


# --- what is trained ---------------------------------------------------------------------------


def saved_job(path: str) -> Callable[[], Answer]:
    """A job that the user's process has saved, as a function without parameters.

    To find classes of the user's script (`__main__`), we run that script under another name, as
    multiprocessing does; the file next to the job names the script and its import path.
    """
    with open(path + ".json", encoding="utf-8") as file:
        prepare(json.load(file))

    def build() -> Answer:
        # The user's own process wrote the file, so loading arbitrary classes from it is safe.
        job = torch.load(path, weights_only=False)
        # A part that the user did not give may be None.
        return {name: part for name, part in job.items() if part is not None}

    return build


# --- the steps ---------------------------------------------------------------------------------

LEAST_SECONDS = 1.0
"""Steps are timed for at least this long, because a disturbance lasts for many short steps."""
ROUNDS = 5
"""Steps are timed in this many rounds."""
BURSTS = 2
"""In each round, the timed steps use at least this many batches of each loader worker."""
LOSS_STEPS = 20
"""This many first losses are kept, to compare settings that start with the same seed."""
MOST_READY = 16
"""The most batches that loader workers may have ready before steps are timed."""


class SettingTrial:
    """A trial of one setting, ready to run steps."""

    def __init__(self, request: Answer) -> None:
        # Every trial has the same weights and samples.
        random.seed(0)
        torch.manual_seed(0)
        self.device = trial_memory.device_of(request)
        self.batch_size: int = request["batch"]
        code = request.get("code")
        function = steps.function_named(code) if code else saved_job(request["pickle"])
        # This also limits the memory, so it comes before the user's function allocates any.
        self.memory = trial_memory.memory_of(self.device, request)
        self.job = steps.job_for(function, self.batch_size)
        model = self.job.model.to(self.device).train()
        steps.create_optimizer(self.job)
        self.job.model = torch.compile(model) if request.get("compile") else model
        self.job.batch = self.moved(self.job.batch)
        device_type, amp = self.device.partition(":")[0], request.get("amp")
        self.cast = steps.autocast(device_type, amp)
        # In fp16, small gradients would become 0, so scale the loss. The initial scale is small,
        # because a step that is skipped for an overflow leaves the optimizer without states.
        is_scaled = amp == "fp16" and device_type == "cuda"
        self.scaler = torch.amp.GradScaler("cuda", init_scale=256.0) if is_scaled else None
        self.losses: List[Any] = []
        self.batches: Optional[Iterator[Any]] = None
        """The batches that the steps train on in turn; if None, all train on the same batch."""

    def moved(self, batch: Any) -> Any:
        """The batch, moved to the device."""

        def to_device(leaf: Any) -> Any:
            # Names and numbers stay on the host.
            return leaf.to(self.device, non_blocking=True) if hasattr(leaf, "to") else leaf

        return steps.map_leaves(batch, to_device)

    def step(self, begin: Callable[[str], None] = lambda _: None) -> None:
        """Run one training step; calls `begin` at the start of each phase."""
        if self.batches is not None:
            self.job.batch = self.moved(next(self.batches))
        self.loss = steps.step(self.job, self.cast, begin, self.scaler)
        # Later losses are from other samples, or from more steps than other settings run.
        if self.batches is None and len(self.losses) < LOSS_STEPS:
            self.losses.append(self.loss)

    def read(self) -> Dict[str, Optional[int]]:
        """Run one step, waiting after each phase; returns the peak of each (None if unknown)."""
        peaks: Dict[str, Optional[int]] = {}
        begun: List[str] = []

        def begin(phase: str) -> None:
            # The peak so far belongs to the phase that ends now.
            if begun:
                peaks[begun[-1]] = self.memory.peak()
            begun.append(phase)
            self.memory.begin()

        self.step(begin)
        return peaks

    def timed(self, count: int) -> float:
        """The seconds per step, over several steps without waiting for the device in between."""
        began = time.perf_counter()
        for _ in range(count):
            self.step()
        # Wait, because the device may not have finished yet.
        self.memory.finish()
        return (time.perf_counter() - began) / count

    def start_loader(self, workers: Optional[int], most_seconds: float) -> Answer:
        """From now on, take each step's batch from the data set's loader, as in training.

        When the first batch arrives, the workers have some more ready. Use these up first, or the
        steps would seem faster than the loader is.
        """
        dataset = self.job.dataset
        if workers is None:
            workers = int(getattr(dataset, "num_workers", 0))
        # Use a new order in each trial, because the data that the last trial read are in the
        # system's cache.
        seed = int.from_bytes(os.urandom(4), "little")
        self.batches = steps.batches_of(dataset, self.batch_size, workers, seed)
        ends = time.monotonic() + most_seconds
        # By default, torch prepares two batches per worker.
        ready = min(MOST_READY, workers * (getattr(dataset, "prefetch_factor", None) or 2))
        for _ in range(1 + ready):
            self.step()
            if time.monotonic() > ends:
                break
        self.memory.finish()
        return {"workers": workers, "dataset_length": steps.length_of(dataset)}


def run_steps(request: Answer) -> Answer:
    """Run a step to warm up, then steps whose memory is measured until it is steady, and then steps
    that are timed.

    Without `timed`, the speed comes from the measured steps, which wait after each phase. With
    `loaded`, the timed steps take their batches from the job's data set, if it has one.
    """
    trial = SettingTrial(request)
    # The first step loads kernels, and creates the optimizer's states.
    trial.step()
    memory = trial.memory
    most_seconds = float(request.get("seconds") or 60)
    ends = time.monotonic() + most_seconds
    static_bytes = memory.now()
    rows: List[Dict[str, Optional[int]]] = []
    seconds: List[float] = []
    # Measure at least one step, however little time there is.
    while len(rows) < request["steps"] and (not rows or time.monotonic() < ends):
        began = time.perf_counter()
        rows.append(trial.read())
        seconds.append(time.perf_counter() - began)
        if trial_memory.is_steady(rows):
            break
    loader: Answer = {}
    busy = None
    if request.get("timed", True):
        loader, seconds = timed_steps(trial, request, seconds, ends)
        busy = memory.busy()
    trial.batches = None  # ends the loader's workers
    return {
        **summary(rows, seconds, request["batch"]),
        **loader,
        "static_bytes": static_bytes,
        "utilization_percent": busy,
        "loss": finite(trial.loss),
        "losses": [finite(loss) for loss in trial.losses],
    }


def timed_steps(
    trial: SettingTrial, request: Answer, seconds_read: List[float], ends: float
) -> Tuple[Answer, List[float]]:
    """The loader's settings, if batches come from one, and the seconds per step in several rounds.

    `seconds_read` contains the seconds of the measured steps, from which we estimate how many steps
    there is time for.
    """
    most_steps = request["steps"]
    step_seconds = min(seconds_read)
    loader: Answer = {}
    if request.get("loaded") and trial.job.dataset is not None:
        # At most half of the time is for starting the loader.
        loader = trial.start_loader(request.get("workers"), (ends - time.monotonic()) / 2)
        step_seconds = trial.timed(1)
        # Workers deliver batches in bursts, one per worker, so rounds of one or two steps would
        # differ greatly.
        most_steps = max(most_steps, ROUNDS * BURSTS * loader["workers"])
    wanted_steps = max(most_steps, LEAST_SECONDS / step_seconds)
    affordable_steps = max(0.0, ends - time.monotonic()) / step_seconds
    count = int(min(wanted_steps, affordable_steps))
    # A single round would not show how much the times vary.
    rounds = range(min(ROUNDS, max(2, count)))
    return loader, [trial.timed(max(1, count // ROUNDS)) for _ in rounds]


def finite(loss: Any) -> Optional[float]:
    """A loss as a number; None for NaN and infinity, which JSON does not support. It may overflow
    in mixed precision."""
    number = float(loss)
    return number if math.isfinite(number) else None


def summary(rows: List[Dict[str, Optional[int]]], seconds: List[float], batch: int) -> Answer:
    """Summarise the steps: the median of their times and the means of their peaks.

    >>> summary([{"forward": 10}, {"forward": 12}], [0.5, 0.5], 8)["phases"]
    {'forward': 11}
    """
    phases = {}
    for name in rows[0]:
        sizes = [row[name] for row in rows]
        known = [size for size in sizes if size is not None]
        # A device reports a phase's peak in every step, or in none.
        if len(known) == len(rows):
            phases[name] = sum(known) // len(rows)
    ordered = sorted(seconds)
    middle = ordered[len(ordered) // 2]
    # If there are four times or more, leave out the fastest and the slowest quarter, because a
    # disturbance of the machine affects only a few steps.
    quarter = len(ordered) // 4
    spread = 100 * (ordered[-1 - quarter] - ordered[quarter]) / middle
    return {
        "status": "ok",
        "phases": phases,
        "peak_bytes": max(map(trial_memory.highest, rows)) if phases else None,
        "samples_per_second": batch / middle,
        "spread_percent": spread if len(seconds) > 1 else None,
    }


# --- requests and answers -------------------------------------------------------------------------


def run_devices(request: Answer) -> Answer:
    """The available device and its name, how much of its memory may be used, whether its memory can
    be measured (`counts`), and its 16-bit type (`half`)."""
    device = trial_memory.device_of(request)
    is_cuda = device.startswith("cuda")
    memory = trial_memory.memory_of(device, request)
    # GPUs older than Ampere emulate bf16, which is slow.
    is_old = is_cuda and torch.cuda.get_device_capability(device) < (8, 0)
    return {
        "status": "ok",
        "device": device,
        "limit_bytes": memory.limit,
        "name": torch.cuda.get_device_name(device) if is_cuda else "the CPU",
        "counts": memory.peak() is not None,
        "half": "fp16" if is_old else "bf16",
    }


RETURNS = (
    "the function takes the batch size (or nothing) and returns model and batch, or a dict with "
    "'model', 'batch', 'loss', 'optimizer', 'dataset'"
)
NEEDS_LOSS = "also return a loss: a function of the model's output and the target"
LONGEST_ERROR = 2000
"""The most characters of an error message: torch's may list every kernel."""


def description(problem: BaseException) -> str:
    """An error's class and message, with a hint in the last line if we know one.

    >>> description(ValueError("no data"))
    'ValueError: no data'
    """
    text = str(problem)[:LONGEST_ERROR]
    if isinstance(problem, steps.NoLoss):
        return "%s\nhint: %s" % (text, NEEDS_LOSS)
    if isinstance(problem, steps.Contract):
        return "%s\nhint: %s" % (text, RETURNS)
    return "%s: %s" % (type(problem).__name__, text)


LEFT_BYTES = 64 << 20
"""How many bytes a trial may leave behind in a process that runs the next one: cuBLAS keeps
workspaces of up to 32 MiB. More than this belongs to the user's code, and would distort the next
size."""


def answer_request(request: Answer) -> Answer:
    """Run a request. It is the process's last one if it would distort the next size: after a
    compiled model, an unexpected error, or a trial whose memory cannot be freed."""
    try:
        if request["mode"] == "devices":
            return run_devices(request)
        answer = run_steps(request)
    except BaseException as problem:
        # Any exception of the user's code, even SystemExit, is the answer.
        answer = {"status": "error", "detail": description(problem)}
    # A batch that does not fit is an expected answer, and torch frees its memory.
    is_sound = answer["status"] == "ok" or "OutOfMemoryError" in answer["detail"]
    # The compiler does not free the memory of compiled code.
    is_reusable = is_sound and not request.get("compile")
    return {**answer, "spent": not is_reusable or left_bytes(request) > LEFT_BYTES}


def left_bytes(request: Answer) -> float:
    """Free the last trial's memory. Returns how many bytes of it are left on the GPU, infinity if
    unknown. On the CPU, bytes that are left only make the next sizes seem larger."""
    gc.collect()
    if request.get("device") != "cpu" and torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            return int(torch.cuda.memory_allocated())
        except Exception:  # a driver in a bad state may raise anything
            return math.inf
    return 0


def serve() -> None:
    """Answer each line of stdin, on streams that no other code can read or write."""
    requests = os.fdopen(os.dup(0), "rb")
    # If the user's code reads from stdin, it gets an empty input.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    driver_answers.separate_output(to=2)
    sys.stdout = sys.stderr
    for line in requests:
        answer = answer_request(json.loads(line))
        driver_answers.say(answer)
        if answer.get("spent"):
            break


if __name__ == "__main__":
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != HERE]
    serve()
    os._exit(0)
