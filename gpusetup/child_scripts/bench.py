"""Runs real training steps of one setting and says what they took: the trials of `gpusetup tune`.

Run by the target interpreter by path; each line of standard input is a request in JSON, each line
of standard output its answer (what the user's code prints goes to standard error). After
`"spent": true` the next request needs a fresh process. Python 3.8 syntax.

    {"code": "module:function" | null, "pickle": path | null,
     "batch": 32, "steps": 12, "warm": 1, "device": "auto|cpu|cuda",
     "amp": "bf16|fp16" | null, "compile": false, "optimizer": "adamw",
     "memory_limit_bytes": null, "mode": "steps|devices", "seconds": 60,
     "timed": true}
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import random
import sys
import tempfile
import time
from multiprocessing.spawn import prepare
from typing import Any, Callable, Dict, List, Optional

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
# Python leaves a script's own folder off the path under PYTHONSAFEPATH or `-P`.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import end_with_parent  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import trace_step as steps  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Answer = Dict[str, Any]
LEAST_SECONDS = 0.5
"""Steps are timed for so long at least: what disturbs them lasts for many short ones."""
ROUNDS = 5
"""Steps are timed in so many rounds."""


# --- what a trial takes of a GPU or of the host, and what it may take -----------------------------

KIB = 1024
STEADY_SHARE = 0.002
"""Two readings that lie no further apart, as a part of them, are one."""


def process_memory(name: str) -> Optional[int]:
    """A size of /proc/self/status in bytes; None if there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        rows = dict(line.split(":", 1) for line in file)
        return int(rows[name].split()[0]) * KIB if name in rows else None
    return None


