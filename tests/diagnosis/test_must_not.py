"""No step that would cost a person something, in texts of threads whose outcome is known.

`tests/data/must_not.json`: patterns of steps, and for each text the steps that no command and no
title of its answer may be. The texts lie beside the project and are not part of it. Whoever wrote
the file knew how each thread ended and had not seen the answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusetup.api import Finding, read_report

HERE = Path(__file__).resolve().parents[1]
FOLDERS = [HERE.parent.parent / "shared" / name for name in ("reports", "reports2")]
MUST_NOT: dict[str, Any] = json.loads((HERE / "data" / "must_not.json").read_text("utf-8"))


def said(finding: Finding) -> Iterator[str]:
    yield finding.title
    if finding.fix:
        yield from finding.fix.commands
        for other in finding.fix.alternatives:
            yield from other.commands


@pytest.mark.skipif(not FOLDERS[0].exists(), reason="the texts are not beside this checkout")
def test_no_command_and_no_title_is_a_step_that_would_cost_something() -> None:
    wrong = {}
    for path in (path for folder in FOLDERS for path in sorted(folder.glob("*.json"))):
        steps = MUST_NOT["texts"].get(path.stem, ())
        answer = read_report(json.loads(path.read_text("utf-8"))["report"])
        words = [line for finding in answer.findings for line in said(finding)]
        found = [
            (step, line)
            for step in steps
            for line in words
            if re.search(MUST_NOT["steps"][step], line, re.IGNORECASE)
        ]
        if found:
            wrong[path.stem] = found
    assert wrong == {}
