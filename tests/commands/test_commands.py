"""Every command of every answer: one sequence, quoted for its shell, deaf to what was read."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

import pytest
from closing.hostile import (
    fixes,
    lines_of,
    run_by_bash,
    syntax_errors,
    words_of_powershell,
)
from closing.shells import by_powershell
from hypothesis import given
from hypothesis import strategies as st
from machines_named import snapshots

from gpusetup.cli import main
from gpusetup.model import shell
from gpusetup.model.finding import Fix, command_lines
from gpusetup.render import screen

Fixes = Sequence[tuple[str, str | None, str, Fix]]


@pytest.fixture(scope="module")
def all_fixes() -> Fixes:
    """The fixes of every recorded machine."""
    return [(n, of.os.family, id, fix) for n, of in snapshots().items() for id, fix in fixes(of)]


# --- all machines ---------------------------------------------------------------------------------


def test_the_way_and_every_other_way_is_a_block_that_its_shell_reads(all_fixes: Fixes) -> None:
    for name, family, id, fix in all_fixes:
        for block in (fix.commands, *(other.commands for other in fix.alternatives)):
            for line in block:
                if family == "windows":
                    by_powershell(line)
                else:
                    assert shlex.split(line), (name, id)
    bash = [
        line
        for _, family, _, fix in all_fixes
        if family != "windows"
        for line in command_lines(fix)
    ]
    assert syntax_errors(bash) == ""


PLACEHOLDER = re.compile(r"<[a-z][\w -]*>|\.\.\.|\b(?:IMAGE|SCRIPT|POD|CONTAINER|PATH_TO|WATTS)\b")


def test_no_command_holds_a_placeholder(all_fixes: Fixes) -> None:
    for name, _, id, fix in all_fixes:
        for line in command_lines(fix):
            assert not PLACEHOLDER.search(line), (name, id, line)


ASKS = re.compile(
    r"(?:sudo )?(?:apt|dnf|zypper) (?:install|purge|remove)(?!.* -y)|"
    r"(?:sudo )?pacman -\w+(?!.*--noconfirm)|conda (?:install|remove|create)(?!.* (?:-y|--yes))|"
    r"\S*python\S* -m pip uninstall(?!.* -y)|gpusetup install(?!.*--yes)"
)
"""What asks before it acts: the next line that is pasted would be its answer."""


def test_what_asks_stands_last(all_fixes: Fixes) -> None:
    for name, _, id, fix in all_fixes:
        for block in (fix.commands, *(other.commands for other in fix.alternatives)):
            for line in block[:-1]:
                assert not ASKS.match(line), (name, id, line)


# --- values that want to act ----------------------------------------------------------------------

COUNT = int(os.environ.get("GPUSETUP_HOSTILE", "100"))


@pytest.fixture(scope="module")
def written() -> tuple[set[str], set[str]]:
    return lines_of(COUNT, seed=11)


def test_no_value_acts_in_bash(written: tuple[set[str], set[str]]) -> None:
    bash, _ = written
    assert len(bash) > min(COUNT / 3, 1500)
    assert syntax_errors(sorted(bash)) == ""
    assert run_by_bash(sorted(bash)) == ""


def test_no_value_acts_in_powershell(written: tuple[set[str], set[str]]) -> None:
    _, power = written
    assert len(power) > min(COUNT / 20, 300)
    for line in power:
        for command in words_of_powershell(line):
            assert command[0] not in ("canary", "calc"), line


def test_the_cage_sees_what_acts() -> None:
    caught = run_by_bash(["echo $(canary)", "echo 'x'; canary", "echo '$(canary)'", "/bin/true"])
    assert caught.split("\n")[1:] == ["echo $(canary)", "echo 'x'; canary"]


# --- one word -------------------------------------------------------------------------------------

ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NASTY = st.text(
    st.sampled_from("aü '\"$`\\!%^&|<>(){};,@#~*?\u2019\u201c\u02ba\n\t=-+."), max_size=20
)


@given(st.one_of(ANY, NASTY))
def test_bash_hands_on_exactly_the_word(text: str) -> None:
    line = shell.shell_line(("printf", "%s.", text), "linux")
    done = subprocess.run(
        ("/bin/bash", "--noprofile", "--norc", "-c", line), capture_output=True, check=True
    )
    assert done.stdout == f"{text}.".encode()


@given(st.one_of(ANY, NASTY))
def test_a_setting_of_bash_is_exactly_the_value(text: str) -> None:
    line = shell.setting("GPUSETUP_X", text, "linux")
    done = subprocess.run(
        ("/bin/bash", "--noprofile", "--norc", "-c", f'{line}\nprintf %s. "$GPUSETUP_X"'),
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{text}.".encode()


# --- Windows: people paste into PowerShell and into cmd -------------------------------------------


def test_what_is_not_on_path_is_started_through_this_python(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screen, "TYPED", {})
    monkeypatch.setenv("PATH", "")
    for words, way in ((["resolve", "--gpu", "sm_86", "--driver", "581.29"], "uv pip install "),):
        monkeypatch.setattr(sys, "argv", ["gpusetup", *words])
        assert main() == 0
        assert f"\n  {sys.executable} -m {way}" in capsys.readouterr().out
