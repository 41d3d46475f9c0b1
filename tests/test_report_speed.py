"""What makes reading quick changes nothing that is read: letters, decisions that are kept."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache

import pytest
import writers
from message_samples import samples
from report_messages import MESSAGES

from gpusetup.catalog.builds import with_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.decided import decided
from gpusetup.diagnosis.request import chosen_request
from gpusetup.messages.letters import LONG, Letters
from gpusetup.messages.table import ROWS
from gpusetup.model.needed import needs_of
from gpusetup.model.sought import Sought, in_any_case
from gpusetup.report.formats import machine_tools, programs, prose, tables
from gpusetup.report.read import TABLE, read_report
from gpusetup.report.text import Text, text_of
from gpusetup.resolver import to_answer
from gpusetup.resolver.companions import moved_with

SAYINGS = (*machine_tools.ROWS, *programs.ROWS, *prose.ROWS, *tables.ROWS)
TOLD = tuple(text for _, text in MESSAGES)
LOOKED_FOR = (
    *((one.pattern, one.needle) for one in ROWS if one.pattern),
    *((one.pattern, one.needle) for one in SAYINGS),
)
PATTERNS = {pattern for pattern, _ in LOOKED_FOR}
"""The patterns of the tables."""


@cache
def texts() -> tuple[Text, ...]:
    mixtures = (writers.mixture(seed, TOLD) for seed in range(40))
    return tuple(map(text_of, (*(sample.text for sample in samples()), *mixtures)))


def test_a_pattern_finds_what_re_finds() -> None:
    found, patterns = 0, defaultdict[str, list[str]](list)
    for pattern, needle in LOOKED_FOR:
        patterns[needle].append(pattern)
    letters = Letters.of(patterns)
    for text in texts():
        flat, low = text.flat, text.low
        for pattern in {one for needle in letters.found_in(low) for one in patterns[needle]}:
            here = _spans(in_any_case(pattern).finditer(flat, low))
            assert here == _spans(re.finditer(pattern, flat, re.IGNORECASE)), (pattern, flat)
            found += len(here)
    assert found > 1000


def _spans(found: Iterable[re.Match[str]]) -> list[object]:
    return [(one.span(), one.groups()) for one in found]


HARD = (
    "sis|kil{1,2}",
    "(?:kis){2}",
    "(?:a|ba?)kis(?=s|k)",
    "is[^k]{0,3}?sk",
    "(?i)KIS+",
    r"k(?:i|\bs)*s{2,}",
    "(?:is)?kis",
    "si(?P<it>k)?",
    r"[]k]is|\x6bis",
    "(?x) k i  s k",
    "k{1,}is|ss(?!k)",
    "(?si)ki.?s",
    "ki{,}s",
    r"ki\163",
)
"""Every form of a pattern, over letters of which some have a second small form."""


@pytest.mark.parametrize("pattern", HARD)
@pytest.mark.parametrize("flags", [0, re.IGNORECASE])
def test_any_pattern_finds_what_re_finds(pattern: str, flags: int) -> None:
    draw = random.Random(7)
    sought = Sought(pattern, flags)
    for letters in ("kis", "kisKIS ]l", "kis\u017f\u0131\u0130\u212aKIS"):
        for _ in range(40):
            text = "".join(draw.choices(letters, k=draw.choice((12, 400))))
            assert _spans(sought.finditer(text)) == _spans(re.finditer(pattern, text, flags))
            first, plain = sought.search(text), re.search(pattern, text, flags)
            assert (first and first.span()) == (plain and plain.span())
            assert sought.findall(text) == re.findall(pattern, text, flags)
            fresh = Sought(pattern, flags)
            here = (fresh.match(text), fresh.fullmatch(text))
            there = (re.match(pattern, text, flags), re.fullmatch(pattern, text, flags))
            assert [bool(one) for one in here] == [bool(one) for one in there]


def test_what_every_match_has_is_read_from_most_patterns() -> None:
    silent = [one for one in PATTERNS if not needs_of(one, ignore_case=True)]
    assert len(silent) <= len(PATTERNS) // 100, silent


def test_what_healthy_programs_print_is_not_gone_through_character_by_character() -> None:
    """Such a pattern costs more than all others: its row looks for rarer letters."""
    plans = {pattern: in_any_case(pattern).plan for pattern, _ in LOOKED_FOR}
    blocks = (write(machine) for machine in writers.machines() for write in writers.BLOCKS)
    lows = {text_of(block).low for block in blocks}
    found = {
        (needle, pattern)
        for pattern, needle in LOOKED_FOR
        if not plans[pattern].near
        for low in lows
        if all(letters in low for letters in (needle, *plans[pattern].every))
        and all(any(letters in low for letters in some) for some in plans[pattern].some)
    }
    assert found == set()


def test_the_needles_of_a_text_are_those_that_are_in_it() -> None:
    letters = TABLE.letters
    lows = [text.low for text in texts()]
    for low in (
        *lows,
        "",
        "xi",
        "xid",
        "\udcff xid \u0130 gpu",
        lows[0] + " " * LONG + "nvrm: xid",
    ):
        assert letters.found_in(low) == {needle for needle in letters.every if needle in low}
    assert Letters.of(()).found_in("x") == frozenset()


def test_a_decision_that_is_kept_is_the_one_of_the_whole_text() -> None:
    catalog = load_catalog()
    for seed in range(60):
        machine = with_catalog(read_report(writers.mixture(seed, TOLD)), catalog)
        request, decision = chosen_request(machine, catalog)
        moved = moved_with(machine, decision.resolution.build)
        answer = to_answer(decision.resolution, machine, moved)
        assert decided(machine, catalog, None) == (request, decision, answer)
