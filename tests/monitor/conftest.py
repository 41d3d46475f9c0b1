"""What the tests of the monitor share."""

from __future__ import annotations

from pathlib import Path

import pytest
from replayed import Judge, judge_in


@pytest.fixture
def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    """The summary of a text that is replayed; under `text` is what a person reads."""
    return judge_in(tmp_path, capsys)
