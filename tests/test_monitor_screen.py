"""The live screen: frames of any size, keys, a real terminal, and what it costs to judge."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import standin
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_kinds import KINDS, composed
from standin import A100

from gpusetup.monitor.summary import summarise, tallied
from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.render.frame import Past, Process, View, frame, shown_processes
from gpusetup.render.live_screen import pressed

HERE = Path(__file__).resolve().parent
HOT = "one hot card of eight makes all ranks wait"
PEOPLE = (
    Process(
        gpu="0", pid=11, user="anna", memory_bytes=9 << 30, sm_percent=5, command="python a.py"
    ),
    Process(gpu="1", pid=12, user="ben", memory_bytes=3 << 30, sm_percent=90, cpu_percent=300.0),
    Process(gpu="1", pid=13, user="anna", command="\x1b[2J[bold]x"),
)


def view_of(name: str, **more: object) -> View:
    run, past = composed(name, 0), Past()
    for sample in run.samples:
        past.add(sample)
    told = {
        "sample": run.samples[-1],
        "past": {label: tuple(values) for label, values in past.values.items()},
        "so_far": summarise(tallied(run.samples), command=run.command),
        "processes": PEOPLE,
    }
    return View(**{**told, **more})  # type: ignore[arg-type]


def text_of(view: View, width: int, height: int) -> list[str]:
    return ["".join(text for text, _ in line) for line in frame(view, width, height)]


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(sorted(KINDS)),
    width=st.integers(1, 250),
    height=st.integers(1, 80),
    unicode=st.booleans(),
)
def test_a_frame_has_the_terminal_s_lines_and_columns(
    name: str, width: int, height: int, unicode: bool
) -> None:
    lines = text_of(view_of(name, unicode=unicode), width, height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert not re.search(r"[\x00-\x1f]", "".join(lines))
    assert unicode or all(
        ord(sign) < 128 for line in lines[1:-1] for sign in line if sign not in "°…"
    )


def test_each_size_shows_what_a_person_looks_for() -> None:
    for width, height in ((80, 24), (120, 40), (200, 60)):
        shown = "\n".join(text_of(view_of(HOT), width, height))
        for part in ("W", "°C", "hw_thermal_slowdown", "throttled/heat", "PID", "host", "q quit",
                     "next: Cool it", "MHz"):  # fmt: skip
            assert part in shown, (width, part)
        assert (
            sum(line.lstrip()[:2] in {f"{n} " for n in range(8)} for line in shown.split("\n")) >= 8
        )


def test_processes_are_sorted_and_filtered() -> None:
    view = view_of(HOT)
    assert [one.pid for one in shown_processes(view)] == [11, 12, 13]
    view = pressed(view, "s")
    assert [one.pid for one in shown_processes(view)] == [12, 11, 13]
    for key in "/ben":
        view = pressed(view, key)
    assert view.typing and [one.pid for one in shown_processes(view)] == [12]
    view = pressed(pressed(view, "\x7f"), "\r")
    assert (view.filter, view.typing) == ("be", False)
    assert pressed(view, "\x1b").filter == ""


def test_nothing_in_a_frame_obeys_a_process_s_name() -> None:
    view = view_of(HOT, sort="pid")
    assert "?[2J[bold]x" in "\n".join(text_of(view, 200, 60))


def test_what_no_source_told_is_a_dash() -> None:
    bare = Sample(at="2026-11-20T06:00:00.000Z", seconds=0, gpus=(GpuSample(index=0),))
    assert (
        "util" in text_of(View(sample=bare), 80, 24)[1]
        and "-" in text_of(View(sample=bare), 80, 24)[1]
    )


def test_judging_so_far_costs_no_more_in_a_long_run() -> None:
    samples = composed("a steady training beside its workers", 0).samples
    short, long = tallied(samples[:60]), tallied(samples * 30)

    def seconds(tally: object) -> float:
        began = time.perf_counter()
        for _ in range(5):
            summarise(tally)  # type: ignore[arg-type]
        return time.perf_counter() - began

    pairs = [(seconds(short), seconds(long)) for _ in range(5)]
    assert min(after / before for before, after in pairs) < 4


# --- a real terminal ------------------------------------------------------------------------------

BUSY = {**A100, "utilization": 97, "memory_used": 30 << 30, "throttle": 0, "power_mw": 320000,
        "clock_sm": 1400, "clock_sm_max": 1410, "processes": "4711:32212254720"}  # fmt: skip


class Terminal:
    """A program on a terminal of this size; what it wrote, and keys to press."""

    def __init__(self, columns: int, rows: int, **environment: str) -> None:
        import fcntl
        import struct
        import termios

        self.file, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        told = {**os.environ, "TERM": "xterm-256color", **environment}
        for name in ("COLUMNS", "LINES"):
            told.pop(name, None)
        argv = (sys.executable, "-m", "gpusetup", "monitor", "--interval", "0.2")
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.child = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=told)
        self.said = ""

    def until(self, wanted: str) -> str:
        end = time.monotonic() + PATIENCE
        start = len(self.said)
        while wanted not in self.said[start:]:
            assert time.monotonic() < end, f"{wanted!r} never came: {self.said[-2000:]!r}"
            if select.select([self.file], [], [], 0.2)[0]:
                self.said += os.read(self.file, 65536).decode("utf-8", "replace")
        return self.said[start:]

    def press(self, keys: str) -> None:
        os.write(self.file, keys.encode())

    def ends(self) -> int:
        """Its exit code. It is read to its end: a terminal that nobody reads holds up who writes,
        and who puts its settings back."""
        end = time.monotonic() + PATIENCE
        while self.child.poll() is None:
            assert time.monotonic() < end, f"it never ended: {self.said[-2000:]!r}"
            if select.select([self.file], [], [], 0.05)[0]:
                self.said += os.read(self.file, 65536).decode("utf-8", "replace")
        return self.child.returncode

    def close(self) -> None:
        """Nothing of it is left, however the test ended."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(PATIENCE)
        os.close(self.file)
        os.close(self.theirs)


