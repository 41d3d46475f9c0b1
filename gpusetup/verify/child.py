"""Starts the worker process, gives it one check at a time, and reads how that ends."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Tuple

from .answer.render import harmless
from .streams import write_stderr
from .values import CRASHED, NO_ANSWER, SKIPPED, Check, Outcome, Row, RunOptions, kind

HERE = os.path.dirname(os.path.abspath(__file__))
Environment = Tuple[Tuple[str, str], ...]
USUAL_CAUSES = {
    "SIGKILL": "often the system killed it because the host ran out of memory: see `dmesg`",
    "SIGILL": "this CPU lacks an instruction: torch was built for a newer CPU",
    "SIGBUS": "often /dev/shm is full, or a file was cut off while in use",
}
"""How a process ended -> the usual cause."""
LOOKS_PER_LIMIT = 40
"""How often within a check's limit we look whether it only waits for a CPU core."""
BUSY_FACTOR = 5.0
"""If other programs keep the cores busy, we give up on a check after this many times its limit."""
LONGEST_SCRATCH = 60
"""The longest path of a folder for temporary files, in characters."""
QUIET_ENVIRONMENT = {
    # Keeps torch's compiler from starting a process for each core when it is imported.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # A CPU thread that waits for others spins for a moment and then sleeps, so that it does not
    # slow down other programs. On two idle cores, `standard` took 72 s and 86 CPU seconds with
    # both, 95 s with the first alone, and 73 s and 125 CPU seconds with neither.
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "30000",
    # Keeps warnings about the checks' own settings off the screen.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
"""Environment variables of the child process."""


class ChildTask(NamedTuple):
    """A check to run in the worker, with its limits."""

    check: Check
    subject: str
    """The device to check or, for a check of the host, the value of `--device`."""
    limit_seconds: float = 300.0
    """How long the check may send neither an answer nor a message on what it computes."""
    whole_seconds: float = float("inf")
    """How long the check may take in total."""
    in_float64: bool = False
    """Whether the check computes in float64 in place of the formats that it usually tests."""
    variables_of_rank: Environment = ()
    """The environment variables of this process's rank, if there are several ranks."""

    @property
    def environment(self) -> Environment:
        """The variables that must be set before torch starts."""
        # A check's own are cuBLAS's. On a CPU they would only cost the start of another process.
        of_check = self.check.environment if kind(self.subject) == "cuda" else ()
        return (*of_check, *self.variables_of_rank)


class Child:
    """The process that computes. It is started for the first task, and again after it has died or
    if a check needs other variables."""

    def __init__(self, verbose: bool, options: Optional[RunOptions] = None):
        options = options or RunOptions()
        self.first_message = {"verbose": verbose, "options": options._asdict()}
        self.environment: Environment = ()
        self.process: Any = None
        self.scratch = ""
        """The process's folder for temporary files; empty if there is none."""
        self.lines: "queue.Queue[str]" = queue.Queue()
        self.relays: List[threading.Thread] = []
        """The threads that read the process's stdout and stderr."""
        self.last_place: Row = {}
        """The last message on what the check is computing; empty if there is none."""

    def run(self, task: ChildTask) -> Row:
        """Run one check, and return its outcome and seconds as the worker reports them."""
        # Other variables need a new process, because torch reads them only when it starts.
        if task.environment != self.environment:
            self.end()
        if self.process is None:
            self._start(task.environment)
        self.last_place = {}
        began = time.monotonic()
        job = {
            "name": task.check.name,
            "device": task.subject,
            "limit": task.limit_seconds,
            "in_float64": task.in_float64,
        }
        self._send(job)
        answer = self._wait_for_answer(task, began + task.whole_seconds)
        # A process that died could not report its time.
        answer.setdefault("seconds", time.monotonic() - began)
        return answer

    def _wait_for_answer(self, task: ChildTask, deadline: float) -> Row:
        """The worker's answer, or an outcome that says why there is none.

        A process that waits for a CPU core is slow but does not hang, so the time that it waits
        does not count as silence.
        """
        process = self.process
        silent_seconds = waited_for_core = 0.0
        last_message = time.monotonic()
        waited_before = seconds_without_core(process.pid)
        while True:
            now = time.monotonic()
            if now >= deadline:
                return self._no_answer(task, SKIPPED, "the time limit ended before it answered")
            if silent_seconds >= task.limit_seconds:
                return self._no_answer(task, CRASHED, f"{NO_ANSWER} in {task.limit_seconds:g} s")
            if now - last_message >= BUSY_FACTOR * task.limit_seconds:
                detail = f"not finished in {now - last_message:.0f} s; this machine was busy"
                return self._no_answer(task, SKIPPED, detail)
            try:
                look_seconds = min(task.limit_seconds / LOOKS_PER_LIMIT, deadline - now)
                line = self.lines.get(timeout=look_seconds)
            except queue.Empty:
                waited = seconds_without_core(process.pid)
                # The sum falls when a compiler that the process started has ended, so add up what
                # came since the last look.
                waited_for_core += max(0.0, waited - waited_before)
                waited_before = waited
                silent_seconds = time.monotonic() - last_message - waited_for_core
                continue
            # An empty line means that the worker has closed its stream.
            if not line:
                return self._no_answer(task, CRASHED, how_it_ended(process.wait()))
            answer: Row = json.loads(line)
            if "at" not in answer:
                return answer
            # The check goes on, and has reported what it is computing: its limit starts again.
            self.last_place = answer
            silent_seconds, waited_for_core, last_message = 0.0, 0.0, time.monotonic()
            waited_before = seconds_without_core(process.pid)

    def _no_answer(self, task: ChildTask, status: str, detail: str) -> Row:
        """The answer for a check whose process died or had to be ended before it answered."""
        self.end()
        hint = "run the check again with more time, when other programs use less CPU"
        if status == CRASHED:
            hint = (
                "`-v` shows the stack (after a hang it is above); another build may help or, on a "
                "GPU, an update of the driver"
            )
            if self.last_place:
                detail += f" at {self.last_place['at']}"
        # `detail` names the signal that ended the process.
        hint = next((cause for name, cause in USUAL_CAUSES.items() if name in detail), hint)
        return {"outcome": Outcome(status, detail, hint=hint)._asdict()}

    def _start(self, environment: Environment) -> None:
        """Start the process, read its output in two threads, and send it the user's options."""
        # Everything temporary goes into one folder, which `end` deletes: a compiler that is killed
        # leaves its files behind.
        folder = None
        with contextlib.suppress(OSError):
            folder = self.scratch = tempfile.mkdtemp(prefix="verify-")
        variables = dict(QUIET_ENVIRONMENT)
        # Torch's default folder may contain kernels that an earlier program compiled. A new folder
        # makes the compiler run, so that it is tested too.
        if folder:
            variables["TORCHINDUCTOR_CACHE_DIR"] = folder
            variables["TRITON_CACHE_DIR"] = f"{folder}/triton"
        # The user's variables override ours, and those that the check needs override both.
        variables.update({**os.environ, **dict(environment)})
        # The path of a socket in it must not exceed 107 characters; 47 are left for its name.
        if folder and len(folder) <= LONGEST_SCRATCH:
            variables["TMPDIR"] = folder
        self.process = process = subprocess.Popen(
            [sys.executable, HERE, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            encoding="utf-8",
            errors="replace",
            env=variables,
            # Start a new process group, so that `end` ends all processes in it, and a Ctrl-C in the
            # terminal does not reach it.
            start_new_session=True,
        )
        self.environment, self.lines = environment, queue.Queue()
        # Answers come on stdout. Stderr is only text for the user, so it needs no queue.
        self.relays = []
        for stream, answers in ((process.stdout, self.lines), (process.stderr, None)):
            relay = threading.Thread(target=_relay, args=(stream, answers), daemon=True)
            relay.start()
            self.relays.append(relay)
        self._send({**self.first_message, "path": sys.path, "folder": folder})

    def _send(self, message: Row) -> None:
        """Send a message. If the process is dead, `_wait_for_answer` reports how it died."""
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """End the process and those that it started, without waiting for torch to clean up."""
        process, self.process = self.process, None
        if process is not None:
            # Windows has no process groups (AttributeError).
            with contextlib.suppress(OSError, AttributeError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            # A process that sleeps in the driver cannot be killed, so do not wait forever.
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                process.wait(timeout=5)
                # Everything that the process printed must appear before the report.
                for relay in self.relays:
                    relay.join(timeout=1)
                process.stdin.close()
        # A compiler that was just killed may have written a last file: try for half a second.
        for _ in range(10):
            shutil.rmtree(self.scratch, ignore_errors=True)
            if not self.scratch or not os.path.exists(self.scratch):
                break
            time.sleep(0.05)


def seconds_without_core(pid: int) -> float:
    """How long a process with its threads and children has waited for a CPU core; 0 if the system
    is not Linux."""
    seconds = 0.0
    with contextlib.suppress(OSError, ValueError):
        for thread in Path("/proc", str(pid), "task").iterdir():
            # The thread may end before we read its files.
            with contextlib.suppress(OSError, ValueError):
                # The file contains the nanoseconds that the thread ran, the nanoseconds that it
                # waited for a core, and more.
                statistics = (thread / "schedstat").read_text().split()
                seconds += int(statistics[1]) / 1e9
                children = (thread / "children").read_text().split()
                seconds += sum(seconds_without_core(int(child)) for child in children)
    return seconds


def _relay(stream: Any, answers: "Optional[queue.Queue[str]]") -> None:
    """Put each answer on the queue, and an empty line when the child has ended. Print all other
    lines, without sequences that a terminal or a CI runner would execute.

    `answers` is None for a stream without answers. A line that a `sitecustomize` prints before the
    worker starts is not an answer.
    """
    with stream:
        for line in stream:
            if answers is not None and line.startswith("{"):
                answers.put(line)
            else:
                write_stderr(harmless(line.rstrip("\r\n")) + "\n")
    if answers is not None:
        answers.put("")


def how_it_ended(code: int) -> str:
    """How a process ended, in words, from its return code.

    >>> how_it_ended(3), how_it_ended(-11)
    ('the process ended with exit code 3', 'the process died of SIGSEGV')
    >>> how_it_ended(-35)
    'the process died of signal 35'
    """
    if code >= 0:
        # Windows' own exit codes, such as 0xC0000005, are known in hexadecimal.
        words = f"0x{code:08X}" if code > 0xFFFF else str(code)
        return f"the process ended with exit code {words}"
    # Python names only the first and the last of the real-time signals.
    names = {known.value: known.name for known in signal.Signals}
    return f"the process died of {names.get(-code, f'signal {-code}')}"
