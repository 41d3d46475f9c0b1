"""The frame of every command: mistyped words, and how a run is ended from outside."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusetup import __version__
from gpusetup.cli import COMMANDS, build_parser, child_of, main
from gpusetup.commands.meant import COMMANDS as COMMAND_WORDS
from gpusetup.commands.meant import OPTIONS, option_line, options_meant

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["docter"], "did you mean `gpusetup doctor`? `gpusetup --help` shows all"),
        (["doctor", "--frm", "x"], "did you mean `--from MACHINE`? `gpusetup doctor --help` shows"),
        (["verify", "--level", "quik"], "did you mean `quick`?"),
        (["resolve", "--zzyzx"], "hint: it takes --help, --from, "),
        (["resolve", "zzyzx"], "hint: `gpusetup resolve --help` shows all"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def offered(said: str) -> list[str]:
    """The options that an answer offers, in order."""
    return re.findall(r"(?:did you mean `|^  )(--[a-z-]+)", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("resolve --version 2.5.1", "--torch"),
        ("resolve --pytorch-version 2.5.1", "--torch"),
        ("resolve --torch-release 2.5.1", "--torch"),
        ("resolve --device sm_86", "--gpu"),
        ("resolve --arch sm_86", "--gpu"),
        ("resolve --platform linux", "--os"),
        ("resolve --cuda-version 12.4", "--cuda"),
        ("resolve --why", "--explain"),
        ("resolve torch==2.5.1", "--torch"),
        ("resolve 2.5.1", "--torch"),
        ("resolve rtx4090", "--gpu"),
        ("install --device cpu", "--backend"),
        ("install --env .venv", "--venv"),
        ("install --env .venv", "--python"),
        ("install --prefix /x", "--venv"),
        ("install --target /x", "--venv"),
        ("install -t /x", "--venv"),
        ("install -n base", "--python"),
        ("install --force", "--yes"),
        ("install --extra-index-url x", "--index-root"),
        ("install --find-links x", "--wheelhouse"),
        ("install --rollback", "--undo"),
        ("install --simulate", "--dry-run"),
        ("doctor --gpu T4", "--for-gpu"),
        ("doctor --log x.txt", "--report"),
        ("doctor report.txt", "--report"),
        ("doctor --debug", "--verbose"),
        ("doctor --env x", "--python"),
        ("plan --seq-len 4096", "--context"),
        ("plan --vram 8GB", "--gpu-mem"),
        ("plan --world-size 8", "--gpus"),
        ("plan --gradient_checkpointing", "--checkpointing"),
        ("plan --precision bf16", "--amp"),
        ("tune --overwrite c.yaml", "--in-place"),
        ("monitor --delay 2", "--interval"),
        ("monitor -i 0", "--gpu"),
        ("verify --quick", "--level"),
        ("verify --duration 3", "--seconds"),
        ("snapshot --raw", "--keep-private"),
    ],
)
def test_a_foreign_option_is_answered_with_the_commands_own_of_that_meaning(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert meant in offered(said), said
    assert f"`gpusetup {words.split()[0]} --help` shows all" in said


def test_several_meanings_are_listed_with_what_each_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["install", "--env", "x"]) == 2
    said = capsys.readouterr().err
    assert "--venv DIR" in said and "made where it is not there" in said
    assert "--python PATH" in said


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_what_is_offered_is_an_option_of_the_command(name: str) -> None:
    parser = child_of(build_parser(name), name)
    spoken = {
        word for words in (*OPTIONS.values(), *COMMAND_WORDS.values()) for word in words.split()
    }
    for word in sorted(spoken):
        for action in options_meant(f"--{word}", parser._actions):
            assert set(action.option_strings) <= set(parser._option_string_actions)
            assert option_line(action).startswith("-")


@pytest.mark.parametrize(
    ("word", "command"),
    [("test", "verify"), ("check", "doctor"), ("update", "install"), ("watch", "monitor"),
     ("estimate", "plan"), ("optimize", "tune"), ("versions", "resolve"), ("docter", "doctor")],
)  # fmt: skip
def test_a_foreign_command_is_answered_with_ours(
    word: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([word], ["help", word], [word, "--json"]):
        assert main(words) == 2
        said = capsys.readouterr()
        assert f"did you mean `gpusetup {command}`?" in said.err + said.out


def test_help_is_asked_for_in_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["install", "--help"])
    shown = capsys.readouterr().out
    assert main(["help", "install"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["help"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n    {name} " not in listed] == []


def test_the_version_is_told_by_its_short_name(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("-V", "--version"):
        with pytest.raises(SystemExit) as ended:
            main([word])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"gpusetup {__version__}\n"
    assert main(["doctor", "--version"]) == 2
    assert "`gpusetup --version` is about gpusetup itself" in capsys.readouterr().err


def test_an_option_before_its_command_is_told_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--strict", "doctor"]) == 2
    assert "options stand after the command: `gpusetup doctor --strict`" in capsys.readouterr().err


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
