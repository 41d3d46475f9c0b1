"""monitor on workloads of known kind: its verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acceptance.conftest import Work

LOADS = str(Path(__file__).with_name("loads.py"))
KINDS = ("input-starved", "launch-bound", "memory-bound", "memory-tight", "good", "idle")


@pytest.mark.card
@pytest.mark.parametrize("name", KINDS)
def test_the_verdict_is_the_kind_of_the_workload(work: Work, name: str) -> None:
    command = (sys.executable, LOADS, name, "6")
    said = work.gpusetup("monitor", "--json", "--interval", "0.5", "--", *command)
    verdict = said.document.get("verdict")
    if verdict is None:
        pytest.skip(said.problem)
    work.found(f"{name}: {verdict}")
    assert verdict == name
