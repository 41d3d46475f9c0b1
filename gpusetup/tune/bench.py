"""Trials on the real device, in a child of the target interpreter (`child_scripts/bench.py`).

A trial that runs out of memory, crashes or hangs ends alone. What it said is judged here: out of
memory in any spelling is a trial that failed, anything else an error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from gpusetup.errors import BadInput, Blocked, ToolFailed
from gpusetup.model.frozen import Frozen, replace
from gpusetup.probe.host import free_memory
from gpusetup.system.processes import StreamingChild, no_answer_in
from gpusetup.system.system import System
from gpusetup.tune.oom import is_killed_for_memory, is_out_of_memory
from gpusetup.tune.search import Goal, Trial, code_fails, next_batch, next_for_speed

SCRIPT = Path(__file__).resolve().parent.parent / "child_scripts" / "bench.py"
CHILD_ENVIRONMENT = {"PYTHONIOENCODING": "utf-8", "GPUSETUP_PROBE": "1", "MALLOC_ARENA_MAX": "2"}
"""Variable -> its value in the child. Every further arena of glibc takes memory, in some runs and
in others not."""
TIMED_SECONDS = 20.0
"""How long one trial times steps at most."""
STARTING_SECONDS = 280.0
"""What a trial may take in addition: importing torch, building the model."""
COMPILING_SECONDS = 900.0
"""What torch.compile may take in addition."""
LEAST_STEPS = 4
"""One to warm up, one that is read, two that are timed."""
TIMED_SHARE = 0.1
"""The share of a search's time that one trial times steps: the larger sizes need the rest."""
FIRST_SECONDS = 30.0
"""What the first trial of a search may take beyond its time: without it there is no answer."""
LEAST_CLIMB = 1.5
"""A size that is less than so many times the largest one tells nothing new about the speed."""
FREE_SHARE = 0.02
"""The share of the memory that is left free, for fragments and for other programs."""
LEAST_FREE_BYTES = 300 << 20
"""The least that is left free of a GPU: kernels that are loaded later and NCCL take 0.1 to 0.5 GB
outside of the allocator, and 2 % of a card of 4 GB are 80 MB."""
STDERR_BYTES = 64 << 10
"""Bytes that are read from the end of a trial's standard error."""

Say = Callable[[str], None]


class BenchJob(Frozen):
    """What is trained, and how; one trial adds its batch size."""

    code: str | None = None
    """`MODULE:FUNCTION`; MODULE may be the path of a file."""
    pickle: str | None = None
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    optimizer: str = "adamw"
    device: str = "auto"
    memory_limit_bytes: int | None = None
    steps: int = 12
    timed: bool = True
    """Whether more steps are timed, whose memory is not read."""
    seconds: float = TIMED_SECONDS
    least_seconds: float | None = None
    """How long steps are timed at least; None: half a second."""
    left: float | None = None
    """Seconds after which the trial is ended."""
    python: str | None = None
    loaded: bool = False
    """Whether the timed steps take their batches from the code's data set, if it returns one."""
    workers: int | None = None
    """Of that loader; None: as many as the code's own DataLoader has, else none."""


class Device(Frozen):
    """Where the trials run."""

    device: str
    name: str
    limit_bytes: int
    """What may be used of its memory."""
    half: Literal["bf16", "fp16"] = "bf16"
    """The 16-bit type that it computes in: fp16 below compute capability 8.0."""

    @property
    def is_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def room(self) -> int:
        """The bytes that a trial may take: without the margin.

        >>> Device(device="cuda", name="", limit_bytes=4000 << 20).room() >> 20
        3700
        """
        margin = max(int(self.limit_bytes * FREE_SHARE), LEAST_FREE_BYTES if self.is_gpu else 0)
        return max(1, self.limit_bytes - margin)