def is_steady(rows: List[Dict[str, Optional[int]]]) -> bool:
    """Whether one more step would tell nothing new.

    >>> is_steady([{"forward": 1000}, {"forward": 1001}]), is_steady([{"forward": 900}])
    (True, False)
    """
    peaks = [max((one or 0 for one in row.values()), default=0) for row in rows[-2:]]
    return len(rows) > 1 and abs(peaks[1] - peaks[0]) <= STEADY_SHARE * peaks[1]


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

                most = (process_memory("VmSize") or 0) + limit + limit // 4
                resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    def finish(self) -> None:
        """There is no device to wait for."""

    def begin(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    def peak(self) -> Optional[int]:
        return process_memory("VmHWM")

    def now(self) -> Optional[int]:
        return process_memory("VmRSS")

    def busy(self) -> Optional[float]:
        return None


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


def device_of(request: Answer) -> str:
    wanted_device = str(request.get("device") or "auto")
    if wanted_device.startswith("cuda:"):
        torch.cuda.set_device(wanted_device)  # what counts memory and time asks the current device
    if wanted_device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return wanted_device


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
        code = request.get("code")
        function = steps.function_named(code) if code else saved_job(request["pickle"])
        job = steps.job_for(function, request["batch"])
        self.memory = memory_of(self.device, request)
        model = job.model.to(self.device).train()
        steps.optimizer_of(job, request.get("optimizer") or "adamw")
        self.job, job.batch = job, steps.map_leaves(job.batch, self.to_device)
        job.model = torch.compile(model) if request.get("compile") else model
        self.cast = steps.autocast(self.device.partition(":")[0], request.get("amp"))
        scaled = request.get("amp") == "fp16" and self.device.startswith("cuda")
        # A small scale: where a step is skipped for an overflow, the optimizer has no states.
        self.scaler = torch.amp.GradScaler("cuda", init_scale=256.0) if scaled else None
        self.loss: Any = None

    def to_device(self, one: Any) -> Any:
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
        if is_steady(rows):
            break
    busy = None
    if request.get("timed", True):
        steps_left = max(0.0, ends - time.monotonic()) / min(seconds)
        count = int(min(max(most_steps, LEAST_SECONDS / min(seconds)), steps_left))
        steps_a_round = max(1, count // ROUNDS)
        seconds = [trial.timed(steps_a_round) for _ in range(min(ROUNDS, max(2, count)))]
        busy = memory.busy()
    loss = float(trial.loss)
    return {**summary(rows, seconds, request["batch"]), "static_bytes": static_bytes,
            "utilization_percent": busy, "loss": loss if math.isfinite(loss) else None}  # fmt: skip


def summary(rows: List[Dict[str, Optional[int]]], seconds: List[float], batch: int) -> Answer:
    """
    >>> summary([{"forward": 10}, {"forward": 12}], [0.5, 0.5], 8)["phases"]
    {'forward': 11}
    """
    phases = [name for name in rows[0] if all(row[name] is not None for row in rows)]
    peaks = [max((row[name] or 0 for name in phases), default=0) for row in rows]
    ordered, quarter = sorted(seconds), len(seconds) // 4
    middle = ordered[len(ordered) // 2]
    spread = 100 * (ordered[-1 - quarter] - ordered[quarter]) / middle
    return {
        "status": "ok",
        "phases": {name: sum(row[name] or 0 for row in rows) // len(rows) for name in phases},
        "peak_bytes": max(peaks) if phases else None,
        "noise": (max(peaks) - min(peaks)) / 2 / max(1, max(peaks)),
        "readings": len(rows),
        "samples_per_second": batch / middle,
        "spread_percent": spread if len(seconds) > 1 else None,
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


# --- one request after the other, so that torch is imported once ---------------------------------

WORKSPACE_BYTES = 64 << 20
"""cuBLAS keeps workspaces of up to 32 MiB; what stays above is the user's."""


def answer_or_error(request: Answer) -> Answer:
    """The answer, or what was raised instead."""
    try:
        return (run_devices if request["mode"] == "devices" else run_steps)(request)
    except BaseException as problem:
        detail = "%s: %s" % (type(problem).__name__, str(problem)[:2000])
        return {"status": "error", "detail": detail}


def answer_in_fork(request: Answer) -> Answer:
    """The answer of a fork, or how it died (its exit code, negative for a signal)."""
    parent = os.getpid()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                end_with_parent.end_with(parent)
                json.dump(answer_or_error(request), file)
                file.flush()
            os._exit(0)  # at once: a driver in a bad state must not be asked to tidy up
        status = os.waitpid(pid, 0)[1]
        file.seek(0)
        with contextlib.suppress(ValueError):
            return json.load(file)  # type: ignore[no-any-return]
    exit_code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return {"status": "died", "exit": exit_code}


def warm_optimizer() -> None:
    """Once for all forks: an optimizer's first step imports more, which takes seconds."""
    one = torch.zeros(1, requires_grad=True)
    one.grad = torch.zeros(1)
    torch.optim.AdamW([one]).step()


def release_memory() -> bool:
    """Give back what the last request took of a GPU; whether next to nothing is left of it."""
    try:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_allocated()) <= WORKSPACE_BYTES
    except Exception:  # whatever a driver in a bad state raises
        return False


def answer_request(request: Answer) -> Answer:
    """On the CPU by a fork. On a GPU, which forks cannot share, by this process, until a compiled
    model, another error than the allocator's or memory that stays spoils it."""
    on_gpu = request.get("device") != "cpu" and torch.cuda.is_available()
    if not on_gpu and hasattr(os, "fork"):
        warm_optimizer()
        return answer_in_fork(request)
    answer = answer_or_error(request)
    if on_gpu and request["mode"] == "devices" and answer["status"] == "ok":
        return answer
    is_sound = answer["status"] == "ok" or "OutOfMemoryError" in answer["detail"]
    return {
        **answer,
        "spent": not on_gpu or request.get("compile") or not is_sound or not release_memory(),
    }


def serve() -> None:
    """Answer each line, on streams that no other code reads or prints on."""
    requests = os.fdopen(os.dup(0), "rb")
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
