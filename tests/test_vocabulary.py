"""One vocabulary: an event has the name of its finding, unless it may show several."""

from __future__ import annotations

import json
import re
from pathlib import Path

from event_kinds import OWN_NAME, event_kinds

import gpusetup
from gpusetup.diagnosis.knowledge import records
from gpusetup.probe.former_events import FORMER
from gpusetup.probe.saved import load_snapshot

FINDINGS = Path(gpusetup.__file__).parent / "findings"
ASKED = re.compile(r'\bevents\(\s*\w+,\s*((?:"[\w-]+",?\s*)+)\)')


def ids() -> set[str]:
    return {row.id for row in records()}


def test_an_event_has_the_name_of_its_finding_or_says_why_not() -> None:
    assert set(event_kinds()) - ids() == set(OWN_NAME)


def test_what_rules_ask_for_is_read_somewhere() -> None:
    for path in FINDINGS.rglob("*.py"):
        for asked in ASKED.findall(path.read_text(encoding="utf-8")):
            assert set(re.findall(r'"([\w-]+)"', asked)) <= set(event_kinds()), path


def test_former_names_are_gone_and_lead_to_names_of_today() -> None:
    assert not set(FORMER) & set(event_kinds())
    assert set(FORMER.values()) <= set(event_kinds())


def test_a_snapshot_of_the_first_edition_is_read_with_the_names_of_today(tmp_path: Path) -> None:
    events = [{"kind": "module-key-rejected"}, {"kind": "xid", "values": {"number": "79"}}]
    plain = {"schema": "gpusetup.snapshot/1", "events": events}
    answer = {"schema": "gpusetup.doctor/1", "snapshot": plain}
    for number, written in enumerate((plain, answer)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(written), encoding="utf-8")
        read = load_snapshot(path).events
        assert [event.kind for event in read] == ["secure-boot-rejected", "xid"]
