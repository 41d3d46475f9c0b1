"""How a report was read, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusetup.cli import main as gpusetup
from gpusetup.report.reading import reading_of

TEXT = (
    "my laptop\n"
    "RuntimeError: Found no NVIDIA driver on your system. Please check\n"
    "frobnicate-cli: error: the nvidia-container hook is of another kind\n"
)


def test_each_line_says_what_it_became() -> None:
    reading = reading_of("PyTorch version: 2.5.1+cu124\nnothing here")
    assert any("torch.version = 2.5.1+cu124" in became for became in reading.of_line(1))
    assert reading.unread == (2,)
    asked = reading_of("$ python -c 'print(torch.__version__)'\n2.5.1+cu124")
    assert not any("2.5.1" in became for became in asked.of_line(1))
    assert any("torch.version = 2.5.1+cu124" in became for became in asked.of_line(2))


def test_the_screen_shows_lines_and_readings_and_then_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "thread.txt"
    report.write_text(TEXT, encoding="utf-8")
    code = gpusetup(["doctor", "--report", str(report), "--explain-reading"])
    shown = capsys.readouterr().out
    assert code == 1
    assert "> RuntimeError: Found no NVIDIA driver" in shown
    assert "    = event no-nvidia-driver" in shown
    assert "driver-missing" in shown


def test_control_codes_of_a_report_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "thread.txt"
    report.write_bytes(b"a\x1b]0;owned\x07b\x1b[2J\n::error::x\nXid \xe2\x80\xae79\n")
    gpusetup(["doctor", "--report", str(report), "--explain-reading"])
    shown = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "\n::" not in shown


@pytest.mark.parametrize(
    "more", [["--json"], ["--format", "markdown"], []], ids=["json", "markdown", "no file"]
)
def test_what_is_for_a_person_is_refused_elsewhere(tmp_path: Path, more: list[str]) -> None:
    report = tmp_path / "thread.txt"
    report.write_text(TEXT, encoding="utf-8")
    named = ["--report", str(report)] if more else []
    assert gpusetup(["doctor", *named, "--explain-reading", *more]) == 2
