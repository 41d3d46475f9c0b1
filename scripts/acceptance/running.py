"""Starts each part in a process of its own and ends it, with all below it, at its limit."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from acceptance.claims import claims_of
from acceptance.processes import descendants, end, end_left
from acceptance.values import CRASHED, DONE, FAILS, KILLED, LATE, NOT_BUILT, Part, Result
from acceptance.work import EARLIER, ROOT, search_path

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
    if part.command is not None and not is_built(part.command):
        told = f"gpusetup has no command {part.command} yet"
        claims = tuple(claim._replace(figure=told) for claim in claims_of(part.name, (), device))
        return Result(part.name, True, NOT_BUILT, 0.0, seconds, claims)
    (folder / EARLIER).write_text(json.dumps(earlier or {}), encoding="utf-8")
    began, others = time.monotonic(), set(descendants(os.getpid()))
    code = _ended(part, options, device, folder, seconds)
    spent = time.monotonic() - began
    left = end_left(others)
    status = KILLED if code in (None, LATE) else DONE if code == 0 else CRASHED
    claims, tables = answers_in(folder, part.name, device)
    fine = status == DONE and not any(claim.verdict == FAILS for claim in claims)
    problem = "" if status == DONE else _last_line(folder / "stderr.txt")
    if left and status == DONE:
        problem = f"{left} processes outlived the part and were ended"
    return Result(part.name, fine, status, spent, seconds, claims, tables, problem)


def is_built(command: str) -> bool:
    """Whether gpusetup has a command of that name."""
    argv = [sys.executable, "-m", "gpusetup", "help", command]
    env = {**os.environ, "PYTHONPATH": search_path()}
    try:
        found = subprocess.run(argv, capture_output=True, timeout=30, env=env)
    except subprocess.TimeoutExpired:
        return True
    return found.returncode == 0


def _ended(part: Part, options: Any, device: str, folder: Path, seconds: float) -> int | None:
    """The part's exit code; None where it was killed."""
    argv = [sys.executable, str(ENTRY), "--run-part", part.name, "--device", device]
    argv += ["--out", str(folder), "--seconds", str(seconds), "--seed", str(options.seed)]
    argv += ["--short"] if options.short else []
    env = {**os.environ, "PYTHONPATH": search_path(), "PYTHONUNBUFFERED": "1"}
    with (folder / "stdout.txt").open("wb") as out, (folder / "stderr.txt").open("wb") as err:
        child = subprocess.Popen(
            argv, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=env, start_new_session=True
        )
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
    lines = []
    with contextlib.suppress(OSError):
        for text in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(text))
    tables: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if "rows" in line:
            tables[line["table"]] = line["rows"]
        elif "table" in line:
            tables.setdefault(line["table"], []).append(line["row"])
    said = [line for line in lines if "claim" in line]
    return claims_of(part, said, device), tables


def _last_line(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip().rpartition("\n")[2][:300]
    return ""
