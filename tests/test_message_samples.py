"""Every row of a message has two texts that it reads and a neighbour that it does not."""

from __future__ import annotations

from itertools import islice

from each_row import each
from message_samples import Sample, matching, neighbours, samples

from gpusetup.messages.row import Row
from gpusetup.messages.table import ROWS
from gpusetup.report.read import read_report

SAMPLES_A_ROW = 2


@each("sample", samples)
def test_a_text_shows_these_kinds_of_events_and_no_other(sample: Sample) -> None:
    assert {event.kind for event in read_report(sample.text).events} == sample.kinds


@each("row", ROWS)
def test_a_row_has_samples_and_a_neighbour(row: Row) -> None:
    assert len([*islice(matching(row), SAMPLES_A_ROW)]) == SAMPLES_A_ROW, (
        "two texts that match, in tests/messages"
    )
    assert any(True for _ in neighbours(row)), (
        f"a text near `{row.needle}` that is no {row.kind}, in tests/messages: it has two thirds of"
        " these letters from the start, or half of their words. Where the real neighbour has fewer,"
        " shorten the letters: the pattern decides"
    )
