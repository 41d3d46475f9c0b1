"""Runs a program to its end or to its limit, and ends it with everything that it started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
GOING_SECONDS = 3.0
ERROR_LINE = re.compile(r"(?m)^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*$")


class Said(NamedTuple):
    """What a program said; `exit` is None if it was ended at its limit."""

    exit: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """The whole of it as JSON, or its last line; empty if there is none."""
        for text in (self.stdout, self.stdout.strip().rpartition("\n")[2]):
            with contextlib.suppress(ValueError):
                return dict(json.loads(text))
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
        ended = f"ended by signal {-self.exit}" if self.exit < 0 else f"exit {self.exit}"
        return f"{ended}: {self.document.get('message') or named[-1]}"[:300]


def environment(**more: str) -> dict[str, str]:
    """Modules come from this checkout and the caller's PYTHONPATH, not from the current folder."""
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = (str(ROOT), str(ROOT / "scripts"), *map(os.path.abspath, named))
    first = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "NO_COLOR": "1"}
    return {**os.environ, **first, **more}


def started(argv: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, start_new_session=True, **{"env": environment(), **how})


def run(argv: Sequence[str], limit: float, told: str = "", **how: Any) -> Said:
    """Never raises for what the program does; at its limit it ends with all below it."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = started(argv, stdin=subprocess.PIPE, stdout=out, stderr=err, **how)
        except OSError as problem:
            return Said(127, "", f"{argv[0]}: {problem.strerror}", 0.0)
        code = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(told.encode(), timeout=max(limit, 0.1))
                code = child.returncode
        finally:
            end(child)
        return Said(code, text_of(out), text_of(err), time.monotonic() - began)


def text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def below(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def end(child: subprocess.Popen[Any]) -> None:
    """Kill a process, its group, and everything below it that made itself a group."""
    for each in below(child.pid):
        with contextlib.suppress(psutil.Error):
            each.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GOING_SECONDS)
