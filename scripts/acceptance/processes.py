"""Runs a program to its end or to its limit, and ends it with everything that it started."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_BYTES = 1 << 20
"""How much of what a program printed is read: its end."""
GOING_SECONDS = 3.0
OVER = "the part's time was over"
PR_SET_CHILD_SUBREAPER = 36
ERROR_LINE = re.compile(r"(?m)^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*$")


class Said(NamedTuple):
    """What a program said; `exit` is None where it was ended at its limit."""

    exit: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """The whole of it as JSON, or its last line; empty where there is none."""
        for text in (self.stdout, self.stdout.strip().rpartition("\n")[2]):
            with contextlib.suppress(ValueError):
                found = json.loads(text)
                if isinstance(found, dict):
                    return found
        return {}

    @property
    def problem(self) -> str:
        """Why it gave no answer: the line that names the error, which torch explains in many.

        >>> Said(1, "", "x\\ntorch.AcceleratorError: CUDA error: 2\\nCompile with DSA", 1).problem
        'exit 1: torch.AcceleratorError: CUDA error: 2'
        """
        if self.exit is None:
            return "no answer in time"
        named = ERROR_LINE.findall(self.stderr) or self.stderr.strip().splitlines() or [""]
        told = self.document.get("message") or self.document.get("reason") or named[-1]
        ended = f"ended by signal {-self.exit}" if self.exit < 0 else f"exit {self.exit}"
        return f"{ended}: {told}"[:300]


def environment(**more: str) -> dict[str, str]:
    """Modules come from this checkout and the caller's PYTHONPATH, not from the current folder."""
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = (str(ROOT), str(ROOT / "scripts"), *map(os.path.abspath, named))
    first = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "NO_COLOR": "1"}
    return {**os.environ, **first, **more}


def run(
    argv: Sequence[str], limit: float, env: Mapping[str, str] | None = None, told: str = ""
) -> Said:
    """Never raises for what the program does; at its limit it ends with all below it."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                argv, env=env or environment(), stdin=subprocess.PIPE, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
        except OSError as problem:
            return Said(127, "", f"{argv[0]}: {problem.strerror}", time.monotonic() - began)
        try:
            child.communicate(told.encode(), timeout=max(limit, 0.1))
        except subprocess.TimeoutExpired:
            pass
        finally:
            code = child.poll()
            end(child)
        return Said(code, _end_of(out), _end_of(err), time.monotonic() - began)


def _end_of(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
    return file.read().decode("utf-8", "replace")


def end(child: subprocess.Popen[Any]) -> None:
    """Kill a process and everything below it, also what made itself a group."""
    with contextlib.suppress(psutil.NoSuchProcess):
        end_all([psutil.Process(child.pid)])
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GOING_SECONDS)


def below(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def end_all(processes: Sequence[psutil.Process]) -> int:
    """Kill them and all below them, and say how many were running.

    Each is stopped before it is killed: what is stopped starts nothing that would get away.
    """
    stopped: set[psutil.Process] = set()
    while fresh := {*processes, *(new for each in stopped for new in below(each.pid))} - stopped:
        for each in fresh:
            signalled(each, signal.SIGSTOP)
        stopped |= fresh
    running = [each for each in stopped if runs(each)]
    for each in stopped:
        signalled(each, signal.SIGKILL)
    psutil.wait_procs(stopped, timeout=GOING_SECONDS)
    return len(running)


def signalled(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


def runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def adopt_orphans() -> None:
    """From now on a process whose parent ended comes below this one (Linux), where it is found."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
