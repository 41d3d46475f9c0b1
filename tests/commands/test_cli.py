"""The frame of every command: mistyped words, and how a run is ended from outside."""

from __future__ import annotations

import errno
import io
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from each_row import each

from gpusetup.cli import main

ROOT = Path(__file__).resolve().parents[2]


def test_a_mistyped_command_is_answered_with_ours(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["docter"], ["help", "docter"], ["docter", "--json"]):
        assert main(words) == 2
        said = capsys.readouterr()
        assert "did you mean `doctor`?" in said.err + said.out


@pytest.mark.parametrize("words", [["resolve"], ["plan", "--params", "1B"], ["snapshot"]])
def test_an_activated_environment_that_is_gone_is_said_in_a_line(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for folder, count in ((tmp_path / "gone", 1), (Path(sys.prefix), 0)):
        monkeypatch.setenv("VIRTUAL_ENV", str(folder))
        main(words)
        said = capsys.readouterr().err
        assert said.count(f"VIRTUAL_ENV is set to {folder}, which is not an environment\n") == count


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["doctor", "--from", ""], "--from"),
        (["resolve", "--backend", ""], "--backend"),
        (["plan", "--model", "gpt2", "--gpu", ""], "--gpu"),
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
        "import sys; from gpusetup import cli; from gpusetup.system import processes\n"
        f"run_it = lambda *_: processes.run([sys.executable, {str(slow)!r}], timeout=60)\n"
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


@each(
    "words, told",
    [
        (["resolve", "--trch", "2.5.1"], "did you mean `--torch`?"),
        (["--strict", "doctor"], "options come after the command"),
        (["resolve", "--index", "https://m.example/whl/cu124"], "--backend cu124`"),
        (["resolve", "rtx4090"], 'did you mean `--gpu "rtx4090"`?'),
        (["monitor", "--interval", "soon"], "from 0.02 to 86,400 seconds"),
    ],
)
def test_what_is_foreign_is_answered_with_what_to_do(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["-v"]):
        assert main([*words, *more] if words != ["-v"] else words) == 2
        said = capsys.readouterr().err
        assert told in said
        assert "Traceback" not in said
        assert said.count("\n  --") <= 3, "a few options, never all of them"


# --- streams that are closed or full ------------------------------------------------------------

ENDS = [
    "doctor --from rtx3050-laptop --json",
    "doctor --explain ok",
    "--help",
    "verify --help",
    "no-such-command --json",
]


class Full(io.StringIO):
    """A stream on a full disk."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("words", ENDS)
def test_an_answer_that_stdout_does_not_take_is_one_sentence_and_exit_3(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    assert main(words.split()) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error: Cannot write the answer to stdout: No space left on device"
    assert len(said) == 3 and said[2].startswith("hint: make room there")
    monkeypatch.setattr(sys, "stdout", None)
    assert main(words.split()) == 3
    assert "Cannot write the answer to stdout: it is closed" in capsys.readouterr().err
