"""What a part is given: its device, its time, the commands, and where its answers go.

A part writes each answer at once, so that what it found stands when it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from acceptance.processes import end, told

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT_CHARACTERS = 400_000
MOST_HEARD = 16 << 20
"""Bytes of one stream of a program; one that prints more is ended."""
OWN_FAULT = 5
"""gpusetup's exit code where it failed itself."""
EARLIER = "earlier.json"
NOT_THERE = "No module named"


class Late(Exception):
    """The part's time is over: nothing is known, and nothing failed."""


class Unanswered(Exception):
    """One question was not answered in its own time; the part has more."""


class Said(NamedTuple):
    """What a command said."""

    exit: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """The last line of JSON, or the whole of it; empty where there is none."""
        for text in (self.stdout, self.stdout.strip().rpartition("\n")[2]):
            try:
                found = json.loads(text)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
        return {}

    @property
    def problem(self) -> str:
        """Why it did not answer, in a line."""
        if self.exit is None:
            return self.stderr.strip().rpartition("\n")[2][:300] or "no answer in time"
        if self.exit < 0:
            return f"ended by signal {-self.exit}"
        said = self.document
        told = said.get("message") or said.get("reason") or error_in(self.stderr)
        return f"exit {self.exit}: {told}"[:300]

    @property
    def broken(self) -> bool:
        """Whether the command itself failed, so that its exit code is no answer.

        >>> [Said(1, text, "No module named 'msgspec'", 0.1).broken for text in ("", '{"a": 1}')]
        [True, False]
        """
        if self.exit is None or self.exit == 0:
            return False
        fault = self.exit < 0 or self.exit == OWN_FAULT
        return fault or (not self.document and self.exit in (1, 2))


ERROR_LINE = re.compile(r"(?m)^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*$")


def error_in(errors: str) -> str:
    """The line that names the error, which torch explains in many more; else the last one.

    >>> error_in("Traceback:\\n  x\\ntorch.AcceleratorError: CUDA error: 2\\nCompile with DSA")
    'torch.AcceleratorError: CUDA error: 2'
    >>> error_in("one\\ntwo\\n")
    'two'
    """
    named = ERROR_LINE.findall(errors)
    return named[-1].strip() if named else errors.strip().rpartition("\n")[2]


