"""Starts each part in a process of its own and ends it, with all below it, at its limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from acceptance.claims import claims_of
from acceptance.processes import descendants, end, end_left
from acceptance.values import (
    CRASHED,
    DONE,
    FAILED,
    FAILS,
    KILLED,
    LATE,
    Part,
    Result,
)
from acceptance.work import (
    EARLIER,
    ROOT,
    child_environment,
    error_in,
)

ENTRY = ROOT / "scripts" / "gpu_acceptance.py"


def run_part(
    part: Part,
    options: Any,
    device: str,
    folder: Path,
    seconds: float,
    earlier: dict[str, Any] | None = None,
) -> Result:
    """The part's result, whatever it does; nothing that it started goes on.

    `earlier` are the part's tables of an earlier call.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EARLIER).write_text(json.dumps(earlier or {}), encoding="utf-8")
    began, others = time.monotonic(), set(descendants(os.getpid()))
    try:
        code = _ended(part, options, device, folder, seconds)
    except OSError as refused:  # no process more, no memory for one
        claims, tables = answers_in(folder, part.name, device)
        why = f"it cannot be started: {refused}"
        return Result(part.name, False, CRASHED, 0.0, seconds, claims, tables, why)
    spent = time.monotonic() - began
    left = end_left(others)
    claims, tables = answers_in(folder, part.name, device)
    status, problem = became(code, broken_in(folder), folder / "stderr.txt")
    fine = status == DONE and not any(claim.verdict == FAILS for claim in claims)
    if left and status == DONE:
        problem = f"{left} processes outlived the part and were ended"
    return Result(part.name, fine, status, spent, seconds, claims, tables, problem)


def became(code: int | None, broken: list[str], errors: Path) -> tuple[str, str]:
    """(status, problem) of a part that ended with the code."""
    if code in (None, LATE):
        return KILLED, _error_of(errors)
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return CRASHED, f"ended by signal {name}"
    if code:
        return CRASHED, _error_of(errors) or f"exit {code}"
    return (FAILED, broken[0]) if broken else (DONE, "")


def broken_in(folder: Path) -> list[str]:
    """The commands that failed themselves, each with its problem."""
    return [line["broken"] for line in _answers(folder) if "broken" in line]


def _ended(part: Part, options: Any, device: str, folder: Path, seconds: float) -> int | None:
    """The part's exit code; None where it was killed."""
    argv = [sys.executable, str(ENTRY), "--run-part", part.name, "--device", device]
    argv += ["--out", str(folder), "--seconds", str(seconds), "--seed", str(options.seed)]
    argv += ["--short"] if options.short else []
    here, temp = folder / "empty", folder / "temp"
    here.mkdir(exist_ok=True)
    temp.mkdir(exist_ok=True)
    env = child_environment() | {"PYTHONUNBUFFERED": "1", "TMPDIR": str(temp)}
    with (folder / "stdout.txt").open("wb") as out, (folder / "stderr.txt").open("wb") as err:
        child = subprocess.Popen(
            argv, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=env, cwd=here,
            start_new_session=True,
        )  # fmt: skip
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            end(child)
            return None
        except BaseException:  # Ctrl-C, SIGTERM: nothing of ours stays on the card
            end(child)
            raise


def answers_in(folder: Path, part: str, device: str) -> tuple[Any, Any]:
    """(claims, tables) of what a part wrote; a last line that was cut off is left out."""
    lines = _answers(folder)
    tables: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if "rows" in line:
            tables[line["table"]] = line["rows"]
        elif "table" in line:
            tables.setdefault(line["table"], []).append(line["row"])
    said = [line for line in lines if "claim" in line]
    return claims_of(part, said, device), tables


def _answers(folder: Path) -> list[dict[str, Any]]:
    lines = []
    with contextlib.suppress(OSError):
        for text in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(text))
    return lines


def _error_of(path: Path) -> str:
    with contextlib.suppress(OSError):
        return error_in(path.read_text(errors="replace"))[:300]
    return ""
