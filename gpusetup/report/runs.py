"""Finds runs in a text that finished successfully, with no failure after them."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy

# `100%|██████| 500/500 [`, `Training completed`, `'train_runtime': 12.3`.
FINISHED = lazy(
    r"100%\|[^|]{0,80}\| ?(?P<count>\d+)/(?P=count) \["
    r"|\bPrompt executed in \d|\b[Tt]raining (?:completed|finished|done)\b|\bTest PASSED\b|\bResult = PASS\b"
    r"|'train_runtime': \d"
)
"""A progress bar at 100 %, or words that programs print when their work is done."""
# `RuntimeError: ...` at the start of a line, `Segmentation fault`, `core dumped`.
FAILED = lazy(
    r"^\s*(?:\*{2,} ?)?(?:\w+\.)*\w*(?:Error|Exception)\b:? |\b(?:Segmentation fault|core dumped|Aborted)\b|\*\*\* Error"
)
LINES_READ = 20_000
"""Only this many lines at the end of the text are read."""
SHOWN_CHARACTERS = 200
"""At most this many characters of the line are quoted as evidence."""


def runs(text: Text) -> Iterator[Event]:
    """The last run that finished successfully, unless something failed after it."""
    # A single search in the whole text is faster than a search in each line, and most texts have no
    # match.
    if not FINISHED.search(text.flat):
        return
    unread_lines = max(len(text.lines) - LINES_READ, 0)
    finished_run: Event | None = None
    for number, line in enumerate(text.lines[unread_lines:], unread_lines + 1):
        if FAILED.search(line):
            finished_run = None
        elif FINISHED.search(line):
            finished_run = Event(
                kind="run-finished",
                source=line_source(number),
                text=line.strip()[:SHOWN_CHARACTERS],
            )
    if finished_run:
        yield finished_run
