"""How a report was read, line by line; a pasted text as a labelled case."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpusetup.cli import main as gpusetup
from gpusetup.report.reading import reading_of

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

import new_report

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


# --- scripts/new_report.py -----------------------------------------------------------------------


def test_a_pasted_text_becomes_a_labelled_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "thread 7.txt"
    report.write_text(TEXT + "home: /home/somebody/x\n", encoding="utf-8")
    out = tmp_path / "cases"
    arguments = [str(report), "--cause", "driver-missing", "--source", "a/b#7", "--out", str(out)]
    assert new_report.main(arguments) == 0
    case = json.loads((out / "thread-7" / "case.json").read_text(encoding="utf-8"))
    assert case["expected"] == {"cause": "driver-missing", "also_acceptable": []}
    assert case["answered"]["cause"] == "driver-missing"
    assert "somebody" not in (out / "thread-7" / "text.txt").read_text(encoding="utf-8")
    shown = capsys.readouterr().out
    assert "answered driver-missing: right" in shown
    assert "gpusetup/messages/container.py" in shown
    assert new_report.main(arguments) == 2  # nothing is overwritten


def test_a_label_that_is_no_cause_is_refused(tmp_path: Path) -> None:
    report = tmp_path / "a.txt"
    report.write_text(TEXT, encoding="utf-8")
    arguments = [str(report), "--cause", "bad-luck", "--out", str(tmp_path / "cases")]
    assert new_report.main(arguments) == 2
    assert not (tmp_path / "cases").exists()


def test_a_wrong_answer_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "a.txt"
    report.write_text(TEXT, encoding="utf-8")
    new_report.main([str(report), "--cause", "ecc-error", "--out", str(tmp_path / "cases")])
    assert "answered driver-missing: WRONG" in capsys.readouterr().out


def test_a_complaint_of_which_nothing_more_was_read_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "a.txt"
    line = 'level=WARN msg="model runner crashed: wgpu adapter refused the model"'
    report.write_text(f"my ollama does not work\n{line}\n", encoding="utf-8")
    new_report.main([str(report), "--cause", "ecc-error", "--out", str(tmp_path / "cases")])
    shown = capsys.readouterr().out
    assert "line 2 complains and was not read" in shown
    assert "ecc-error is found by gpusetup/findings/device/ecc.py" in shown


def test_a_line_belongs_where_the_line_that_is_most_like_it_stands() -> None:
    of = {
        "ncclInternalError: Internal check failed in the new transport": "parallel.py",
        "NVRM: Xid (PCI:0000:01:00): 999, a new kind of fault": "kernel.py",
        "hipErrorNew: a new HIP error on gfx1200": "makers.py",
        "ImportError: cannot import name 'x' from 'torch.y'": "imports.py",
    }
    assert {line: new_report.where_a_row_belongs(line) for line in of} == of
    assert new_report.where_a_row_belongs("zzz") == new_report.BESIDE
    assert "own sentence" in new_report.asked_for(1, "my new card is not used by anything")[0]


def test_a_text_that_is_read_whole_and_answered_wrongly_leads_to_its_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "a.txt"
    report.write_text("RuntimeError: Found no NVIDIA driver on your system.\n", encoding="utf-8")
    new_report.main([str(report), "--cause", "ecc-error", "--out", str(tmp_path / "cases")])
    shown = capsys.readouterr().out
    assert "a rule decides otherwise" in shown
    assert "driver-missing is found by gpusetup/findings/driver/presence.py" in shown
