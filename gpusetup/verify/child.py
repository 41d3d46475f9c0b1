"""Starts the child process, gives it one check at a time, and reads its answer or how it died."""

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
from typing import Any, Dict, List, Optional, Tuple

from .answer.render import harmless
from .cores import Cores
from .ending import heard, held
from .streams import say
from .values import CRASHED, SKIPPED, Asked, Check, Outcome, kind

HERE = os.path.dirname(os.path.abspath(__file__))
Environment = Tuple[Tuple[str, str], ...]
LAST_WORDS = {
    "SIGKILL": "often the kernel when memory runs out: `dmesg` says so",
    "SIGILL": "an instruction that this CPU lacks: this torch is built for a newer one",
    "SIGBUS": "often a full /dev/shm or a file that was cut while in use",
}
"""How a process ended -> what that usually means."""
GENTLY_SECONDS = 5.0
"""How long it may take to end what it started, after a Ctrl-C."""
LOOKS = 40
"""How often a process that has not answered is looked at within its limit."""


CALM = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "30000",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
"""Variables of the child. Without the first torch's compiler starts a process for each core as it
is imported. Without the second, read as torch is loaded, a CPU thread that waits for others turns
in circles: two cores then compute as long again in vain, beside other work much longer. Without
the third it sleeps at once, and waking it takes longer than most computations: `standard` took 95 s
on two quiet cores with the second alone, 72 s with both (86 CPU seconds), 73 s with neither (125).
The fourth keeps warnings about the checks' own settings out of the answer.
"""


def variables_of(check: Check, subject: str) -> Environment:
    """The variables that a check wants before torch starts; cuBLAS reads its own only on a GPU,
    and on the CPU a process of its own for them would load torch for nothing.

    >>> variables_of(Check("a", "", (), environment=(("CUBLAS_A", "1"), ("B", "2"))), "cpu")
    (('B', '2'),)
    """
    if kind(subject) == "cuda":
        return check.environment
    return tuple(each for each in check.environment if not each[0].startswith("CUBLAS_"))


def folder_for_kernels() -> Optional[str]:
    """A new folder for what torch compiles; None where the user names one, or none can be made.

    Without one torch takes kernels that an earlier program left in its folder for the user, and
    the compiler does not run at all.
    """
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return None
    try:
        return tempfile.mkdtemp(prefix="verify-")
    except OSError:
        return None


def caches(folder: Optional[str]) -> Dict[str, str]:
    """The variables by which torch's compiler and Triton keep their kernels in this folder."""
    if folder is None:
        return {}
    return {
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
    }


MOST_LOST = 20
"""So many times a check goes on behind a question in which torch's own reference died."""


def without_reference(answer: Dict[str, Any], lost: List[str], seconds: float) -> Dict[str, Any]:
    """The answer with a word on the questions that torch itself could not answer."""
    if not lost or "outcome" not in answer:
        return answer
    told = f"; torch itself could not answer {len(lost)} questions (the first: {lost[0]})"
    outcome = {**answer["outcome"], "detail": answer["outcome"]["detail"] + told}
    return {**answer, "outcome": outcome, "seconds": seconds}


