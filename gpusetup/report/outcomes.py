"""Finds two releases of torch on one machine, one of which works while the other does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from gpusetup.accelerators.makers import LABEL
from gpusetup.messages.fragments import RELEASE
from gpusetup.messages.search import Text
from gpusetup.messages.working import PRINTED_LABELS
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report import fields
from gpusetup.report.facts import SURE, Claim

CHARACTERS_READ = 20_000
"""Only this many characters at the beginning are read, because people compare releases in their own
words and near the top."""
# `2.6.0+cu124`, `2.7.0.dev20250301`; not the version of Python or a part of a longer number.
RELEASES = lazy(
    rf"(?<![\w.])(?<!Python )(?<!python )(?<!\) )(?P<version>{RELEASE}(?:\.?(?:dev|rc|a|b)\d*)?(?:\+(?:{LABEL}))?)(?![\w+]|\.\d)"
)
# `torch`, `nightly`, a build's label, `wheel`.
TORCH_NEAR = lazy(r"(?i)torch|nightly|\+(?:cpu|cu\d|rocm|xpu)|build|wheel")
"""Words in or before a version that show that it is torch's."""
# `works with torch `, `fails with `, right before the version.
WORKS_BEFORE = lazy(
    r"(?i)\b(?:works?|worked|fine|ok|True|runs) (?:fine |well )?(?:with|on|in|under|using) (?:py)?(?:torch )?(?:nightly )?$"
)
FAILS_BEFORE = lazy(
    r"(?i)\b(?:fails?|failed|broken?|breaks?|crash\w*|False|does(?: not|n't) work|stopped working) (?:with|on|in|under|since|from) (?:py)?(?:torch )?(?:nightly )?$"
)
# `The last known wheel that worked is `, right before the version that it names.
LAST_GOOD = lazy(
    r"(?i)\blast (?:known )?(?:(?:good|working) (?:\w+ )?|(?:\w+ ){1,3}(?:that|which) work(?:s|ed) )(?:is|was|:)?:? ?(?:(?:py)?torch )?['\"`]?$"
)
# `True`, `works fine`; `False`, `crashes`: after the version and before the next one.
WORKS_BEHIND = lazy(
    r"(?i)\bTrue\b|\b(?:works?|worked) (?:fine|well|again|as expected)?|\bis fine\b|正常|работает(?! не)"
)
FAILS_BEHIND = lazy(
    r"(?i)\bFalse\b|\b(?:fails?|crash\w*|broken?|breaks)\b|(?:not|n't) work|报错|не работает"
)
# A line that consists only of torch's answer.
ANSWERS = lazy(r"(?m)^\s*(True|False)\s*$")
"""What `torch.cuda.is_available()` printed."""
OUTCOME_BEFORE, OUTCOME_BEHIND = 48, 320
"""The number of characters before and after a version that are searched for whether it works."""
NAME_BEFORE = 16
"""The number of characters before a version that are searched for torch's name."""
MAX_RELEASES = 40
"""The most versions of a text that are compared. A longer list is not a comparison."""


Outcome = Literal["works", "fails"]


class Outcomes(NamedTuple):
    """The releases that work and those that fail, according to one kind of source."""

    working: set[str]
    failing: set[str]

    def add(self, outcome: Outcome, release: str) -> None:
        """Record whether a release works or fails."""
        if outcome == "works":
            self.working.add(release)
        else:
            self.failing.add(release)


def outcomes(text: Text) -> Iterator[Event | Claim]:
    """The release that works and the one that fails, if the text shows exactly one of each.

    >>> from gpusetup.report.cleaning import text_of
    >>> report = "Works with torch 2.6.0+xpu, fails with torch 2.7.0+xpu on the same laptop"
    >>> next(iter(outcomes(text_of(report)))).values
    {'good': '2.6.0+xpu', 'bad': '2.7.0+xpu'}
    """
    if "torch" not in text.low:
        return
    all_lines = "\n".join(text.lines)
    # A printed label such as `CUDA available: False` says nothing about a particular release.
    flat = PRINTED_LABELS.sub(" ", all_lines[:CHARACTERS_READ])
    by_torch, by_person = _outcomes_in(flat)
    # torch's own output counts more than what people say about the releases.
    has_printed_both = by_torch.working and by_torch.failing
    working, failing = by_torch if has_printed_both else by_person
    # A release that both works and fails is left out.
    only_working = working - failing
    only_failing = failing - working
    if len(only_working) == 1 and len(only_failing) == 1:
        working_release = only_working.pop()
        failing_release = only_failing.pop()
        yield Event(
            kind="release-regressed",
            values={"good": working_release, "bad": failing_release},
            source="report",
            text=f"torch {working_release} works here, torch {failing_release} does not",
        )
        yield Claim(fields.TORCH_VERSION, failing_release, "report", SURE)


def _outcomes_in(flat: str) -> tuple[Outcomes, Outcomes]:
    """The releases that work or fail: first according to torch's output, then according to the
    person."""
    by_torch = Outcomes(set(), set())
    by_person = Outcomes(set(), set())
    matches = _versions_of_torch(flat)
    next_starts = [match.start() for match in matches[1:]]
    next_starts.append(len(flat))
    for match, next_start in zip(matches, next_starts, strict=False):
        release = match["version"]
        start, end = match.span()
        words_before = flat[max(start - OUTCOME_BEFORE, 0) : start]
        words_behind = flat[end : min(next_start, end + OUTCOME_BEHIND)]
        # Such words belong to the next version.
        words_behind = LAST_GOOD.sub("", words_behind)
        answer = ANSWERS.search(words_behind)
        if answer:
            by_torch.add("works" if answer[1] == "True" else "fails", release)
        outcome = _outcome(words_before, words_behind)
        if outcome:
            by_person.add(outcome, release)
    return by_torch, by_person


def _versions_of_torch(flat: str) -> list[re.Match[str]]:
    """The version numbers that belong to torch, judging by the version itself and the words before
    it."""
    versions_of_torch = []
    for match in list(RELEASES.finditer(flat))[:MAX_RELEASES]:
        first = max(match.start() - NAME_BEFORE, 0)
        if TORCH_NEAR.search(flat, first, match.end()):
            versions_of_torch.append(match)
    return versions_of_torch


def _outcome(words_before: str, words_behind: str) -> Outcome | None:
    """Whether the words around a release say that the release works or fails; None if they say
    neither."""
    if WORKS_BEFORE.search(words_before) or LAST_GOOD.search(words_before):
        return "works"
    if FAILS_BEFORE.search(words_before):
        return "fails"
    works = WORKS_BEHIND.search(words_behind)
    fails = FAILS_BEHIND.search(words_behind)
    if works and fails:
        # The words nearer to the release are about it.
        return "works" if works.start() < fails.start() else "fails"
    if works:
        return "works"
    return "fails" if fails else None