class Bench:
    """The child that runs trials, started again where it hung, died or says that it is spent."""

    def __init__(self, job: BenchJob, folder: str = ".") -> None:
        self.job = job
        self._argv, self._folder = (job.python or sys.executable, str(SCRIPT)), folder
        self._lines: StreamingChild | None = None
        self._errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - `__exit__` closes it

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *how: object) -> None:
        self._end()
        self._errors.close()

    def _end(self) -> None:
        if self._lines is not None:
            self._lines.end()
        self._lines = None

    def ask(self, mode: str, batch: int = 1, **changes: Any) -> dict[str, Any]:
        """The answer to one request: the job with some changes.

        One that ended without an answer has `died`, with its exit code and its last words.
        """
        from gpusetup.model.codec import to_plain

        job = replace(self.job, **changes)
        limit = job.seconds + STARTING_SECONDS + (COMPILING_SECONDS if job.compile else 0.0)
        limit = max(1.0, min(limit, job.left or limit))
        self._errors.truncate(0)
        try:
            if self._lines is None:
                environment = {**os.environ, **CHILD_ENVIRONMENT}
                self._lines = StreamingChild(
                    self._argv, environment=environment, cwd=self._folder, errors=self._errors
                )
            self._lines.tell(json.dumps({**to_plain(job), "mode": mode, "batch": batch}))
            answer: dict[str, Any] = json.loads(self._lines.next(limit))
            if answer.pop("spent", False):
                self._end()
        except EOFError:
            answer = {"status": "died", "exit": self._lines and self._lines.exit()}
            self._end()
        except OSError as problem:
            self._end()
            is_late = isinstance(problem, TimeoutError)
            answer = {"status": "error", "detail": no_answer_in(limit) if is_late else str(problem)}
        if answer["status"] == "died":
            self._errors.seek(0)
            answer["errors"] = self._errors.read()[-STDERR_BYTES:].decode("utf-8", "replace")
        return answer

    def device(self) -> Device:
        """Where the trials will run. `Blocked` without torch, `ToolFailed` if it breaks."""
        answer = self.ask("devices")
        if answer["status"] != "ok":
            detail = str(answer.get("detail") or answer.get("errors", "")[-300:].strip())
            if "No module named 'torch'" in detail:
                hint = "`gpusetup install`, or name another `--python`"
                raise Blocked(f"{self._argv[0]} has no torch", hint=hint)
            raise ToolFailed(f"The device cannot be measured: {detail}", hint="`gpusetup doctor`")
        limits = (self.job.memory_limit_bytes, free_memory(System()))
        # A GPU's own limit stands in the answer; for the CPU it is known here alone.
        limit = answer["limit_bytes"] or min(filter(None, limits), default=None)
        if not limit or not answer["counts"]:
            raise Blocked("This system does not show how much memory a process uses")
        fields = {name: answer[name] for name in ("device", "name", "half")}
        return Device(limit_bytes=limit, **fields)

    def trial(self, batch: int, **changes: Any) -> Trial:
        """Run one size."""
        return trial_of(batch, self.ask("steps", batch, **changes))

    def find(
        self, goal: Goal, trials: list[Trial], say: Say, *, speed: bool = False, **settings: Any
    ) -> None:
        """Try sizes until the answer stands, the largest or for `speed` the knee, or time is over.

        Every trial is put into `trials` as soon as it ran, so that a Ctrl-C loses nothing.
        """
        chooser = next_for_speed if speed else next_batch
        settings = {**settings, "timed": speed}
        quickest_trial = 0.0
        while not code_fails(trials) and (batch := chooser(trials, goal)) is not None:
            line, began = f"batch {batch}", time.monotonic()
            if goal.ends is not None:
                seconds_left = goal.ends - began
                batch = affordable(batch, trials, seconds_left - quickest_trial)
                if batch is None:
                    break
                line = f"batch {batch}, {max(0.0, seconds_left):.0f} s left"
                timed_seconds = min(self.job.seconds, max(1.0, seconds_left * TIMED_SHARE))
                grace = 0.0 if trials else FIRST_SECONDS
                settings |= {"left": seconds_left + grace, "seconds": timed_seconds}
            say(line)
            trials.append(self.trial(batch, **settings))
            seconds = time.monotonic() - began
            quickest_trial = min(quickest_trial or seconds, seconds)


def affordable(batch: int, trials: Sequence[Trial], seconds: float) -> int | None:
    """The size, or the largest one below it whose fewest steps end in time; None if that is hardly
    larger than what ran.

    >>> ran = Trial(batch=8, status="ok", samples_per_second=10.0)
    >>> [affordable(size, [ran], 10.0) for size in (4, 32)], affordable(32, [ran], 4.0)
    ([4, 25], None)
    """
    ran = [trial for trial in trials if trial.status == "ok"]
    largest = max(ran, key=lambda trial: trial.batch, default=None)
    if largest is None or not largest.samples_per_second:
        return batch if seconds > 0 or not trials else None
    # Larger sizes are about as fast as the largest that ran, which need not be the fastest.
    largest_in_time = int(seconds * largest.samples_per_second / LEAST_STEPS)
    if batch <= largest_in_time:
        return batch
    return largest_in_time if largest_in_time >= LEAST_CLIMB * largest.batch else None


def trial_of(batch: int, answer: Mapping[str, Any]) -> Trial:
    """What a child's answer means."""
    if answer["status"] == "ok":
        return Trial(**{**answer, "batch": batch})
    if answer["status"] == "died":
        errors = answer["errors"]
        ran_out = is_killed_for_memory(answer["exit"]) or is_out_of_memory(errors)
        detail = f"ended with exit {answer['exit']}: {errors.strip()[-300:]}"
    else:
        detail = answer["detail"]
        ran_out = is_out_of_memory(detail)
    return Trial(batch=batch, status="oom" if ran_out else "error", detail=detail)


def raise_if_code_fails(job: BenchJob, trials: Sequence[Trial]) -> None:
    """`BadInput` with the code's own error, if no size ran and one failed by itself."""
    broken = next((one for one in trials if one.status == "error"), None)
    if broken is not None and not any(one.status == "ok" for one in trials):
        name = job.code or "the model"
        detail, _, hint = (broken.detail or "").partition("\nhint: ")
        usual_hint = (
            "one training step must run by itself within the time limit; the batch size is not "
            "the reason"
        )
        message = f"{name} with batch {broken.batch} failed: {detail}"
        raise BadInput(message, hint=hint or usual_hint)


# --- a model of the user's process --------------------------------------------------------------


@contextmanager
def saved_job(job: Mapping[str, Any]) -> Iterator[str]:
    """A model, its batch, loss and optimizer in a file that a child can load; else `BadInput`."""
    import pickle

    import torch

    main_file = getattr(sys.modules.get("__main__"), "__file__", None)
    with tempfile.TemporaryDirectory(prefix="gpusetup-") as folder:
        path = str(Path(folder) / "job.pt")
        try:
            torch.save(dict(job), path)
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise BadInput(
                f"gpusetup cannot pass the model to a child process: {problem}",
                hint="define it at the top of a module, or use `gpusetup tune --batch-size --code`",
            ) from problem
        import_paths = {
            "sys_path": sys.path,
            **({"init_main_from_path": main_file} if main_file else {}),
        }
        Path(f"{path}.json").write_text(json.dumps(import_paths), encoding="utf-8")
        yield path
