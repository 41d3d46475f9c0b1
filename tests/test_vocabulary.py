"""One vocabulary: an event has the name of its finding, unless it may show several."""

from __future__ import annotations

import re
from pathlib import Path

from event_kinds import OWN_NAME, event_kinds

import gpusetup
from gpusetup.diagnosis.knowledge import records

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
