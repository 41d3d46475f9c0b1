"""The child that runs trials (`child_scripts/bench.py`), kept from one to the next.

Inside `shared()` the trials of one interpreter and folder go to one child, until that one says that
it is spent, dies or hangs; the next trial has a fresh one. Outside each has its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpusetup.system.processes import Lines, Output, no_answer_in
from gpusetup.tune.oom import is_answer_short, is_killed_for_memory, is_out_of_memory

SCRIPT = Path(__file__).resolve().parent.parent / "child_scripts" / "bench.py"
CHILD = {
    "PYTHONIOENCODING": "utf-8",
    "GPUSETUP_PROBE": "1",
    "MALLOC_ARENA_MAX": "2",
}
"""Variable -> its value in the child. Every further arena of glibc reserves 64 MiB of addresses,
in some runs and in others not."""
ERRORS_SHOWN = 64 << 10
"""How much of what a trial said last on standard error is read."""

Place = tuple[str, str]
KEPT: list[dict[Place, Child]] = []
"""The children of the `shared()` that are open, the innermost last."""


class Child:
    """One process. Raises OSError where it cannot start."""

    def __init__(self, python: str, folder: str) -> None:
        self.argv = (python, str(SCRIPT))
        self._errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - `end` closes it
        self._lines = Lines(
            self.argv, environment={**os.environ, **CHILD}, cwd=folder, errors=self._errors
        )
        self.over = self.again = False

    def ask(self, request: Mapping[str, Any], timeout: float) -> Output:
        """What it answers, or how it ended: then it is `over`, as where it says so itself.

        `again`: the failure may be the fork's own, and is to be asked of a fresh one; running out
        of memory is not, since a fork starts with what every trial starts with.
        """
        began, said = time.monotonic(), self._said_bytes()
        self._lines.tell(json.dumps(request))
        line, code, problem = "", None, None
        try:
            line = self._lines.next(timeout)
        except TimeoutError:
            problem, self.over = no_answer_in(timeout), True
        except EOFError:
            code, self.over = self._lines.exit(), True
            problem = "closed its output" if code is None else None
        answer, errors = json.loads(line) if line else {}, self._errors_since(said)
        if answer.get("status") == "died":
            line, code = "", answer["exit"]
        self.again = bool(answer.get("again")) and not is_short(answer, code, errors)
        self.over = self.over or self.again or bool(answer.get("spent"))
        return Output(
            argv=self.argv,
            exit=0 if line else code,
            stdout=line,
            stderr=errors,
            problem=problem,
            seconds=time.monotonic() - began,
        )

    def _said_bytes(self) -> int:
        return os.fstat(self._errors.fileno()).st_size

    def _errors_since(self, start: int) -> str:
        self._errors.seek(max(start, self._said_bytes() - ERRORS_SHOWN))
        return self._errors.read().decode("utf-8", "replace")

    def end(self) -> None:
        self._lines.end()
        self._errors.close()


def is_short(answer: Mapping[str, Any], code: int | None, errors: str) -> bool:
    """Whether memory ran out, where a smaller size ran before.

    >>> is_short({"status": "error", "kinds": ["MemoryError"]}, 0, "")
    True
    """
    if answer.get("status") == "died":
        return is_killed_for_memory(code) or is_out_of_memory(errors, maybe=True)
    return is_answer_short(answer, maybe=True)


@contextmanager
def shared() -> Iterator[None]:
    """Trials inside share their child."""
    children: dict[Place, Child] = {}
    KEPT.append(children)
    try:
        yield
    finally:
        KEPT.remove(children)
        for child in children.values():
            child.end()


def answered(python: str | None, folder: str, request: Mapping[str, Any], timeout: float) -> Output:
    """The answer of the shared child, or of one for this request alone."""
    if not KEPT:
        with shared():
            return answered(python, folder, request, timeout)
    place, children = (python or sys.executable, folder), KEPT[-1]
    try:
        child = children[place] = children.get(place) or Child(*place)
    except OSError as problem:
        return Output(argv=place, exit=None, problem=problem.strerror or str(problem))
    said = child.ask(request, timeout)
    if child.over:
        children.pop(place).end()
    if child.again:
        return answered(python, folder, {**request, "import_once": False}, timeout)
    return said
