"""What takes long says so on a terminal, in one line that goes again; nowhere else."""

from __future__ import annotations

import io
import os
import pty
import sys
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from gpusetup.render import clock, console
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console
from gpusetup.verify import streams
from gpusetup.verify.answer import screen


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Tty:
    """A terminal on stderr, for which nothing is too short to be spoken of."""
    for name in ("FIRST_SECONDS", "REDRAW_SECONDS"):
        monkeypatch.setattr(clock, name, 0.001)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = Tty()
    # pytest changes sys.stderr itself between this and the test
    both = SimpleNamespace(stderr=shown, stdout=io.StringIO(), platform="linux")
    for module in (clock, console, screen, streams):
        monkeypatch.setattr(module, "sys", both)
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
        assert until(lambda: "Verifying 2 of 4, 0 s" in terminal.getvalue())
        CLOCK.reached(2, 4, "MB")
        assert until(lambda: "Verifying 2 of 4 MB, 0 s" in terminal.getvalue())
    assert terminal.getvalue().endswith(clock.ERASED)
    assert "Verifying ...\n" in terminal.getvalue()


ASKS = "printf 'Password: ' >/dev/tty; read said </dev/tty; sleep 0.1; echo heard $said >/dev/tty"
"""As ssh, sudo, git and getpass ask: on the terminal itself, whatever their streams are."""
LENDS = """
import sys
from gpusetup.render import clock
from gpusetup.system.processes import StreamingChild, foreground, run

clock.FIRST_SECONDS = clock.REDRAW_SECONDS = 0.01
asks = ("sh", "-c", sys.argv[1])
with clock.CLOCK.during("gpusetup install"):
    alone, told = run(asks, timeout=5), StreamingChild(asks)
    print(f"alone {alone.exit} told {told.exit()} ")
    clock.CLOCK.end()
    foreground(asks).wait()
"""
REPORT = """
import sys
from gpusetup import cli
from gpusetup.commands import report
from gpusetup.render import clock

clock.FIRST_SECONDS = clock.REDRAW_SECONDS = 0.01
read = report.sifted
report.sifted = lambda stream: print("paste", flush=True) or read(stream)
sys.exit(cli.main(["doctor", "--report", "-"]))
"""


def on_a_terminal(script: str, *words: str, prompt: str, typed: Sequence[str]) -> str:
    """All that a person sees of a program who types, slowly, when they are asked."""
    child, terminal = pty.fork()
    if not child:
        shown = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        os.execve(sys.executable, [sys.executable, "-c", script, *words], shown)
    seen = b""
    try:
        while True:
            seen += os.read(terminal, 4096)
            if prompt.encode() in seen and typed:
                time.sleep(0.05)
                os.write(terminal, typed[0].encode())
                typed = typed[1:]
    except OSError:  # it has ended
        return seen.decode()
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def test_a_child_has_no_terminal_to_ask_on_but_one_that_is_lent_it_alone() -> None:
    seen = on_a_terminal(LENDS, ASKS, prompt="Password: ", typed=["secret\n"])
    before, _, rest = seen.partition("Password: ")
    assert "gpusetup install 0 s" in before
    refused, told = before.partition("alone ")[2].split(" told ")
    assert int(refused) and int(told.split()[0])
    asked, heard, _ = rest.partition("heard secret")
    assert heard and "\x1b" not in asked


def test_nothing_is_drawn_while_somebody_pastes() -> None:
    typed = ["CUDA error: out of memory\n"] * 3 + ["\x04"]
    seen = on_a_terminal(REPORT, prompt="paste", typed=typed)
    pasted = seen.partition("paste")[2].rpartition("CUDA error: out of memory\r\n")[0]
    assert pasted.count("CUDA") == 2 and "\x1b" not in pasted