class Work:
    """One part at work."""

    def __init__(self, device: str, seconds: float, folder: Path, **options: Any) -> None:
        self.device = "cuda:0" if device == "cuda" else device  # as verify names a device
        self.folder, self.options = folder, options
        self.ends = time.monotonic() + seconds
        self.seconds = seconds
        self.on_card = device.startswith("cuda")
        self.short = bool(options.get("short"))
        self.answers = folder / "answers.jsonl"

    def left(self, reserve: float = 2.0) -> float:
        """The seconds that are left before the limit, less a reserve."""
        return max(0.0, self.ends - time.monotonic() - reserve)

    # --- answers ---

    def claim(self, id: str, verdict: str | bool, figure: object = "", text: str = "") -> None:
        """A verdict; true and false are `holds` and `fails`."""
        named = verdict if isinstance(verdict, str) else ("holds" if verdict else "fails")
        if named == "fails" and NOT_THERE in str(figure):
            named = "open"  # what is not installed refutes nothing
        self._write({"claim": id, "verdict": named, "figure": str(figure)[:600], "text": text})

    def row(self, table: str, **values: Any) -> None:
        self._write({"table": table, "row": values})

    def table(self, name: str, rows: list[dict[str, Any]]) -> None:
        """All rows of a table, in place of those that were said before."""
        self._write({"table": name, "rows": rows})

    def earlier(self) -> dict[str, list[dict[str, Any]]]:
        """This part's tables of earlier calls that were of the same card and code."""
        try:
            found = json.loads((self.folder / EARLIER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def keep(self, name: str, text: str) -> None:
        """A file of the archive of runs."""
        (self.folder / name).write_text(text[-KEPT_CHARACTERS:], encoding="utf-8")

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.answers.open("a", encoding="utf-8") as answers:
            answers.write(json.dumps(line, default=str) + "\n")

    # --- commands ---

    def gpusetup(self, *words: str, limit: float = 600, name: str = "", **environment: str) -> Said:
        """Run gpusetup of this checkout; what it said is kept as `name`."""
        said = self.program((sys.executable, "-m", "gpusetup", *words), limit, name, environment)
        if said.broken:
            self._write({"broken": f"gpusetup {words[0]}: {said.problem}"})
        return said

    def program(
        self,
        argv: tuple[str, ...],
        limit: float = 600,
        name: str = "",
        environment: Mapping[str, str] | None = None,
        said_to: str = "",
    ) -> Said:
        if self.left() < 1:
            raise Late
        said = run_program(argv, min(limit, self.left()), environment, said_to)
        if name:
            self.keep(f"{name}.txt", f"{said.stdout}\n--- stderr, exit {said.exit}\n{said.stderr}")
        if said.exit is None and self.left() < 1:
            raise Late
        return said

    def smi(self, *fields: str) -> dict[str, str] | None:
        """nvidia-smi's answers for the first GPU, by field; None where it does not answer."""
        argv = ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        said = self.program((*argv, "--id=0"), limit=15)
        lines = said.stdout.strip().splitlines()
        if said.exit != 0 or not lines:
            return None
        return dict(zip(fields, (value.strip() for value in lines[0].split(",")), strict=False))


def run_program(
    argv: tuple[str, ...],
    limit: float,
    environment: Mapping[str, str] | None = None,
    said_to: str = "",
    folder: str | None = None,
) -> Said:
    """Never raises for what the program does; at its limit it ends with all below it."""
    began = time.monotonic()
    env = child_environment() | {"NO_COLOR": "1", **(environment or {})}
    try:
        child = subprocess.Popen(
            argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, cwd=folder,
        )  # fmt: skip
    except OSError as problem:
        return Said(127, "", f"{argv[0]}: {problem.strerror}", time.monotonic() - began)
    texts, code = _heard(child, limit, said_to)
    return Said(code, *texts, time.monotonic() - began)


def _heard(
    child: subprocess.Popen[bytes], limit: float, said_to: str
) -> tuple[tuple[str, str], int | None]:
    """What it printed, and its exit code: None where its time, or the room for it, was over."""
    ends = time.monotonic() + max(limit, 0.1)
    streams = [_Stream(child, child.stdout), _Stream(child, child.stderr)]
    threads = [threading.Thread(target=stream.read, daemon=True) for stream in streams]
    threads.append(threading.Thread(target=_tell, args=(child, said_to), daemon=True))
    for thread in threads:
        thread.start()
    code: int | None = None
    try:
        code = child.wait(max(0.0, ends - time.monotonic()))
        for thread in threads:
            thread.join(max(0.0, ends - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        if code is None or any(thread.is_alive() for thread in threads):
            end(child)
            code = None
    for thread in threads:
        thread.join(2)
    out, err = (stream.text() for stream in streams)
    if any(stream.over for stream in streams):
        return (out, f"{err}\nended: it printed more than {MOST_HEARD >> 20} MiB"), None
    return (out, err), code


class _Stream:
    """What a program prints to one pipe; past the most, the program is ended."""

    def __init__(self, child: subprocess.Popen[bytes], pipe: Any) -> None:
        self.child, self.pipe, self.over = child, pipe, False
        self.pieces: list[bytes] = []

    def read(self) -> None:
        size = 0
        with contextlib.suppress(OSError, ValueError), self.pipe:
            while piece := self.pipe.read1(1 << 16):
                size += len(piece)
                if size > MOST_HEARD:
                    self.over = True
                    told(self.child.pid, signal.SIGKILL)
                    return
                self.pieces.append(piece)

    def text(self) -> str:
        return b"".join(self.pieces).decode("utf-8", "replace")


def _tell(child: subprocess.Popen[bytes], text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        if child.stdin is not None:
            with child.stdin:
                child.stdin.write(text.encode())


def child_environment() -> dict[str, str]:
    """For every child: modules come from this checkout and the caller's PYTHONPATH, never from the
    folder in which somebody stands."""
    return {**os.environ, "PYTHONPATH": search_path(), "PYTHONSAFEPATH": "1"}


def search_path() -> str:
    """This checkout first, then what the caller named (wheels that travelled)."""
    own = (str(ROOT), str(ROOT / "scripts"))
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join((*own, *map(os.path.abspath, named)))


def attempt(work: Work, claim: str, what: Callable[[], object]) -> None:
    """One question of a part: what it raises is its answer, and the part goes on."""
    try:
        what()
    except Late:
        work.claim(claim, "open", "the part's time was over")
        raise
    except Unanswered as problem:
        work.claim(claim, "open", problem)
    except Exception as problem:
        work.claim(claim, "fails", f"{type(problem).__name__}: {problem}")
