"""Runs trials on the real device, in a child process with the environment's Python
(`child_scripts/bench.py`).

A trial that runs out of memory, crashes or hangs only ends the child. The parent judges the child's
output: a message about lack of memory, in any wording, means that this batch does not fit; anything
else is an error.
"""

from __future__ import annotations

import json
import os
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
from gpusetup.tune.oom import is_out_of_memory
from gpusetup.tune.search import Goal, Trial, code_fails, next_batch, next_for_speed

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
        """The bytes that a trial may use: the limit without a safety margin.

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
        of its standard error.
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
            # `spent` means that this process must not run another trial.
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
