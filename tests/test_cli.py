"""The frame of every command: mistyped words, and how a run is ended from outside."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusetup.cli import main

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["docter"], "did you mean `doctor`? `gpusetup --help` shows all"),
        (["doctor", "--frm", "list"], "did you mean `--from`? `gpusetup doctor --help` shows all"),
        (["verify", "--level", "quik"], "did you mean `quick`?"),
        (["resolve", "--nothing-like-it"], "hint: `gpusetup resolve --help` shows all"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["doctor", "--from", ""], "--from"),
        (["doctor", "--python="], "--python"),
        (["doctor", "--only", "no-driver", "--only", ""], "--only"),
        (["install", "--wheelhouse", "", "--dry-run"], "--wheelhouse"),
        (["install", "--torch", "", "--dry-run"], "--torch"),
        (["resolve", "--backend", ""], "--backend"),
        (["plan", "--model", "gpt2", "--gpu", ""], "--gpu"),
        (["tune", "train.yaml", "-o", ""], "-o"),
        (["monitor", "--replay", ""], "--replay"),
        (["snapshot", "--output", ""], "--output"),
    ],
)
def test_an_empty_value_is_never_taken_for_the_default(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert not said.out
    assert f"argument {option}: the value is empty; is a variable unset?" in said.err


def test_a_sigterm_ends_the_children_too(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    mark = tmp_path / "pid"
    slow.write_text(
        f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n",
        encoding="utf-8",
    )
    program = (
        "import sys; from gpusetup import cli, run\n"
        f"run_it = lambda *_: run.run([sys.executable, {str(slow)!r}], timeout=60)\n"
        "cli._run = run_it\nsys.exit(cli.main(['doctor']))\n"
    )
    ours = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not (mark.exists() and mark.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    child = int(mark.read_text())
    ours.send_signal(signal.SIGTERM)
    assert ours.wait(timeout=30) == 130
    while Path(f"/proc/{child}/status").exists() and time.monotonic() < until:
        status = Path(f"/proc/{child}/status").read_text()
        if "State:\tZ" in status:
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}").exists()


def test_schema_without_a_name_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert "doctor\n" in capsys.readouterr().out
