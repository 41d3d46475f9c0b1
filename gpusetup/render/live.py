"""One sample as a table; sparklines."""

from __future__ import annotations

import shutil
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpusetup.monitor.marks import HOT, MEMORY_HIGH
from gpusetup.monitor.values import GpuSample, Sample
from gpusetup.render.language import plain
from gpusetup.render.monitor import brakes, measured, memory

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-:=+*#"
KEPT = 120
"""How many samples back the longest sparkline reaches."""
PROCESSES = 8


def sparkline(values: Sequence[float | None], width: int, *, bars: str = BARS) -> str:
    """The last `width` values between 0 and 100, one character each; blank where none was told.

    >>> sparkline([0, 50, None, 100], 3, bars="_-#")
    '- #'
    """
    shown = list(values)[-width:] if width > 0 else []
    return "".join(_bar(value, bars) for value in shown)


@lru_cache(maxsize=1024)
def _bar(value: float | None, bars: str) -> str:
    if value is None:
        return " "
    step = round(min(100.0, max(0.0, value)) / 100 * (len(bars) - 1))
    return bars[step]


class View:
    """What the screen shows: the last sample, and for each GPU the utilisation before it."""

    def __init__(self, *, bars: str = BARS) -> None:
        self._bars = bars
        self._past: dict[str, deque[float | None]] = {}
        self.last: Sample | None = None

    def sample(self, sample: Sample) -> None:
        self.last = sample
        for gpu in sample.gpus:
            past = self._past.setdefault(gpu.label, deque(maxlen=KEPT))
            past.append(gpu.utilization_percent)

    def _table(self, sample: Sample, width: int) -> Table:
        past = any(len(values) > 1 for values in self._past.values())
        columns = [c for c in COLUMNS if width >= c[1] and (past or c[2] is not None)]
        table = Table(box=None, pad_edge=False, expand=False)
        for name, _, _ in columns:
            table.add_column(name, no_wrap=True, justify="left" if name in LEFT else "right")
        for gpu in sample.gpus:
            room = max(8, min(KEPT, width - 84))
            line = sparkline(self._past[gpu.label], room, bars=self._bars)
            table.add_row(*(Text(line) if cell is None else cell(gpu) for _, _, cell in columns))
        return table


def _utilization(gpu: GpuSample) -> Text:
    return Text("lost", style="red") if gpu.lost else Text(measured(gpu.utilization_percent, "%"))


def _memory(gpu: GpuSample) -> Text:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    high = used is not None and total and used / total * 100 > MEMORY_HIGH.value
    return Text(memory(used, total), style="yellow" if high else "")


def _heat(gpu: GpuSample) -> Text:
    high = gpu.temperature_celsius is not None and gpu.temperature_celsius > HOT.value
    return Text(measured(gpu.temperature_celsius, "°C"), style="red" if high else "")


# The heading, from which width on it is shown, and its cell (None: the sparkline).
COLUMNS = (
    ("GPU", 0, lambda gpu: Text(gpu.label)),
    ("name", 110, lambda gpu: Text(plain(gpu.name or "-"))),
    ("util", 0, _utilization),
    ("past", 50, None),
    ("memory", 30, _memory),
    ("heat", 60, _heat),
    ("power", 70, lambda gpu: Text(measured(gpu.power_watts, "W"))),
    ("SM clock", 80, lambda gpu: Text(measured(gpu.clock_sm_mhz, "MHz"))),
    ("held down by", 90, lambda gpu: Text(brakes(gpu), style="yellow")),
)
LEFT = ("GPU", "name", "past", "held down by")


def process_lines(gpus: Iterable[GpuSample], width: int) -> list[str]:
    """The heaviest processes, one a line."""
    rows = [
        (process.memory_bytes or 0, gpu.label, process)
        for gpu in gpus
        for process in gpu.processes or ()
    ]
    rows.sort(key=lambda row: (-row[0], row[1], row[2].pid))
    lines = [
        f"GPU {label}  pid {process.pid}  {memory(process.memory_bytes, None)}  "
        f"{plain(process.name or '(name hidden)')}"
        for _, label, process in rows[:PROCESSES]
    ]
    more = len(rows) - PROCESSES
    lines = [line if len(line) <= width else line[: max(0, width - 1)] + "…" for line in lines]
    return [*lines, f"and {more} more processes"] if more > 0 else lines


def once(sample: Sample, width: int) -> RenderableType:
    """One sample as a table."""
    view = View()
    view.sample(sample)
    table = Group(view._table(sample, max(width, 100)))
    return Group(table, *(Text(line) for line in process_lines(sample.gpus, width)))


def can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def width_of(stream: TextIO) -> int:
    """The columns of a terminal; 100 elsewhere."""
    return shutil.get_terminal_size().columns if stream.isatty() else 100
