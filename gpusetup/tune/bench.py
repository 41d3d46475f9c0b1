"""Runs trials on the real device, in a child process with the environment's Python
(`child_scripts/bench.py`).

A trial that runs out of memory, crashes or hangs only ends the child. The parent judges the child's
output: a message about lack of memory, in any wording, means that this batch does not fit; anything
else is an error.

`next_batch` finds the largest batch that fits with few trials: it looks at the trials so far and
returns the size to try next, or None when the result is certain. Memory grows nearly linearly with
the batch size, so two trials give the line, the third jumps to just below the limit, and the last
one confirms the result. The result is always a size that really ran.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gpusetup.errors import BadInput, Blocked, ToolFailed
from gpusetup.model.codec import to_plain
from gpusetup.model.frozen import Frozen, replace
from gpusetup.probe.host import free_memory
from gpusetup.system.processes import StreamingChild, no_answer_in
from gpusetup.system.system import System

FIRST = 2
"""The first batch size if none is given. It is small because some models fit only a few samples."""


class Trial(Frozen):
    """The result of running one batch size in a child process."""

    batch: int
    status: Literal["ok", "oom", "error"]
    peak_bytes: int | None = None
    """The peak memory over all steps that counts against the limit: on a GPU the memory allocated
    by torch, on the CPU the resident memory."""
    samples_per_second: float | None = None
    spread_percent: float | None = None
    """The spread of the middle half of the step times; null if only one step was timed."""
    utilization_percent: float | None = None
    detail: str | None = None
    static_bytes: int | None = None
    """The memory in use before a batch arrives: parameters, gradients and optimizer states."""
    phases: Mapping[str, int] = {}
    """Phase -> its peak memory in bytes, as the mean of the readings."""
    loss: float | None = None
    """The loss after the last step; null if it is not finite."""
    losses: tuple[float | None, ...] = ()
    """The losses of the first steps. All trials start from the same weights and see the same
    samples."""
    workers: int | None = None
    """The number of workers of the loader for the timed steps; null if these used a single
    batch."""
    dataset_length: int | None = None
    """The number of samples in an epoch; null if the code returned no data set with a length."""


class Goal(Frozen):
    """The limits of a batch search."""

    limit_bytes: int
    """The memory that may be used: the capacity minus a margin."""
    start: int = FIRST
    largest: int | None = None
    """The largest size to try (`--max`); None means no limit."""
    trials: int = 14
    """The most trials; the usual search needs four or five, so more mean a disturbed machine."""


def fits(trial: Trial, goal: Goal) -> bool:
    """Whether a trial ran and its peak memory stayed within the limit."""
    return trial.status == "ok" and (trial.peak_bytes or 0) <= goal.limit_bytes


def largest_that_ran(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The largest batch size that ran within the limit; None if none did.

    >>> largest_that_ran([Trial(batch=8, status="ok", peak_bytes=5), Trial(batch=9, status="oom")],
    ...        Goal(limit_bytes=10))
    8
    """
    return max((trial.batch for trial in trials if fits(trial, goal)), default=None)


def code_fails(trials: Sequence[Trial]) -> bool:
    """Whether the code itself fails: no batch size ran, and a trial failed with an error.

    If a smaller size ran, an error only limits the search, as running out of memory does.
    """
    statuses = {trial.status for trial in trials}
    return "error" in statuses and "ok" not in statuses


# --- the largest batch ----------------------------------------------------------------------------

JUMPS = (0.7, 0.96)
"""To which share of the expected limit the first two jumps go. The line of the first starts at the
memory without a batch, which is too low. The second stays below the limit, because readings differ
by up to 1.5 % from step to step, and another phase or a larger workspace may take over."""
NEAR_LIMIT = 0.985
"""To which share later jumps go: a size this close to the expected limit that ran or failed ends
the search."""
TOLERANCE = 0.03
"""The result may be this share below the largest possible size."""
FURTHEST = 128
"""The next size is at most this many times the largest that ran."""
SHRINK = 8
"""If no size has run yet, the next size is this many times smaller than the smallest that
failed."""
UNBOUNDED = 1 << 40
"""A batch size above all that a search can reach."""


