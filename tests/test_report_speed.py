"""What makes reading quick changes nothing that is read: gates, letters, decisions that are kept."""

from __future__ import annotations

from collections.abc import Iterator

import writers
from message_samples import samples
from report_messages import MESSAGES

from gpusetup.catalog.builds import with_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.decided import decided
from gpusetup.diagnosis.request import chosen_request
from gpusetup.messages.letters import LONG, Letters
from gpusetup.messages.row import Row
from gpusetup.messages.search import matches
from gpusetup.messages.table import ROWS
from gpusetup.model.frozen import replace
from gpusetup.report.facts import Saying, claims
from gpusetup.report.formats import machine_tools, programs, prose, tables
from gpusetup.report.read import TABLE, read_report
from gpusetup.report.text import Text, text_of
from gpusetup.resolver import to_answer
from gpusetup.resolver.companions import moved_with

SAYINGS = (*machine_tools.ROWS, *programs.ROWS, *prose.ROWS, *tables.ROWS)
TOLD = tuple(text for _, text in MESSAGES)


def texts() -> Iterator[Text]:
    yield from (text_of(sample.text) for sample in samples())
    yield from (text_of(writers.mixture(seed, TOLD)) for seed in range(40))


def test_what_a_gate_leaves_out_no_pattern_finds() -> None:
    rows = [(row, replace(row, gate="")) for row in ROWS if row.gate]
    sayings = [(one, replace(one, gate="")) for one in SAYINGS if one.gate]
    assert len(rows) > 5 and len(sayings) > 20
    for text in texts():
        low = text.low
        for row, bare in rows:
            if row.needle in low:
                assert _found(text, row) == _found(text, bare), (row, text.flat)
        for one, plain in sayings:
            if one.needle in low:
                assert _told(text, one) == _told(text, plain), (one, text.flat)


def _found(text: Text, row: Row) -> list[object]:
    return [(found.first, found.last, found.values) for found in matches(text, row)]


def _told(text: Text, row: Saying) -> list[object]:
    return list(claims(text, (row,)))


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
