"""The live screen at any size, on a real terminal, and what it costs to judge."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
import standin
from standin import A100

HERE = Path(__file__).resolve().parents[1]


# --- a real terminal ------------------------------------------------------------------------------

BUSY = {**A100, "utilization": 97, "memory_used": 30 << 30, "throttle": 0, "power_mw": 320000,
        "clock_sm": 1400, "clock_sm_max": 1410, "processes": "4711:32212254720"}  # fmt: skip


@pytest.mark.parametrize(
    ("term", "environment"), [("xterm-256color", {"NO_COLOR": "1"}), ("xterm", {}), ("dumb", {})]
)
def test_a_terminal_gets_what_it_can_show_and_is_as_it_was(
    term: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE.parent))
    standin.install(monkeypatch, tmp_path, standin.state((BUSY, BUSY)))
    file, theirs = pty.openpty()
    told = {**os.environ, "TERM": term, "COLUMNS": "100", "LINES": "30", **environment}
    argv = (sys.executable, "-m", "gpusetup", "monitor", "1", "--interval", "0.2")
    child = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=told)
    said, end = "", time.monotonic() + 120
    while child.poll() is None or select.select([file], [], [], 0.2)[0]:
        assert time.monotonic() < end, said[-2000:]
        if select.select([file], [], [], 0.2)[0]:
            said += os.read(file, 65536).decode("utf-8", "replace")
    os.close(file)
    os.close(theirs)
    live, _, verdict = said.partition("Watched")
    assert child.returncode == 0 and "Verdict" in verdict
    if term == "dumb":
        assert not live.strip()
    else:
        assert "\x1b[?1049h" in live and "\x1b[?1049l" in live and "\x1b[?25h" in live
        assert bool(re.search(r"\x1b\[[0-9;]*[12]m", live)) != ("NO_COLOR" in environment)
