"""Samples on a terminal, drawn by rich: one under `--once`, else a screen that is drawn again."""

from __future__ import annotations

import shutil
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TextIO

from rich.console import Console as Rich
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpusetup.monitor.marks import HOT, MEMORY_HIGH
from gpusetup.monitor.summary import summarise
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.users import Users
from gpusetup.monitor.values import GpuSample, HostSample, Sample, Summary
from gpusetup.render.language import plain
from gpusetup.render.monitor import brakes, duration, measured, memory, tree_line

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-:=+*#"
KEPT = 120
"""How many samples back the longest sparkline reaches."""
JUDGED_EVERY_SECONDS = 10.0
"""The verdict so far costs some milliseconds."""
Past = Mapping[str, Sequence[float | None]]
"""GPU -> its utilisation until now."""


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


def gpu_table(sample: Sample, width: int, past: Past | None = None, bars: str = BARS) -> Table:
    """The GPUs, one a row; what does not fit into the width is left out."""
    columns = [c for c in COLUMNS if width >= c[1] and (past or c[2] is not None)]
    table = Table(box=None, pad_edge=False, expand=False)
    for name, _, _ in columns:
        table.add_column(name, no_wrap=True, justify="left" if name in LEFT else "right")
    for gpu in sample.gpus:
        line = sparkline((past or {}).get(gpu.label, ()), max(8, min(KEPT, width - 125)), bars=bars)
        table.add_row(*(Text(line) if cell is None else cell(gpu) for _, _, cell in columns))
    return table


def _utilization(gpu: GpuSample) -> Text:
    return Text("lost", style="red") if gpu.lost else Text(measured(gpu.utilization_percent, "%"))


def _memory(gpu: GpuSample) -> Text:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    high = used is not None and total and used / total * 100 > MEMORY_HIGH
    return Text(memory(used, total), style="yellow" if high else "")


def _heat(gpu: GpuSample) -> Text:
    high = gpu.temperature_celsius is not None and gpu.temperature_celsius > HOT
    return Text(measured(gpu.temperature_celsius, "°C"), style="red" if high else "")


def _power(gpu: GpuSample) -> Text:
    watts, limit = gpu.power_watts, gpu.power_limit_watts
    return Text(measured(watts, "W") if limit is None else f"{watts or 0:.0f}/{limit:.0f} W")


def _links(gpu: GpuSample) -> Text:
    """Bytes a second in and out, by PCIe and NVLink."""
    told = (
        ("PCIe", gpu.pcie_rx_bytes_per_second, gpu.pcie_tx_bytes_per_second),
        ("NVLink", gpu.nvlink_rx_bytes_per_second, gpu.nvlink_tx_bytes_per_second),
    )
    return Text(" ".join(f"{name} {rate(i)}/{rate(o)}" for name, i, o in told if i or o))


def rate(count: float | None) -> str:
    """Bytes a second in few letters.

    >>> rate(1.25e9), rate(3.2e6), rate(100), rate(None)
    ('1.2G', '3M', '0M', '-')
    """
    if count is None:
        return "-"
    return f"{count / 1e9:.1f}G" if count >= 1e9 else f"{count / 1e6:.0f}M"


# The heading, from which width on it is shown, and its cell (None: the sparkline).
COLUMNS = (
    ("GPU", 0, lambda gpu: Text(gpu.label)),
    ("name", 120, lambda gpu: Text(plain(gpu.name or "-"))),
    ("util", 0, _utilization),
    ("past", 100, None),
    ("memory", 30, _memory),
    ("heat", 60, _heat),
    ("power", 70, _power),
    ("SM clock", 70, lambda gpu: Text(measured(gpu.clock_sm_mhz, "MHz"))),
    ("links", 130, _links),
    ("held down by", 80, lambda gpu: Text(brakes(gpu), style="yellow")),
)
LEFT = ("GPU", "name", "past", "links", "held down by")


def once(sample: Sample, width: int) -> RenderableType:
    """One sample as a table."""
    table, users = gpu_table(sample, max(width, 100)), Users().rows(sample)
    return Group(table, *([users_table(users)] if users else []))


