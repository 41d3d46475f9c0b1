"""What other commands find is pointed to by `doctor --explain`."""

from __future__ import annotations

import pytest

from gpusetup.cli import main


@pytest.mark.parametrize(
    ("name", "command"), [("slow-link", "fleet sweep"), ("input-starved", "monitor")]
)
def test_a_finding_of_another_command_is_pointed_to(
    name: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--explain", name]) == 2
    assert f"`gpusetup {command}`" in capsys.readouterr().err
