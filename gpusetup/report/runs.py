"""Runs that a text shows to have ended well: what a program printed after all that failed before."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy

FINISHED = lazy(
    r"100%\|[^|]{0,80}\| ?(?P<count>\d+)/(?P=count) \["
    r"|\bPrompt executed in \d|\b[Tt]raining (?:completed|finished|done)\b|\bTest PASSED\b|\bResult = PASS\b"
    r"|'train_runtime': \d"
)
"""A progress bar at its end, and what programs print when their work is done."""
FAILED = lazy(
    r"^\s*(?:\*{2,} ?)?(?:\w+\.)*\w*(?:Error|Exception)\b:? |\b(?:Segmentation fault|core dumped|Aborted)\b|\*\*\* Error"
)
LINES_READ = 20_000


def runs(text: Text) -> Iterator[Event]:
    """The last run that ended well, unless something failed after it."""
    if not FINISHED.search(text.flat):
        return
    finished: tuple[int, str] | None = None
    for number, line in enumerate(
        text.lines[-LINES_READ:], 1 + max(len(text.lines) - LINES_READ, 0)
    ):
        if FAILED.search(line):
            finished = None
        elif FINISHED.search(line):
            finished = (number, line.strip())
    if finished:
        number, shown = finished
        yield Event(kind="run-finished", source=f"report, line {number}", text=shown[:200])
