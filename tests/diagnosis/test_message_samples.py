"""Every row of a message has a text that it reads; a text shows its kinds and no other."""

from __future__ import annotations

from each_row import each
from message_samples import Sample, samples

from gpusetup.report.read import read_report
from gpusetup.report.statements import STATEMENTS

SAID_BY_PEOPLE = {row.kind for row in STATEMENTS} - {"foreign-gpu"}
FILES_AND_RUNS = {"failing-file", "file-listed", "loaded-first", "run-finished"}
PRINTED = {"output-shown", "program-crashed", "wrong-numbers", "copied-runtime"}
BESIDE_IT = {
    *("program-failed", "ran-first"),
    *SAID_BY_PEOPLE,
    *FILES_AND_RUNS,
    *PRINTED,
    *("environment-owner", "torch-folder", "compiled-for-torch"),
}
"""What a text may show next to its message: how it ended, that it computes, what a
person says of it, which file failed, and whose environment it is."""


@each("sample", samples)
def test_a_text_shows_these_kinds_of_events_and_no_other(sample: Sample) -> None:
    kinds = {event.kind for event in read_report(sample.text).events}
    assert kinds - BESIDE_IT == sample.kinds - BESIDE_IT
