"""What the README shows is true: each command is run, and the shown lines are looked for."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gpusetup.cli import main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LEFT_OUT = "…"
"""A line of a shown answer that stands for several."""


def shown_answers() -> dict[str, list[str]]:
    """Command -> the lines of its answer that the README shows."""
    answers = {}
    for block in re.findall(r"(?ms)^```text\n\$ (gpusetup .*?)^```$", README):
        command, *lines = block.splitlines()
        answers[command] = [line for line in lines if line != LEFT_OUT]
    return answers


@pytest.mark.parametrize("command", shown_answers())
def test_an_answer_in_the_readme_is_what_the_command_prints(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    main(shlex.split(command)[1:])
    printed = capfd.readouterr().out.splitlines()
    place = 0
    for line in shown_answers()[command]:
        assert line in printed[place:], line
        place += printed[place:].index(line) + 1