def next_batch(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The batch size to try next; None if the result is certain enough or no trials are left.

    The constants were chosen on simulated devices with workspaces, bends, fragmented memory and
    noisy readings: 4.3 trials find 99 % of the largest size, and one search in a hundred fails
    twice.
    """
    fitting = sorted((one for one in trials if fits(one, goal)), key=lambda one: one.batch)
    failing = [trial.batch for trial in trials if not fits(trial, goal)]
    ceiling = min(goal.largest or UNBOUNDED, min(failing, default=UNBOUNDED) - 1)
    if len(trials) >= goal.trials or ceiling < 1:
        return None
    if not fitting:
        return max(1, min(failing) // SHRINK) if failing else min(goal.start, ceiling)

    largest_run = fitting[-1].batch
    limit = batch_at_limit(fitting, goal.limit_bytes)
    largest_possible = min(limit, ceiling)
    is_close = largest_run >= (1 - TOLERANCE) * largest_possible
    # Small sizes may be further away than the tolerance although the next size is too large.
    if is_close or largest_run >= math.floor(largest_possible):
        return None
    if failing:
        smallest_failing = ceiling + 1
        target = min(NEAR_LIMIT * limit, (largest_run + smallest_failing) / 2)
    elif limit >= ceiling / NEAR_LIMIT:
        # Memory is no limit below the largest size that is wanted.
        target = ceiling
    elif len(fitting) == 1:
        target = largest_run + JUMPS[0] * (limit - largest_run)
    else:
        target = (JUMPS[1] if len(fitting) == 2 else NEAR_LIMIT) * limit
    # The same size again would show nothing new.
    size = max(math.floor(min(target, FURTHEST * largest_run)), largest_run + 1)
    return min(size, math.floor(largest_possible))


def batch_at_limit(ran: Sequence[Trial], limit_bytes: int) -> float:
    """The batch size at which the peak of a step reaches the limit; infinite if it does not grow.

    `ran` is sorted by batch. The memory is a line through its smallest and its largest size; with a
    single size, a line from the memory without a batch.

    >>> static = Trial(batch=10, status="ok", static_bytes=100, peak_bytes=200)
    >>> batch_at_limit([static], 1000)
    90.0
    """
    first, last = ran[0], ran[-1]
    batch_before, peak_before = 0, first.static_bytes or 0
    if len(ran) > 1:
        batch_before, peak_before = first.batch, first.peak_bytes or 0
    peak = last.peak_bytes or 0
    bytes_per_sample = (peak - peak_before) / (last.batch - batch_before)
    if bytes_per_sample <= 0:
        return math.inf
    return last.batch + (limit_bytes - peak) / bytes_per_sample


KNEE = 0.95
"""A size is fast enough if it reaches this share of the highest measured speed."""
CLIMB = 2
"""In the search for speed, the next size is at most this many times the largest that ran, because
the answer is the smallest size that is fast."""
BEYOND = 2
"""The number of larger sizes that must bring no gain before the search stops going up; a single one
may have been disturbed by other programs."""


def next_for_speed(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The batch size to try next in the search for speed: larger sizes until two bring no gain, but
    none that the search for the largest batch would not try; None at the end."""
    fitting = [trial.batch for trial in trials if fits(trial, goal)]
    knee = fastest(trials, goal) or 0
    larger = next_batch(trials, goal)
    if larger is None or sum(size > knee for size in fitting) >= BEYOND:
        return None
    # Until a size has run, take the size that the search for the largest batch would try.
    return min(larger, CLIMB * max(fitting)) if fitting else larger


def fastest(trials: Sequence[Trial], goal: Goal, *, busy: float | None = None) -> int | None:
    """The smallest batch with nearly the best speed; with `busy`, the smallest that keeps the GPU
    busy for this percentage of the time, if there is one. None if none ran.

    >>> run = lambda batch, speed: Trial(batch=batch, status="ok", samples_per_second=speed)
    >>> fastest([run(8, 50.0), run(16, 97.0), run(32, 100.0)], Goal(limit_bytes=1))
    16
    """
    timed = [
        (trial, trial.samples_per_second)
        for trial in trials
        if fits(trial, goal) and trial.samples_per_second
    ]
    fast_enough = KNEE * max((speed for _, speed in timed), default=0.0)
    at_knee = [trial.batch for trial, speed in timed if speed >= fast_enough]
    # Without NVML the utilisation is unknown.
    keeps_busy = [
        trial.batch for trial, _ in timed if busy and (trial.utilization_percent or 0.0) >= busy
    ]
    return min(keeps_busy or at_knee, default=None)


# --- out of memory --------------------------------------------------------------------------------

OUT_OF_MEMORY = re.compile(
    r"out[ _]?of[ _]?memory|memoryerror\b|memoryallocation|alloc_?failed|bad_alloc"
    r"|invalid buffer size:|(?:can't|cannot) allocate memory|allocator: not enough memory"
    r"|unable to allocate .* for an array"  # numpy
    r"|nvml_success == r.*cudacachingallocator"  # torch asks NVML only when it reports an OOM
    r"|dataloader worker.*is killed by signal: killed",  # the Linux OOM killer ended it
    re.IGNORECASE,
)


def is_out_of_memory(problem: BaseException | str) -> bool:
    """Whether a text, an exception or one of its causes reports that the device or the host ran out
    of memory.

    >>> is_out_of_memory("RuntimeError: CUDA error: out of memory"), is_out_of_memory(MemoryError())
    (True, True)
    """
    if isinstance(problem, str):
        return OUT_OF_MEMORY.search(problem) is not None
    seen: set[int] = set()
    cause: BaseException | None = problem
    # Stop if an exception occurs twice, because causes can form a cycle.
    while cause is not None and id(cause) not in seen:
        # The name of the exception's class or its base class may show what the message does not.
        if OUT_OF_MEMORY.search(f"{[kind.__name__ for kind in type(cause).__mro__]}: {cause}"):
            return True
        seen.add(id(cause))
        context = None if cause.__suppress_context__ else cause.__context__
        cause = cause.__cause__ or context
    return False


# --- trials in a child ----------------------------------------------------------------------------

SCRIPT = Path(__file__).resolve().parent.parent / "child_scripts" / "bench.py"
CHILD_ENVIRONMENT = {"PYTHONIOENCODING": "utf-8", "GPUSETUP_PROBE": "1", "MALLOC_ARENA_MAX": "2"}
"""Environment variables of the child. The number of malloc arenas is limited because glibc creates
more of them in some runs than in others, which would disturb the measured memory."""
TIMED_SECONDS = 20.0
"""The maximum time in seconds that one trial spends on timed steps."""
STARTING_SECONDS = 280.0
"""The additional time in seconds that a trial may need for importing torch and building the
model."""
COMPILING_SECONDS = 900.0
"""The additional time in seconds that torch.compile may need."""
FREE_SHARE = 0.02
"""The share of the memory to keep free for fragmentation and other programs."""
LEAST_FREE_BYTES = 300 << 20
"""The minimum memory to keep free on a GPU. Kernels that are loaded later and NCCL need 0.1 to 0.5
GB outside of the allocator, and 2 % of a 4 GB card would only be 80 MB."""
KILLED_EXITS = (-9, 137)
"""The exit codes of a child that the Linux OOM killer may have ended: the negative number of
SIGKILL, and 137, by which a shell reports that signal."""
STDERR_BYTES = 64 << 10
"""How much of the end of a dead child's standard error is searched for a lack of memory."""
LONGEST_DETAIL = 300
"""The number of characters to show from the end of the child's output, where the error is."""

Say = Callable[[str], None]
Half = Literal["bf16", "fp16"]


class BenchJob(Frozen):
    """What to train in a trial, and how; the requests of `child_scripts/bench.py` add the batch."""

    code: str | None = None
    """`MODULE:FUNCTION`; MODULE may be the path of a file."""
    pickle: str | None = None
    amp: Half | None = None
    compile: bool = False
    device: str = "auto"
    memory_limit_bytes: int | None = None
    steps: int = 12
    timed: bool = True
    """Whether to run additional steps to measure the speed; their memory is not read."""
    seconds: float = TIMED_SECONDS
    python: str | None = None
    loaded: bool = False
    """Whether the timed steps take their batches from the code's data set, if it returns one."""
    workers: int | None = None
    """The workers of that loader; None: as many as the code's DataLoader has, or none."""


class Device(Frozen):
    """The device that runs the trials, and its memory limit."""

    device: str
    name: str
    limit_bytes: int
    """The bytes of the device's memory that may be used."""
    half: Half = "bf16"
    """The 16-bit type that suits the device: fp16 below compute capability 8.0, otherwise bf16."""

    @property
    def is_gpu(self) -> bool:
        return self.device.partition(":")[0] == "cuda"

    def room(self) -> int:
        """The bytes that a trial may use: the limit minus a safety margin.

        >>> Device(device="cuda", name="", limit_bytes=4000 << 20).room() >> 20
        3700
        """
        # Kernels are loaded into a GPU's memory later.
        least_bytes = LEAST_FREE_BYTES if self.is_gpu else 0
        return max(1, self.limit_bytes - max(int(self.limit_bytes * FREE_SHARE), least_bytes))


class Bench:
    """Runs trials in a child process, and starts a new one after it hangs, crashes or reports that
    it cannot continue."""

    def __init__(self, job: BenchJob) -> None:
        self.job = job
        self._argv = (job.python or sys.executable, str(SCRIPT))
        self._child: StreamingChild | None = None
        # The child's standard error goes to a file, because it is only needed if the child dies.
        self._errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - `__exit__` closes it

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *how: object) -> None:
        self._end()
        self._errors.close()

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child = None

    def ask(self, mode: str, batch: int = 1, **changes: Any) -> dict[str, Any]:
        """The child's answer to a request, which is the job with `changes` applied.

        If the child ended without an answer, the status is `died`, with its exit code and the end
        of its standard error; if it did not answer in time, the status is `error`.
        """
        job = replace(self.job, **changes)
        limit = job.seconds + STARTING_SECONDS + (COMPILING_SECONDS if job.compile else 0)
        self._errors.truncate(0)
        try:
            if self._child is None:
                self._child = StreamingChild(
                    self._argv,
                    environment={**os.environ, **CHILD_ENVIRONMENT},
                    errors=self._errors,
                )
            self._child.tell(json.dumps({**to_plain(job), "mode": mode, "batch": batch}))
            answer: dict[str, Any] = json.loads(self._child.next(limit))
            # `spent` means that this child must not run another trial.
            if answer.pop("spent", False):
                self._end()
        except EOFError:
            exit_code = self._child.exit() if self._child else None
            self._end()
            # Only the end, because libraries may have written a lot before it.
            self._errors.seek(0)
            errors = self._errors.read()[-STDERR_BYTES:].decode("utf-8", "replace")
            answer = {"status": "died", "exit": exit_code, "errors": errors}
        except OSError as problem:
            self._end()
            is_late = isinstance(problem, TimeoutError)
            answer = {"status": "error", "detail": no_answer_in(limit) if is_late else str(problem)}
        return answer

    def device(self) -> Device:
        """The device that will run the trials. Raises Blocked if torch is missing, ToolFailed if it
        does not work."""
        answer = self.ask("devices")
        if answer["status"] != "ok":
            # A child that died has left no `detail`.
            last_words = str(answer.get("errors", ""))[-LONGEST_DETAIL:].strip()
            detail = str(answer.get("detail") or last_words)
            if "No module named 'torch'" in detail:
                hint = "`gpusetup install`, or name another `--python`"
                raise Blocked(f"{self._argv[0]} has no torch", hint=hint)
            raise ToolFailed(f"The device cannot be measured: {detail}", hint="`gpusetup doctor`")
        limit = answer["limit_bytes"]
        if not limit:
            # The child only reports a GPU's limit; for the CPU, use the option or the free memory.
            limits = (self.job.memory_limit_bytes, free_memory(System()))
            limit = min((size for size in limits if size), default=None)
        # `counts`: whether the child can read how much memory it uses.
        if not limit or not answer["counts"]:
            raise Blocked("This system does not show how much memory a process uses")
        fields = {name: answer[name] for name in ("device", "name", "half")}
        return Device(limit_bytes=limit, **fields)

    def trial(self, batch: int, **changes: Any) -> Trial:
        """Runs one trial with this batch size and returns its result."""
        return trial_of(batch, self.ask("steps", batch, **changes))

    def find(
        self, goal: Goal, trials: list[Trial], say: Say, *, speed: bool = False, **settings: Any
    ) -> None:
        """Try batch sizes until the largest size that fits (with `speed`, the fastest size) is
        known.

        Every trial is added to `trials` as soon as it has run, so that Ctrl-C loses nothing.
        """
        # If the code itself fails, no other size helps.
        chooser = next_for_speed if speed else next_batch
        while not code_fails(trials) and (batch := chooser(trials, goal)) is not None:
            say(f"batch {batch}")
            trials.append(self.trial(batch, timed=speed, **settings))