class Child:
    """The computing process; started at the first job, and anew after it died."""

    def __init__(self, verbose: bool, asked: Optional[Asked] = None) -> None:
        self.verbose = verbose
        self.asked = asked or Asked()
        self.environment: Environment = ()
        self.process: Optional["subprocess.Popen[str]"] = None
        self.kernels: Optional[str] = None
        self.lines: "queue.Queue[str]" = queue.Queue()
        self.relay: Optional[threading.Thread] = None
        self.said: Dict[str, Any] = {}
        """What the check said last of what it computes."""

    def ask(
        self,
        name: str,
        device: str,
        limit_seconds: float,
        environment: Environment = (),
        whole_seconds: float = 0.0,
    ) -> Dict[str, Any]:
        """Run one check in the child: its outcome and seconds, as the worker says them.

        A process is used for as long as the checks want the same variables. A check that names what
        it computes has `limit_seconds` for each of it and `whole_seconds` for all. Where it dies
        in a reference of torch's own, the check goes on behind that in another process.
        """
        began, until = time.monotonic(), time.monotonic() + max(limit_seconds, whole_seconds)
        job: Dict[str, Any] = {"name": name, "device": device, "limit": limit_seconds}
        lost: List[str] = []
        while True:
            if environment != self.environment:
                self.end()
            if self.process is None:
                self.start(environment)
            self.said = {}
            self.say({**job, "whole": until - time.monotonic()})
            answer = self._answer(device, limit_seconds, until)
            if answer is not None:
                return without_reference(answer, lost, time.monotonic() - began)
            process = self.process
            if process is None:  # another thread has ended it
                return died("ended before it answered", device)
            code = process.wait()
            self.end()
            at = self.said.get("at", "")
            if code >= 0 or not self.said.get("reference") or len(lost) >= MOST_LOST:
                return died(how(code) + (f" at {at}" if at else ""), device)
            lost.append(at)
            job["after"] = {"at": at, "kept": self.said.get("kept")}

    def _answer(self, device: str, limit_seconds: float, until: float) -> Optional[Dict[str, Any]]:
        """What the worker answers; None where it has gone."""
        whole_seconds = until - time.monotonic()
        while True:
            limit = min(limit_seconds, max(0.0, until - time.monotonic()))
            cores = Cores(self.process.pid if self.process else 0)
            try:
                line = self._line(limit, cores)
            except queue.Empty:
                cores.look()
                waited = cores.waited(limit)
                self.end()
                if waited:
                    return busy(limit, waited)
                limit = limit_seconds if limit == limit_seconds else whole_seconds
                return silent(limit, self.said.get("at", ""), device)
            answer: Optional[Dict[str, Any]] = dict(json.loads(line)) if line else None
            if answer is None or "at" not in answer:
                return answer
            self.said = answer

    def _line(self, limit_seconds: float, cores: Cores) -> str:
        """What it says next; raises Empty if that takes longer."""
        until = time.monotonic() + limit_seconds
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                return self.lines.get(timeout=min(left, limit_seconds / LOOKS))
            except queue.Empty:
                if time.monotonic() >= until:
                    raise
            cores.look()

    def start(self, environment: Environment = ()) -> None:
        with held():
            self._start(environment)

    def _start(self, environment: Environment) -> None:
        flags: List[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        self.kernels = folder_for_kernels()
        self.process = subprocess.Popen(
            [sys.executable, *flags, HERE, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            encoding="utf-8",
            errors="replace",
            env={**CALM, **caches(self.kernels), **os.environ, **dict(environment)},
            start_new_session=True,
        )
        self.environment = environment
        self.lines = queue.Queue()
        threading.Thread(target=_listen, args=(self.process, self.lines), daemon=True).start()
        self.relay = threading.Thread(target=_relay, args=(self.process,), daemon=True)
        self.relay.start()
        asked = self.asked._asdict()
        self.say({"path": sys.path, "verbose": self.verbose, "asked": asked})

    def say(self, message: Dict[str, Any]) -> None:
        assert self.process is not None and self.process.stdin is not None
        # Where it is dead already, the reader of its answer says how it died.
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """End the process, if there is one, without waiting for its torch to tidy up."""
        process, self.process = self.process, None
        if process is None:
            return
        assert process.stdin is not None
        kill(process)
        with contextlib.suppress(OSError):
            process.stdin.close()
        # One that sleeps in the driver cannot be killed: it is given up, not waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        if self.relay is not None:
            self.relay.join(timeout=1)
        if self.kernels is not None:
            shutil.rmtree(self.kernels, ignore_errors=True)


def kill(process: "subprocess.Popen[str]") -> None:
    """The process with those that it started: a loader's workers hold the GPU open too."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _listen(process: "subprocess.Popen[str]", lines: "queue.Queue[str]") -> None:
    """Hand on each answer; an empty one says that the child has gone.

    What a `sitecustomize` prints before the worker has its stream is no answer.
    """
    assert process.stdout is not None
    with process.stdout as answers:
        for line in answers:
            if line.startswith("{"):
                lines.put(line)
            else:
                _pass_on(line)
    lines.put("")


def _pass_on(line: str) -> None:
    say(harmless(line.rstrip("\r\n")) + "\n")


def _relay(process: "subprocess.Popen[str]") -> None:
    """Hand on what libraries say, as text that no terminal and no CI runner obeys."""
    assert process.stderr is not None
    with process.stderr as said:
        for line in said:
            _pass_on(line)


def died(detail: str, device: str) -> Dict[str, Any]:
    """The answer of a check in which the process ended."""
    meaning = next((text for name, text in LAST_WORDS.items() if name in detail), None)
    mend = "an update of the driver or another build" if kind(device) == "cuda" else "another build"
    hint = meaning or f"`-v` shows the stack (a hang leaves it above); {mend} may help"
    return {"outcome": Outcome(CRASHED, detail, hint=hint)._asdict(), "seconds": 0.0}


def silent(limit_seconds: float, at: str, device: str) -> Dict[str, Any]:
    """The answer of a check that gave none in time; `at` is what it computed last.

    >>> silent(300, "mm/float32/strided/tile/7", "cpu")["outcome"]["detail"]
    'no answer in 300 s at mm/float32/strided/tile/7; the process was ended'
    """
    where = f" at {at}" if at else ""
    told = died(f"no answer in {limit_seconds:g} s{where}; the process was ended", device)
    return {**told, "seconds": limit_seconds}


def busy(seconds: float, waited: str) -> Dict[str, Any]:
    """The answer of a check that other programs left no time to answer."""
    hint = "run it again while other programs compute less"
    outcome = Outcome(SKIPPED, f"the machine is busy: no answer, {waited}", hint=hint)
    return {"outcome": outcome._asdict(), "seconds": seconds}


def how(code: int) -> str:
    """How a process ended, from its return code.

    >>> how(3), how(-11)
    ('the process ended with exit code 3', 'the process died of SIGSEGV')
    """
    if code >= 0:
        shown = f"0x{code:08X}" if code > 0xFFFF else str(code)
        return f"the process ended with exit code {shown}"
    return f"the process died of {signal.Signals(-code).name}"


def start_by_path(python: str, arguments: List[str]) -> int:
    """Run this folder with another interpreter, its streams ours; the exit code.

    A signal that asks for the end is passed on, and the report waited for.
    """
    process: List["subprocess.Popen[bytes]"] = []
    came: List[int] = []

    def pass_on(number: int, _: Any) -> None:
        came.append(number)
        for each in process:
            each.send_signal(number)

    heard(pass_on)
    process.append(subprocess.Popen([python, HERE, *arguments]))
    for number in came:
        process[0].send_signal(number)
    try:
        code = process[0].wait()
    except KeyboardInterrupt:  # a terminal's Ctrl-C has reached it too
        with contextlib.suppress(subprocess.TimeoutExpired):
            process[0].wait(timeout=GENTLY_SECONDS)
        process[0].kill()
        raise
    finally:
        heard(signal.SIG_DFL)
    return code if code >= 0 else 128 - code
