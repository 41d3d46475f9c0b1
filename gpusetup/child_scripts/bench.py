"""Runs real training steps of one setting and says what they took: the trials of `gpusetup tune`.

The target interpreter runs this file by its path. Each line of standard input is a request in JSON,
each line of standard output its answer (what the user's code prints goes to standard error). After
`"spent": true` the next request needs a fresh process. Python 3.8 syntax.

    {"code": "module:function" | null, "pickle": path | null,
     "batch": 32, "steps": 12, "warm": 1, "device": "auto|cpu|cuda",
     "amp": "bf16|fp16" | null, "compile": false, "optimizer": "adamw",
     "memory_limit_bytes": null, "mode": "steps|devices", "seconds": 60,
     "timed": true, "loaded": false, "workers": 4 | null}
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import random
import sys
import time
from multiprocessing.spawn import prepare
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

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
"""Steps are timed for so long at least: what disturbs them lasts for many short ones. A request may
ask for more."""
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

    def reserved(self) -> Optional[int]:
        """What the allocator has taken of the card, with the gaps between its blocks: this is what
        other programs miss, and what nvidia-smi shows."""
        return int(self.cuda.memory_reserved())

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
                soft_limit, hard_limit = ADDRESS_LIMITS
                if soft_limit != NO_LIMIT:
                    most = min(most, soft_limit)
                resource.setrlimit(resource.RLIMIT_AS, (most, hard_limit))

    def finish(self) -> None:
        """There is no device to wait for."""

    def begin(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    def peak(self) -> Optional[int]:
        return process_memory("VmHWM")

    def now(self) -> Optional[int]:
        return process_memory("VmRSS")

    def reserved(self) -> Optional[int]:
        return None

    def busy(self) -> Optional[float]:
        return None


def address_limits() -> Tuple[int, int]:
    """`ulimit -v` of this process, soft and hard, in bytes; (-1, -1) for none."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        return resource.getrlimit(resource.RLIMIT_AS)
    return NO_LIMIT, NO_LIMIT


NO_LIMIT = -1
"""What `resource.RLIM_INFINITY` is, on systems without that module too."""
ADDRESS_LIMITS = address_limits()
"""As they were at the start: a trial lowers them."""


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


LOSS_STEPS = 20
"""The losses of so many first steps are kept: with the same seed they can be compared."""
MOST_READY = 16
"""Batches at most that loader workers have ready before steps are timed."""


class Trial:
    """One setting, ready to run steps."""

    def __init__(self, request: Answer) -> None:
        random.seed(0)  # the same weights and samples in every trial
        torch.manual_seed(0)
        self.device = device_of(request)
        self.batch_size: int = request["batch"]
        code = request.get("code")
        function = steps.function_named(code) if code else saved_job(request["pickle"])
        self.memory = memory_of(self.device, request)
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
        if is_steady(rows):
            break
    loader: Answer = {}
    busy = None
    if request.get("timed", True):
        if request.get("loaded") and trial.job.dataset is not None:
            trial.complete_losses(min(seconds), (ends - time.monotonic()) / 4)
            loader = trial.start_loader(request.get("workers"), (ends - time.monotonic()) / 2)
            seconds = [trial.timed(1)]
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
    is_cuda = device.startswith("cuda")
    memory = memory_of(device, request)
    # Before Ampere a GPU emulates bf16, slowly.
    is_old = is_cuda and torch.cuda.get_device_capability(device) < (8, 0)
    return {
        "status": "ok",
        "device": device,
        "limit_bytes": memory.limit,
        "name": torch.cuda.get_device_name(device) if is_cuda else "the CPU",
        "counts": memory.peak() is not None,
        "half": "fp16" if is_old else "bf16",
    }


# --- one request after the other, so that torch is imported once ---------------------------------

LEFT_BYTES = 64 << 20
"""What may stay of a request in a process that takes the next one: cuBLAS keeps workspaces of up to
32 MiB. What stays above is the user's, and would count against the next size."""


RETURNS = (
    "the function takes the batch size (or nothing) and returns model and batch, or a dict with "
    "'model', 'batch', 'loss', 'optimizer', 'dataset'"
)
NEEDS_LOSS = "also return a loss: a function of the model's output and the target"


def answer_or_error(request: Answer) -> Answer:
    """The answer, or what was raised instead."""
    try:
        return run_devices(request) if request["mode"] == "devices" else run_steps(request)
    except BaseException as problem:
        return {"status": "error", "detail": description(problem)}


