"""`doctor --explain` knows every id that was ever printed."""

from __future__ import annotations

from pathlib import Path

from gpusetup.diagnosis.explanations import record


def test_every_id_that_was_ever_printed_is_explained() -> None:
    """The list is frozen: an id that goes needs another name for it."""
    ids = Path(__file__).parents[1] / "data" / "finding_ids.txt"
    for id in ids.read_text(encoding="utf-8").split():
        assert record(id).id