PATIENCE = 120.0
"""Seconds; a busy machine is slow."""
Opened = Callable[..., Terminal]


@pytest.fixture
def opened(machine: None) -> Iterator[Opened]:
    """Terminals that are closed after the test."""
    with contextlib.ExitStack() as stack:

        def open_one(columns: int, rows: int, **environment: str) -> Terminal:
            terminal = Terminal(columns, rows, **environment)
            stack.callback(terminal.close)
            return terminal

        yield open_one


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE.parent))
    standin.install(monkeypatch, tmp_path, standin.state((BUSY, BUSY)))


def test_keys_change_the_screen_and_the_terminal_is_as_it_was(opened: Opened) -> None:
    import termios

    terminal = opened(100, 30)
    assert "\x1b[?1049h" in terminal.until("q quit")
    terminal.press("?")
    terminal.until("quit, with the summary")
    terminal.press("?s")
    terminal.until("sort: sm")
    terminal.press("-")
    terminal.until("every 0.5 s")
    terminal.press("p")
    terminal.until("paused")
    terminal.press("q")
    end = terminal.until("Verdict: ")
    assert end.index("\x1b[?1049l") < end.index("Watched")
    assert "\x1b[?25h" in end
    assert terminal.ends() == 0
    assert termios.tcgetattr(terminal.theirs)[3] == terminal.before[3]


def test_without_colours_there_are_none(opened: Opened) -> None:
    terminal = opened(100, 30, NO_COLOR="1")
    shown = terminal.until("q quit")
    terminal.press("q")
    terminal.until("Verdict")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown)
    terminal.ends()


def test_a_dumb_terminal_gets_lines(opened: Opened) -> None:
    terminal = opened(100, 30, TERM="dumb")
    shown = terminal.until("GPU 1")
    os.kill(terminal.child.pid, 2)
    shown += terminal.until("Verdict")
    assert "\x1b" not in shown
    terminal.ends()