def description(problem: BaseException) -> str:
    """What an error says, with its class, and in a last line what to do.

    >>> description(ValueError("no data")), description(steps.Question("there is no `a`"))
    ('ValueError: no data', 'there is no `a`')
    """
    text = str(problem)[:2000]
    if isinstance(problem, steps.NoLoss):
        return "%s\nhint: %s" % (text, NEEDS_LOSS)
    if isinstance(problem, steps.Contract):
        return "%s\nhint: %s" % (text, RETURNS)
    # The messages of our own errors say all, with a hint of their own: no class to be shown.
    is_ours = type(problem).__module__.startswith("gpusetup.")
    if is_ours or isinstance(problem, steps.Question):
        return text
    return "%s: %s" % (type(problem).__name__, text)


def warm_optimizer() -> None:
    """Once for all forks: an optimizer's first step imports more, which takes seconds."""
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.zeros(1)
    torch.optim.AdamW([weight]).step()


def release_gpu_memory() -> bool:
    """Give back what the last request took of a GPU; whether next to nothing is left of it."""
    try:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_allocated()) <= LEFT_BYTES
    except Exception:  # whatever a driver in a bad state raises
        return False


def release_host_memory(imported_bytes: Optional[int]) -> bool:
    """Give back what the last request took of the host; whether next to nothing is left of it."""
    gc.collect()
    with contextlib.suppress(Exception):  # only glibc has it
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    resident = process_memory("VmRSS")
    if resident is None or imported_bytes is None:
        return False
    return resident - imported_bytes <= LEFT_BYTES


class Fork:
    """A fork of this process that answers requests on the CPU, until one of them spoils it.

    It imports the user's code once for all sizes. A size that runs out of memory, crashes or leaves
    memory behind ends its fork alone; the next one gets a new fork.
    """

    def __init__(self) -> None:
        parent = os.getpid()
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                os.close(self.requests)
                os.close(self.answers)
                end_with_parent.end_with(parent)
                answer_until_spoilt(os.fdopen(requests, "rb"), answers)
            os._exit(0)  # at once: a driver in a bad state must not be asked to tidy up
        os.close(requests)
        os.close(answers)
        self.lines = os.fdopen(self.answers, "rb")

    def answer(self, request: Answer) -> Answer:
        """The fork's answer, or how it died (its exit code, negative for a signal)."""
        with contextlib.suppress(OSError):  # it ended already
            os.write(self.requests, json.dumps(request).encode() + b"\n")
        with contextlib.suppress(ValueError):
            return json.loads(self.lines.readline())  # type: ignore[no-any-return]
        return {"status": "died", "exit": self.end()}

    def end(self) -> int:
        """Its exit code, once it has ended."""
        os.close(self.requests)
        self.lines.close()
        status = os.waitpid(self.pid, 0)[1]
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def answer_until_spoilt(requests: Iterable[bytes], answers: int) -> None:
    """Inside a fork: one answer a line, and the last one says that the fork ends."""
    first_bytes = None
    for line in requests:
        request = json.loads(line)
        answer = answer_or_error(request)
        imported_bytes = answer.pop("imported_bytes", None)
        first_bytes = first_bytes or imported_bytes
        is_sound = answer["status"] == "ok" and not request.get("compile")
        answer["spent"] = not is_sound or not release_host_memory(first_bytes)
        os.write(answers, json.dumps(answer).encode() + b"\n")
        if answer["spent"]:
            break


FORKS: List[Fork] = []
"""The fork that answers the next request; none if the last one was spoilt."""


def answer_in_fork(request: Answer) -> Answer:
    """The answer of the fork that is there, else of a new one."""
    if not FORKS:
        FORKS.append(Fork())
    answer = FORKS[0].answer(request)
    if answer["status"] == "died":
        FORKS.clear()
    elif answer.pop("spent"):
        FORKS.pop().end()
    return answer


def answer_request(request: Answer) -> Answer:
    """On the CPU by a fork. On a GPU, which forks cannot share, by this process, until a compiled
    model, another error than the allocator's or memory that stays spoils it."""
    on_gpu = request.get("device") != "cpu" and torch.cuda.is_available()
    if not on_gpu and hasattr(os, "fork"):
        warm_optimizer()
        return answer_in_fork(request)
    answer = answer_or_error(request)
    answer.pop("imported_bytes", None)
    if not on_gpu:  # Windows: what a size left behind would count against the next one
        return {**answer, "spent": True}
    if request["mode"] == "devices" and answer["status"] == "ok":
        return answer
    is_sound = answer["status"] == "ok" or "OutOfMemoryError" in answer["detail"]
    is_spent = request.get("compile") or not is_sound or not release_gpu_memory()
    return {**answer, "spent": is_spent}


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
