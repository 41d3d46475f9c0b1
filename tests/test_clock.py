"""What takes long says so on a terminal, in one line that goes again; nowhere else."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from gpusetup.render import clock, console
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console
from gpusetup.verify.answer import live


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Tty:
    """A terminal on stderr, for which nothing is too short to be spoken of."""
    for module in (clock, live):
        monkeypatch.setattr(module, "FIRST_SECONDS", 0.001)
        monkeypatch.setattr(module, "EACH_SECONDS", 0.001)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = Tty()
    # pytest changes sys.stderr itself between this and the test
    streams = SimpleNamespace(stderr=shown, stdout=io.StringIO(), platform="linux")
    for module in (clock, console, live):
        monkeypatch.setattr(module, "sys", streams)
    return shown


def until(said: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not said() and time.monotonic() < end:
        time.sleep(0.001)
    return said()


def test_a_command_says_its_name_its_talk_and_how_far_it_is(terminal: Tty) -> None:
    with CLOCK.during("gpusetup install"):
        assert until(lambda: "gpusetup install 0 s" in terminal.getvalue())
        Console().talk("Verifying ...")
        assert until(lambda: "Verifying 0 s" in terminal.getvalue())
        CLOCK.reached(2, 4)
        assert until(lambda: "Verifying 2 of 4, 0 s left" in terminal.getvalue())
    assert terminal.getvalue().endswith(clock.ERASED)
    assert "Verifying ...\n" in terminal.getvalue()


def test_an_answer_ends_the_line_and_none_comes_after_it(terminal: Tty) -> None:
    with CLOCK.during("gpusetup doctor"):
        assert until(lambda: "doctor 0 s" in terminal.getvalue())
        Console().text("the answer\n")
        seen = terminal.getvalue()
        time.sleep(0.02)
        assert terminal.getvalue() == seen and seen.endswith(clock.ERASED)


def test_the_line_keeps_to_the_width(terminal: Tty) -> None:
    with CLOCK.during("word " * 40):
        assert until(lambda: " 0 s" in terminal.getvalue())
    assert max(map(len, terminal.getvalue().split(clock.ERASED))) < 60


@pytest.mark.parametrize("term", ("dumb", "unknown"))
def test_a_dumb_terminal_gets_nothing(
    terminal: Tty, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    with CLOCK.during("gpusetup doctor"):
        time.sleep(0.02)
    line = live.Live()
    line.checks("amp", "cpu")
    time.sleep(0.02)
    line.end()
    assert terminal.getvalue() == ""


def test_verify_says_which_check_of_how_many_is_running(terminal: Tty) -> None:
    line = live.Live()
    line.of = 2
    line.checks("import", "host")
    assert until(lambda: "check 1 of 2: import on host, 0 s" in terminal.getvalue())
    line.checks("amp", "cpu")
    assert until(lambda: "check 2 of 2: amp on cpu, 0 s" in terminal.getvalue())
    line.end()
    assert terminal.getvalue().endswith(live.ERASED)


def test_ranks_draw_nothing(terminal: Tty) -> None:
    line = live.Live(wanted=False)
    line.checks("amp", "cpu")
    time.sleep(0.02)
    line.end()
    assert terminal.getvalue() == ""
