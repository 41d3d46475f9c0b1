"""The one way to start a child: what it said, or why it has no answer."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from gpusetup.system.processes import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs sh and setsid")


def test_a_child_that_ends_gives_exit_and_both_streams() -> None:
    said = run(("sh", "-c", "echo out; echo err >&2; exit 3"), timeout=20)
    assert (said.exit, said.stdout, said.stderr, said.problem) == (3, "out\n", "err\n", None)


def test_a_missing_program_is_no_exception() -> None:
    said = run(("/nowhere/nvidia-smi",), timeout=20)
    assert (said.exit, said.problem) == (None, "not found")


def test_the_children_of_a_child_end_with_it(tmp_path: Path) -> None:
    late = tmp_path / "late"
    said = run(("sh", "-c", f"(sleep 0.8; echo > {late}) & sleep 60"), timeout=0.2)
    time.sleep(1.0)
    assert (said.exit, said.problem, late.exists()) == (None, "no answer in 0.2 s", False)


def test_what_cannot_be_killed_is_given_up_and_not_waited_for() -> None:
    """A grandchild in a session of its own holds the pipe, as one in a driver call would."""
    said = run(("sh", "-c", "setsid sleep 5 & sleep 60"), timeout=0.3)
    assert said.problem == "no answer in 0.3 s"
    assert said.seconds < 5