# --- the screen -----------------------------------------------------------------------------------


class LiveScreen:
    """Shows every sample until Ctrl-C."""

    def __init__(self, tally: Tally, live: Live, *, command: tuple[str, ...] | None) -> None:
        self._tally, self._live, self._command = tally, live, command
        self._bars = BARS if can_show(BARS) else ASCII_BARS
        self._past: dict[str, deque[float | None]] = {}
        self._users = Users()
        self._so_far: Summary | None = None
        self._judged_at = -JUDGED_EVERY_SECONDS

    def sample(self, sample: Sample) -> None:
        for gpu in sample.gpus:
            past = self._past.setdefault(gpu.label, deque(maxlen=KEPT))
            past.append(gpu.utilization_percent)
        if sample.seconds - self._judged_at >= JUDGED_EVERY_SECONDS and self._tally.samples > 2:
            self._judged_at = sample.seconds
            self._so_far = summarise(self._tally, command=self._command)
        width = self._live.console.width
        table = gpu_table(sample, width, self._past, self._bars)
        users = users_table(self._users.rows(sample)) if width >= 60 else Text()
        self._live.update(Group(*beside(sample, self._so_far), table, users), refresh=True)


@contextmanager
def live_screen(
    tally: Tally, *, color: bool, command: tuple[str, ...] | None
) -> Iterator[LiveScreen]:
    """The terminal's other screen, which is given back at the end."""
    rich = Rich(highlight=False, markup=False, emoji=False, no_color=not color)
    waiting = Text("waiting for the first sample", style="dim")
    live = Live(
        waiting,
        console=rich,
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        yield LiveScreen(tally, live, command=command)


def beside(sample: Sample, so_far: Summary | None) -> Iterator[Text]:
    """The time, the verdict so far, the machine and the command."""
    when = f"  {sample.at[11:19]}  {duration(sample.seconds)}  Ctrl-C ends it, with the verdict"
    yield Text.assemble(("gpusetup monitor", "bold"), (when, "dim"))
    if so_far is None:
        yield Text("so far: too few samples", style="dim")
    else:
        name = "/".join(filter(None, (so_far.verdict or "none", so_far.cause)))
        role = "bold green" if so_far.verdict == "good" else "bold yellow"
        yield Text.assemble(("so far: ", "dim"), (name, role), f"  {plain(so_far.evidence)}")
        if so_far.next:
            yield Text(f"  next: {plain(so_far.next.text)}", style="dim")
    if sample.host is not None:
        yield Text(host_line(sample.host))
    if sample.tree is not None:
        yield Text(tree_line(sample.tree))


def host_line(host: HostSample) -> str:
    used = None if host.cpu_percent is None else host.cpu_percent / (host.cores or 1)
    disk, net = (
        f"{rate(a)}/{rate(b)}"
        for a, b in (
            (host.disk_read_bytes_per_second, host.disk_write_bytes_per_second),
            (host.network_receive_bytes_per_second, host.network_send_bytes_per_second),
        )
    )
    held = memory(host.memory_used_bytes, host.memory_total_bytes)
    return f"host  CPU {measured(used, '%')} of {host.cores}, {held}, disk {disk}, network {net}"


def users_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The processes on the GPUs, the heaviest first; a long command is cut, no other column."""
    table = Table(box=None, pad_edge=False, expand=True)
    for name in ("GPU", "PID", "user", "memory", "SM", "CPU"):
        table.add_column(name, no_wrap=True, header_style="dim")
    table.add_column("command", no_wrap=True, header_style="dim", ratio=1)
    for one in rows:
        table.add_row(
            one["gpu"],
            str(one["pid"]),
            Text(plain(one["user"])),
            memory(one["memory_bytes"], None),
            measured(one["sm_percent"], "%"),
            measured(one["cpu_percent"], "%"),
            Text(plain(one["command"]) or "(name hidden)"),
        )
    return table


def can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def width_of(stream: TextIO) -> int:
    """The columns of a terminal; 100 elsewhere."""
    return shutil.get_terminal_size().columns if stream.isatty() else 100