def trial_of(batch: int, answer: Mapping[str, Any]) -> Trial:
    """The trial that a child's answer describes: ok, out of memory, or an error."""
    status = answer["status"]
    if status == "ok":
        return Trial(**{**answer, "batch": batch})
    if status == "died":
        errors, exit_code = answer["errors"], answer["exit"]
        ran_out = exit_code in KILLED_EXITS or is_out_of_memory(errors)
        detail = f"ended with exit {exit_code}: {errors.strip()[-LONGEST_DETAIL:]}"
    else:
        detail = answer["detail"]
        ran_out = is_out_of_memory(detail)
    # Anything other than lack of memory is an error in the code or of the machine.
    return Trial(batch=batch, status="oom" if ran_out else "error", detail=detail)


def raise_if_code_fails(job: BenchJob, trials: Sequence[Trial]) -> None:
    """Raise BadInput with the code's own error if no batch size ran and at least one failed with an
    error."""
    if not code_fails(trials):
        return
    first = next(trial for trial in trials if trial.status == "error")
    name = job.code or "the model"
    # Split off the hint that the child may have added to its message.
    detail, _, hint = (first.detail or "").partition("\nhint: ")
    usual_hint = "one training step must run by itself, within the time limit, at any batch size"
    raise BadInput(f"{name} with batch {first.batch} failed: {detail}", hint=hint or usual_hint)
