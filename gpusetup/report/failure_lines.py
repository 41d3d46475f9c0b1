"""Finds the lines of a text in which a person or a program mentions a failure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gpusetup.messages import working
from gpusetup.messages.alternatives import has_any
from gpusetup.model.patterns import lazy, lowered
from gpusetup.report.failures import ALIGNED_LABEL, TABLE_STARTS
from gpusetup.report.person import is_prose

# `[1/4]`, `12 ...`, `ERROR: ...`, `WARNING]`.
PRINTED_FIRST = lazy(
    r"\s*(?:[\d\[(]|(?:ERROR|Error|FATAL|CRITICAL|WARN(?:ING)?|INFO|DEBUG)\b[\]:])"
)
"""The beginning of a line that a program printed, even if the rest reads like a sentence."""


class FailureLines(NamedTuple):
    """The indexes (from 0) of the lines that mention a failure."""

    complaints: tuple[int, ...]
    """Lines in which a person mentions a failure."""
    errors: tuple[int, ...]
    """Lines in which a program reports a failure."""
    slow: tuple[int, ...]
    """Lines that say that something is slow."""

    @property
    def by_person(self) -> tuple[int, ...]:
        """Lines in which a person complains about a failure or slowness."""
        return self.complaints + self.slow

    @property
    def of_any(self) -> tuple[int, ...]:
        """Lines that mention a failure, written by a person or a program."""
        return self.complaints + self.errors

    def without(self, lines: Collection[int]) -> FailureLines:
        """A copy without these line indexes."""
        kept = [tuple(index for index in indexes if index not in lines) for indexes in self]
        return FailureLines(*kept)


def failure_lines(lines: Sequence[str], logged: Collection[int] = ()) -> FailureLines:
    """The lines in which a person or a program mentions a failure. Notices and printed labels do
    not count.

    `logged`: the numbers (from 1) of lines that a program logged, whatever their words.
    """
    low = lowered("\n".join(lines))
    failures = working.FAILURE.possible_in(low)
    worries = working.WORRY.possible_in(low)
    slowness = working.SLOW.possible_in(low)
    complaints: list[int] = []
    errors: list[int] = []
    slow: list[int] = []
    for index, line in enumerate(lines):
        if line.lstrip().startswith(TABLE_STARTS):
            continue
        label = ALIGNED_LABEL.match(line)
        words = line[label.end() :] if label else line
        # Most lines name no failure at all, so the slow removal of labels and notices is skipped
        # for them.
        if not has_any((*failures, *worries, *slowness), words):
            continue
        without_labels = working.PRINTED_LABELS.sub(" ", words)
        without_notices = working.NOTICES.sub(" ", without_labels)
        if has_any(slowness, without_notices):
            slow.append(index)
        names_failure = has_any(failures, without_notices)
        if not names_failure and not has_any(worries, without_notices):
            continue
        is_logged = index + 1 in logged
        if is_prose(words) and not is_logged and not PRINTED_FIRST.match(words):
            complaints.append(index)
        elif names_failure:
            # Words of worry count only in a person's sentence: programs use the same words when
            # they report progress.
            errors.append(index)
    return FailureLines(tuple(complaints), tuple(errors), tuple(slow))
