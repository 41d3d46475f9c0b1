"""Samples on a terminal, drawn by rich: one under `--once`, else a screen that is drawn again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpusetup.monitor.summary import summarise
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.values import HostSample, Sample, Summary
from gpusetup.render.language import DIM, GOOD, HEADING, WARNING, Row, Screen, table
from gpusetup.render.monitor import cells, duration, measured, memory, tree_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

JUDGED_EVERY_SECONDS = 10.0
"""The verdict so far costs some milliseconds."""
COLUMNS = ("GPU", "util", "memory", "heat", "power", "SM clock", "held down by", "name")
"""What matters most stands first: a narrow terminal shows no more of a line than fits."""


def gpu_table(sample: Sample) -> list[Row]:
    """The GPUs, one a row."""
    rows = [[cells(gpu)[name] for name in COLUMNS] for gpu in sample.gpus]
    return table(COLUMNS, rows, left=(0, 6, 7))


def once(sample: Sample) -> Screen:
    """One sample as a table."""
    return Screen((*gpu_table(sample), *users_table(sample)))


# --- the screen -----------------------------------------------------------------------------------


class LiveScreen:
    """Shows every sample until Ctrl-C."""

    def __init__(self, tally: Tally, live: Live, *, command: tuple[str, ...] | None) -> None:
        self._tally, self._live, self._command = tally, live, command
        self._so_far: Summary | None = None
        self._judged_at = -JUDGED_EVERY_SECONDS

    def sample(self, sample: Sample) -> None:
        if sample.seconds - self._judged_at >= JUDGED_EVERY_SECONDS and self._tally.samples > 2:
            self._judged_at = sample.seconds
            self._so_far = summarise(self._tally, command=self._command)
        rows = (*beside(sample, self._so_far), *gpu_table(sample), *users_table(sample))
        self._live.update(self._drawn(Screen(rows)), refresh=True)

    def _drawn(self, screen: Screen) -> RenderableType:
        """The screen, of whose rows no more is shown than fits."""
        from rich.text import Text

        rich = self._live.console
        shown = screen.shown(width=rich.width, colour=not rich.no_color)
        return Text.from_ansi(shown, no_wrap=True, overflow="ellipsis")


@contextmanager
def live_screen(
    tally: Tally, *, color: bool, command: tuple[str, ...] | None
) -> Iterator[LiveScreen]:
    """The terminal's other screen, which is given back at the end."""
    from rich.console import Console
    from rich.live import Live

    live = Live(
        "waiting for the first sample",
        console=Console(highlight=False, markup=False, emoji=False, no_color=not color),
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        yield LiveScreen(tally, live, command=command)


def beside(sample: Sample, so_far: Summary | None) -> Iterator[Row]:
    """The time, the verdict so far, the machine and the command."""
    when = f"  {sample.at[11:19]}  {duration(sample.seconds)}  Ctrl-C ends it, with the verdict"
    yield Row(("gpusetup monitor", HEADING), (when, DIM))
    if so_far is None:
        yield Row(("so far: too few samples", DIM))
    else:
        name = "/".join(filter(None, (so_far.verdict or "none", so_far.cause)))
        style = GOOD if so_far.verdict == "good" else WARNING
        yield Row(("so far: ", DIM), (name, style), f"  {so_far.evidence}")
        if so_far.next:
            yield Row((f"  next: {so_far.next.text}", DIM))
    if sample.host is not None:
        yield Row(host_line(sample.host))
    if sample.tree is not None:
        yield Row(tree_line(sample.tree))


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


def users_table(sample: Sample) -> list[Row]:
    """The processes on the GPUs, the heaviest first, as the driver names them."""
    pairs = [(gpu.label, one) for gpu in sample.gpus for one in gpu.processes or ()]
    pairs.sort(key=lambda pair: -(pair[1].memory_bytes or 0))
    rows = [
        (
            *(label, str(one.pid), memory(one.memory_bytes, None), measured(one.sm_percent, "%")),
            *(one.name or "(name hidden)", ""),
        )
        for label, one in pairs
    ]
    return table(("GPU", "PID", "memory", "SM", "name", ""), rows, left=(0, 4)) if rows else []
