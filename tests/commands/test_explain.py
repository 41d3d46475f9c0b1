"""What other commands find is pointed to by `doctor --explain`."""

from __future__ import annotations

import pytest

from gpusetup.cli import main


def test_a_finding_of_another_command_is_pointed_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--explain", "input-starved"]) == 2
    assert "`gpusetup monitor`" in capsys.readouterr().err
