"""Samples on a terminal, drawn by rich: one under `--once`, else a screen that is drawn again."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console as Rich
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpusetup.monitor.summary import summarise
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.users import Users
from gpusetup.monitor.values import HostSample, Sample, Summary
from gpusetup.render.language import plain
from gpusetup.render.monitor import cells, duration, measured, memory, tree_line

BARS = "▁▂▃▄▅▆▇█"
KEPT = 120
"""How many samples back the longest sparkline reaches."""
JUDGED_EVERY_SECONDS = 10.0
"""The verdict so far costs some milliseconds."""
Past = Mapping[str, Sequence[float | None]]
"""GPU -> its utilisation until now."""


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last `width` values between 0 and 100, one character each; blank where none was told.

    >>> sparkline([0, 50, None, 100], 3)
    '▅ █'
    """
    steps = len(BARS) - 1
    shown = [*values][-width:]
    return "".join(
        " " if v is None else BARS[round(min(max(v, 0), 100) / 100 * steps)] for v in shown
    )


COLUMNS = {
    "GPU": 0,
    "name": 120,
    "util": 0,
    "past": 100,
    "memory": 30,
    "heat": 60,
    "power": 70,
    "SM clock": 70,
    "held down by": 80,
}
"""Column -> from which width of the terminal on it is shown."""
LEFT = ("GPU", "name", "past", "held down by")


def gpu_table(sample: Sample, width: int, past: Past | None = None) -> Table:
    """The GPUs, one a row; what does not fit into the width is left out."""
    names = [name for name, least in COLUMNS.items() if width >= least and (past or name != "past")]
    table = Table(box=None, pad_edge=False, expand=False)
    for name in names:
        table.add_column(name, no_wrap=True, justify="left" if name in LEFT else "right")
    for gpu in sample.gpus:
        line = sparkline((past or {}).get(gpu.label, ()), max(8, min(KEPT, width - 125)))
        known = {**cells(gpu), "past": (line, "")}
        table.add_row(*(Text(known[name][0], style=known[name][1]) for name in names))
    return table


def once(sample: Sample, width: int) -> RenderableType:
    """One sample as a table."""
    table, users = gpu_table(sample, max(width, 100)), Users().rows(sample)
    return Group(table, *([users_table(users)] if users else []))


# --- the screen -----------------------------------------------------------------------------------


class LiveScreen:
    """Shows every sample until Ctrl-C."""

    def __init__(self, tally: Tally, live: Live, *, command: tuple[str, ...] | None) -> None:
        self._tally, self._live, self._command = tally, live, command
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
        table = gpu_table(sample, width, self._past)
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
    held = memory(host.memory_used_bytes, host.memory_total_bytes)
    rates = {
        "disk": (host.disk_read_bytes_per_second, host.disk_write_bytes_per_second),
        "network": (host.network_receive_bytes_per_second, host.network_send_bytes_per_second),
    }
    moved = ", ".join(
        f"{name} {'/'.join(measured(one and one / 1e6, 'MB/s') for one in both)}"
        for name, both in rates.items()
    )
    return f"host  CPU {measured(used, '%')} of {host.cores}, {held}, {moved}"


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


def width_of(stream: TextIO) -> int:
    """The columns of a terminal; 100 elsewhere."""
    return shutil.get_terminal_size().columns if stream.isatty() else 100
