"""The monitor's samples and summaries: one table, the live screen, the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpusetup.model.units import GIB
from gpusetup.monitor.documents import (
    GpuSample,
    GpuSummary,
    Sample,
    Summary,
    TreeSample,
)
from gpusetup.monitor.marks import HOT, MEMORY_HIGH
from gpusetup.render.screen import (
    DIM,
    GOOD,
    HEADING,
    RED,
    WARNING,
    YELLOW,
    Row,
    Screen,
    command,
    facts,
    heading,
    plural,
    table,
)

if TYPE_CHECKING:
    from rich.live import Live


def measured(value: float | None, unit: str, digits: int = 0) -> str:
    """A value with its unit, or a dash.

    >>> measured(31.26, "GiB", 1), measured(None, "W")
    ('31.3 GiB', '-')
    """
    return "-" if value is None else f"{value:.{digits}f} {unit}"


def memory(used: float | None, total: float | None) -> str:
    """
    >>> memory(10 << 30, 40 << 30), memory(None, 40 << 30)
    ('10.0 of 40.0 GiB', '-')
    """
    if used is None:
        return "-"
    return f"{used / GIB:.1f} of {total / GIB:.1f} GiB" if total else f"{used / GIB:.1f} GiB"


def duration(seconds: float) -> str:
    """
    >>> duration(4.2), duration(75), duration(3700)
    ('4 s', '1 min 15 s', '1 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


# --- a sample -------------------------------------------------------------------------------------

Cell = tuple[str, str]
"""What one GPU has in a column, and its role."""


def cells(gpu: GpuSample) -> dict[str, Cell]:
    """A GPU of a sample, by column. What matters most stands first: a narrow terminal shows no more
    of a line than fits."""
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    full = used is not None and total and used / total * 100 > MEMORY_HIGH
    hot = gpu.temperature_celsius is not None and gpu.temperature_celsius > HOT
    watts, limit = measured(gpu.power_watts, "W"), gpu.power_limit_watts
    held = " ".join(one for one in gpu.throttle_reasons or () if one != "gpu_idle")
    return {
        "GPU": (str(gpu.index), ""),
        "util": ("lost", RED) if gpu.lost else (measured(gpu.utilization_percent, "%"), ""),
        "memory": (memory(used, total), YELLOW if full else ""),
        "heat": (measured(gpu.temperature_celsius, "°C"), RED if hot else ""),
        "power": (watts if limit is None else f"{watts.split()[0]}/{limit:.0f} W", ""),
        "SM clock": (measured(gpu.clock_sm_mhz, "MHz"), ""),
        "held down by": (held or gpu.problem or "", YELLOW),
        "name": (gpu.name or "-", ""),
    }


def tree_line(tree: TreeSample) -> str:
    return f"command  CPU {tree.cpu_percent:.0f} %, memory {tree.memory_bytes / GIB:.1f} GiB"


def once(sample: Sample) -> Screen:
    """One sample as a table: the GPUs, and their processes, the heaviest first."""
    rows = [cells(gpu) for gpu in sample.gpus]
    head = tuple(rows[0]) if rows else ("GPU",)
    pairs = [(str(gpu.index), one) for gpu in sample.gpus for one in gpu.processes or ()]
    pairs.sort(key=lambda pair: -(pair[1].memory_bytes or 0))
    users = [
        (
            *(label, str(one.pid), memory(one.memory_bytes, None), measured(one.sm_percent, "%")),
            *(one.name or "(name hidden)", ""),
        )
        for label, one in pairs
    ]
    below = table(("GPU", "PID", "memory", "SM", "name", ""), users, left=(0, 4)) if users else []
    return Screen((*table(head, [[*row.values()] for row in rows], left=(0, 6, 7)), *below))


# --- the live screen ------------------------------------------------------------------------------


@contextmanager
def live_screen(*, color: bool) -> Iterator[Live]:
    """The terminal's other screen, which is given back at the end."""
    from rich.console import Console
    from rich.live import Live

    live = Live(
        "waiting for the first measurement",
        console=Console(highlight=False, markup=False, emoji=False, no_color=not color),
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        yield live


def draw(live: Live, sample: Sample) -> None:
    """Show a sample; of the rows no more is shown than fits."""
    from rich.text import Text

    when = f"  {sample.at[11:19]}  {duration(sample.seconds)}  Ctrl-C ends it, with the verdict"
    above = [Row(("gpusetup monitor", HEADING), (when, DIM))]
    above += [Row(tree_line(sample.tree))] if sample.tree is not None else []
    rich = live.console
    shown = Screen((*above, *once(sample).lines)).shown(width=rich.width, colour=not rich.no_color)
    live.update(Text.from_ansi(shown, no_wrap=True, overflow="ellipsis"), refresh=True)


# --- the end --------------------------------------------------------------------------------------

FIGURES = (
    ("utilisation", "utilization_percent", "%", 1, 0),
    ("memory", "memory_used_bytes", "GiB", GIB, 1),
    ("temperature", "temperature_celsius", "°C", 1, 0),
    ("power", "power_watts", "W", 1, 0),
    ("SM clock", "clock_sm_mhz", "MHz", 1, 0),
)
"""What a spread is called, its field of a GPU, its unit, and how it is shown."""


def spreads(gpu: GpuSummary) -> Iterator[str]:
    """The figures of a GPU, below its name."""
    total, rows = gpu.memory_total_bytes, []
    for name, field, unit, scale, digits in FIGURES:
        if spread := getattr(gpu, field):
            values = (spread.mean, spread.p5, spread.p95, spread.peak)
            of_all = f" of {total / GIB:.1f} GiB" if total and name == "memory" else ""
            shown = (measured(value / scale, unit, digits) for value in values)
            rows.append((f"{name}{of_all}", *shown))
    yield from ("", heading(f"GPU {gpu.index} {gpu.name or ''}".rstrip()))
    yield from table(("", "mean", "p5", "p95", "peak"), rows)
    held = [f"{k} {v * 100:.0f} %" for k, v in gpu.throttled.items() if k != "gpu_idle"]
    yield from facts({"held down by": ", ".join(held)})


def summary_text(summary: Summary) -> Screen:
    """The end of a run: the figures, the verdict with its evidence, and what to do."""
    source = f" by {summary.source}" if summary.source else ""
    count = plural(summary.samples, "sample")
    lines: list[str] = [f"Watched {duration(summary.seconds)}, {count}{source}"]
    for gpu in summary.gpus:
        lines += spreads(gpu)
    return Screen((*lines, "", *verdict_lines(summary)))


def verdict_lines(summary: Summary) -> Iterator[Row]:
    style = GOOD if summary.verdict == "good" else WARNING
    yield Row((f"Verdict: {summary.verdict or 'none'}", style))
    yield Row(f"  {summary.evidence}", hang=2)
    if summary.next is not None:
        yield Row(f"  next: {summary.next.text}", hang=8)
        if summary.next.command:
            yield command(summary.next.command, 8)
    if summary.advice:
        yield Row("  in this order:")
        yield from (Row(f"    {n}. {line}", hang=7) for n, line in enumerate(summary.advice, 1))
    yield from (Row("  ", ("note", HEADING), f": {note}", hang=4) for note in summary.notes)
