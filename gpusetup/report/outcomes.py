"""Two releases of torch on one machine, of which one works: the newer build is at fault."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.accelerators.makers import LABEL
from gpusetup.messages.fragments import RELEASE
from gpusetup.messages.search import Text
from gpusetup.messages.working import PRINTED_LABELS
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import SURE, Claim

CHARACTERS_READ = 20_000
VERSION = rf"(?<![\w.])(?<!Python )(?<!python )(?<!\) )(?P<version>{RELEASE}(?:\.?(?:dev|rc|a|b)\d*)?(?:\+(?:{LABEL}))?)(?![\w+]|\.\d)"
BEHIND = 320
RELEASES = lazy(VERSION)
TORCH_NEAR = lazy(r"(?i)torch|nightly|\+(?:cpu|cu\d|rocm|xpu)|build|wheel")
"""What must stand around such a version, so that it is torch's."""
WORKS_BEFORE = lazy(
    r"(?i)\b(?:works?|worked|fine|ok|True|runs) (?:fine |well )?(?:with|on|in|under|using) (?:py)?(?:torch )?(?:nightly )?$"
)
FAILS_BEFORE = lazy(
    r"(?i)\b(?:fails?|failed|broken?|breaks?|crash\w*|False|does(?: not|n't) work|stopped working) (?:with|on|in|under|since|from) (?:py)?(?:torch )?(?:nightly )?$"
)
WORKS_BEHIND = lazy(
    r"(?i)\bTrue\b|\b(?:works?|worked) (?:fine|well|again|as expected)?|\bis fine\b|正常|работает(?! не)"
)
FAILS_BEHIND = lazy(
    r"(?i)\bFalse\b|\b(?:fails?|crash\w*|broken?|breaks)\b|(?:not|n't) work|报错|не работает"
)
ANSWERS = lazy(r"(?m)^\s*(True|False)\s*$")
"""What torch printed to the question whether it sees a GPU."""
AROUND, BESIDE = 48, 16
"""Characters in front of a version: for what happened with it, and for torch's name."""


def outcomes(text: Text) -> Iterator[Event | Claim]:
    """The release that works and the one that fails, where a text shows both.

    >>> from gpusetup.report.cleaning import text_of
    >>> said = "Works with torch 2.6.0+xpu, fails with torch 2.7.0+xpu on the same laptop"
    >>> next(iter(outcomes(text_of(said)))).values
    {'good': '2.6.0+xpu', 'bad': '2.7.0+xpu'}
    """
    flat = PRINTED_LABELS.sub(" ", "\n".join(text.lines)[:CHARACTERS_READ])
    printed: dict[str, set[str]] = {"good": set(), "bad": set()}
    told: dict[str, set[str]] = {"good": set(), "bad": set()}
    matches = _torches(flat) if "torch" in text.low else []
    for number, match in enumerate(matches):
        before = flat[max(match.start() - AROUND, 0) : match.start()]
        following = matches[number + 1].start() if number + 1 < len(matches) else len(flat)
        behind = flat[match.end() : min(following, match.end() + BEHIND)]
        if answer := ANSWERS.search(behind):
            printed["good" if answer[1] == "True" else "bad"].add(match["version"])
        if outcome := _outcome(before, behind):
            told[outcome].add(match["version"])
    # What torch printed goes before what is said of the releases afterwards.
    shown = printed if printed["good"] and printed["bad"] else told
    good, bad = shown["good"] - shown["bad"], shown["bad"] - shown["good"]
    if len(good) == 1 and len(bad) == 1:
        works, fails = good.pop(), bad.pop()
        yield Event(
            kind="release-regressed",
            values={"good": works, "bad": fails},
            source="report",
            text=f"torch {works} works here, torch {fails} does not",
        )
        yield Claim("torch.version", fails, "report", SURE)


MAX_RELEASES = 40


def _torches(flat: str) -> list[re.Match[str]]:
    """The versions that are torch's, by the words in front of them."""
    matches = list(RELEASES.finditer(flat))[:MAX_RELEASES]
    return [
        match
        for match in matches
        if TORCH_NEAR.search(flat, max(match.start() - BESIDE, 0), match.end())
    ]


def _outcome(before: str, behind: str) -> str:
    """Whether the words around a release say that it works, or that it fails."""
    if WORKS_BEFORE.search(before):
        return "good"
    if FAILS_BEFORE.search(before):
        return "bad"
    works, fails = WORKS_BEHIND.search(behind), FAILS_BEHIND.search(behind)
    if works is None or fails is None:
        shown = {"good": works, "bad": fails}
        return next((outcome for outcome, words in shown.items() if words), "")
    # What stands nearer is said of this release.
    return "good" if works.start() < fails.start() else "bad"
