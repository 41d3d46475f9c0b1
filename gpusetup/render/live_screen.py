"""The live screen: frames on the terminal's other screen, and the keys that change them.

Drawn by rich's screen updates, which know colours, Windows consoles and widths; nothing is drawn
but at a sample or a key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rich.console import Console as Rich
from rich.console import ConsoleDimensions
from rich.segment import Segment
from rich.style import Style

from gpusetup.model.frozen import replace
from gpusetup.monitor.summary import summarise
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.users import Users
from gpusetup.monitor.values import Sample
from gpusetup.render.frame import SORTS, Line, Past, Process, View, frame
from gpusetup.render.keyboard import Keyboard
from gpusetup.render.live import can_show

JUDGED_EVERY_SECONDS = 10.0
"""The verdict so far costs some milliseconds."""
RATES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class LiveScreen:
    """Shows every sample until it is left; `changed` is told another interval."""

    def __init__(
        self,
        tally: Tally,
        *,
        color: bool,
        interval: float = 1.0,
        command: tuple[str, ...] | None = None,
        changed: Callable[[float], bool] = lambda every: False,
        quit: Callable[[], None] = lambda: None,
    ) -> None:
        self._rich = Rich(
            highlight=False, markup=False, emoji=False, no_color=not color, legacy_windows=False
        )
        self._tally, self._command = tally, command
        self._changed, self._quit = changed, quit
        self._view = View(interval=interval, unicode=can_show("█▏▁°"))
        self._past, self._users = Past(), Users()
        self._judged_at = -JUDGED_EVERY_SECONDS
        self._lock = threading.Lock()
        self._keyboard = Keyboard(self.key)
        self._styles: dict[str, Style] = {}
        self._drawn: list[Line] = []
        self._size: ConsoleDimensions | None = None

    def __enter__(self) -> LiveScreen:
        self._rich.set_alt_screen(True)
        self._rich.show_cursor(False)
        self._keyboard.start()
        self._draw()
        return self

    def __exit__(self, *how: Any) -> None:
        self._keyboard.stop()
        with self._lock:
            self._rich.show_cursor(True)
            self._rich.set_alt_screen(False)

    def sample(self, sample: Sample) -> None:
        self._past.add(sample)
        if self._view.paused:
            return
        rows = tuple(Process(**row) for row in self._users.rows(sample))
        past = {label: tuple(values) for label, values in self._past.values.items()}
        self._view = replace(self._view, sample=sample, processes=rows, past=past)
        if sample.seconds - self._judged_at >= JUDGED_EVERY_SECONDS and self._tally.samples > 2:
            self._judged_at = sample.seconds
            self._view = replace(self._view, so_far=summarise(self._tally, command=self._command))
        self._draw()

    def key(self, key: str) -> None:
        """A key was pressed: another view, at once."""
        if key == "q" and not self._view.typing:
            self._quit()
            return
        view = pressed(self._view, key)
        if view.interval != self._view.interval and not self._changed(view.interval):
            view = replace(view, interval=self._view.interval)
        self._view = view
        self._draw()

    def _draw(self) -> None:
        """Only what changed since the frame before, unless the terminal has another size."""
        with self._lock:
            size = self._rich.size
            lines = frame(self._view, size.width, size.height)
            old = self._drawn if self._size == size else []
            for start, end in changed_rows(old, lines):
                rows = [self._segments(line, size.width) for line in lines[start:end]]
                self._rich.update_screen_lines(rows, 0, start)
            self._drawn, self._size = lines, size

    def _segments(self, line: Line, width: int) -> list[Segment]:
        told = [Segment(text, self._style(role)) for text, role in line]
        return Segment.adjust_line_length(told, width)

    def _style(self, role: str) -> Style:
        if role not in self._styles:
            self._styles[role] = Style.parse(role) if role else Style.null()
        return self._styles[role]


def changed_rows(old: list[Line], new: list[Line]) -> list[tuple[int, int]]:
    """The stretches of lines that are not as before.

    >>> changed_rows([[("a", "")], [("b", "")]], [[("a", "")], [("c", "")], []])
    [(1, 3)]
    """
    found: list[tuple[int, int]] = []
    for row, line in enumerate(new):
        if row < len(old) and old[row] == line:
            continue
        if found and found[-1][1] == row:
            found[-1] = (found[-1][0], row + 1)
        else:
            found.append((row, row + 1))
    return found


def pressed(view: View, key: str) -> View:
    """The view after a key. Pure.

    >>> pressed(View(), "s").sort, pressed(View(), "p").paused, pressed(View(), "-").interval
    ('sm', True, 2.0)
    """
    if view.typing:
        return _typed(view, key)
    if key in ("p", " "):
        return replace(view, paused=not view.paused)
    if key == "s":
        return replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)])
    if key == "/":
        return replace(view, typing=True)
    if key in ("?", "h"):
        return replace(view, help=not view.help)
    if key in ("+", "-", "="):
        return replace(view, interval=next_rate(view.interval, faster=key != "-"))
    return replace(view, help=False, filter="") if key == "\x1b" else view


def _typed(view: View, key: str) -> View:
    if key in ("\r", "\n"):
        return replace(view, typing=False)
    if key == "\x1b":
        return replace(view, typing=False, filter="")
    if key in ("\x7f", "\b"):
        return replace(view, filter=view.filter[:-1])
    return replace(view, filter=view.filter + key) if key.isprintable() else view


def next_rate(now: float, *, faster: bool) -> float:
    """
    >>> next_rate(1.0, faster=True), next_rate(1.0, faster=False), next_rate(0.1, faster=True)
    (0.5, 2.0, 0.1)
    """
    if faster:
        return max((rate for rate in RATES if rate < now), default=now)
    return min((rate for rate in RATES if rate > now), default=now)
