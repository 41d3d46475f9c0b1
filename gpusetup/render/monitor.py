"""The monitor's samples and summaries: one table, the live screen, the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpusetup.model.units import GIB
from gpusetup.monitor.documents import (
    EpochTimes,
    GpuSample,
    GpuSummary,
    HostSample,
    HostSummary,
    Sample,
    Spread,
    Summary,
    TreeSample,
    TreeSummary,
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


def rate(bytes_per_second: float | None) -> str:
    """
    >>> rate(2.5e7), rate(None)
    ('25.0 MB/s', '-')
    """
    return measured(None if bytes_per_second is None else bytes_per_second / 1e6, "MB/s", 1)


def cells(gpu: GpuSample) -> dict[str, Cell]:
    """A GPU of a sample, by column. What matters most stands first: a narrow terminal shows no more
    of a line than fits."""
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    full = used is not None and total and used / total * 100 > MEMORY_HIGH
    shared = " (shared)" if gpu.memory_is_unified else ""
    hot = gpu.temperature_celsius is not None and gpu.temperature_celsius > HOT
    watts, limit = measured(gpu.power_watts, "W"), gpu.power_limit_watts
    held = " ".join(one for one in gpu.throttle_reasons or () if one != "gpu_idle")
    return {
        "GPU": (str(gpu.index), ""),
        "util": ("lost", RED) if gpu.lost else (measured(gpu.utilization_percent, "%"), ""),
        "memory": (memory(used, total) + shared, YELLOW if full else ""),
        "heat": (measured(gpu.temperature_celsius, "°C"), RED if hot else ""),
        "power": (watts if limit is None else f"{watts.split()[0]}/{limit:.0f} W", ""),
        "SM clock": (measured(gpu.clock_sm_mhz, "MHz"), ""),
        "held down by": (held or gpu.problem or "", YELLOW),
        "name": (gpu.name or "-", ""),
    }


def tree_line(tree: TreeSample) -> str:
    """What the command uses: `command  CPU 230 %, memory 6.0 GiB, 2 loader workers`."""
    parts = [f"CPU {tree.cpu_percent:.0f} %", f"memory {tree.memory_bytes / GIB:.1f} GiB"]
    if tree.loader_workers:
        parts.append(plural(tree.loader_workers, "loader worker"))
    return f"command  {', '.join(parts)}"


def host_line(host: HostSample) -> str:
    """What the machine does: CPU, memory, disk and network."""
    cpu = "-" if host.cpu_percent is None else f"{host.cpu_percent:.0f} %"
    cores = f" of {plural(host.cores, 'core')}" if host.cores else ""
    used = memory(host.memory_used_bytes, host.memory_total_bytes)
    disk = f"disk {rate(host.disk_read_bytes_per_second)} read"
    written = f"{rate(host.disk_write_bytes_per_second)} written"
    network = f"network {rate(host.network_receive_bytes_per_second)} received"
    return f"machine  CPU {cpu}{cores}, memory {used}, {disk}, {written}, {network}"


def once(sample: Sample) -> Screen:
    """One sample as a table: the GPUs, and their processes, the heaviest first.

    Without a GPU it is the machine's line.
    """
    rows = [cells(gpu) for gpu in sample.gpus]
    if not rows:
        return Screen((Row(host_line(sample.host)),) if sample.host else ())
    head = tuple(rows[0])
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

Figure = tuple[str, Spread | None, str, float, int]
"""What a spread is called, its unit, what one unit is, and the digits that are shown."""


def gpu_figures(gpu: GpuSummary) -> tuple[Figure, ...]:
    total = gpu.memory_total_bytes
    of_all = f" of {total / GIB:.1f} GiB" if total else ""
    return (
        ("utilisation", gpu.utilization_percent, "%", 1, 0),
        (f"memory{of_all}", gpu.memory_used_bytes, "GiB", GIB, 1),
        ("temperature", gpu.temperature_celsius, "°C", 1, 0),
        ("power", gpu.power_watts, "W", 1, 0),
        ("SM clock", gpu.clock_sm_mhz, "MHz", 1, 0),
    )


def tree_figures(tree: TreeSummary) -> tuple[Figure, ...]:
    cores = f" of {tree.cores:g} cores" if tree.cores else ""
    return (
        (f"CPU{cores}", tree.cpu_percent, "%", 1, 0),
        ("busiest process", tree.busiest_cpu_percent, "%", 1, 0),
        ("memory", tree.memory_bytes, "GiB", GIB, 1),
        ("loader workers", tree.loader_workers, "", 1, 0),
        ("CPU of the loader workers", tree.loader_cpu_percent, "%", 1, 0),
        ("read from disk", tree.read_bytes_per_second, "MB/s", 1e6, 1),
    )


def host_figures(host: HostSummary) -> tuple[Figure, ...]:
    total = host.memory_total_bytes
    cores = f" of {plural(host.cores, 'core')}" if host.cores else ""
    of_all = f" of {total / GIB:.1f} GiB" if total else ""
    return (
        (f"CPU{cores}", host.cpu_percent, "%", 1, 0),
        (f"memory{of_all}", host.memory_used_bytes, "GiB", GIB, 1),
        ("read from disk", host.disk_read_bytes_per_second, "MB/s", 1e6, 1),
        ("written to disk", host.disk_write_bytes_per_second, "MB/s", 1e6, 1),
        ("received over the network", host.network_receive_bytes_per_second, "MB/s", 1e6, 1),
    )


def spread_rows(figures: Iterable[Figure]) -> Iterator[tuple[str, ...]]:
    """Mean, p5, p95 and peak of each figure that is known."""
    for name, spread, unit, scale, digits in figures:
        if spread is not None:
            values = [value / scale for value in (spread.mean, spread.p5, spread.p95, spread.peak)]
            yield (name, *(measured(value, unit, digits).strip() for value in values))


def spread_table(title: str, figures: Iterable[Figure]) -> Iterator[str]:
    yield from ("", heading(title))
    yield from table(("", "mean", "p5", "p95", "peak"), list(spread_rows(figures)))


def spreads(gpu: GpuSummary) -> Iterator[str]:
    """The figures of a GPU, below its name."""
    yield from spread_table(f"GPU {gpu.index} {gpu.name or ''}".rstrip(), gpu_figures(gpu))
    reasons = []
    for name, share in gpu.throttled.items():
        if name != "gpu_idle":
            reasons.append(f"{name} {share * 100:.0f} %")
    yield from facts({"held down by": ", ".join(reasons)})


def first_line(summary: Summary) -> str:
    """How long was watched, by what, and why not by more."""
    line = f"Watched {duration(summary.seconds)}, {plural(summary.samples, 'sample')}"
    if summary.source == "machine":
        line += ": the machine without a GPU"
    elif summary.source:
        line += f" by {summary.source}"
    return f"{line} ({summary.not_watched})" if summary.not_watched else line


def epochs_line(epochs: EpochTimes) -> str:
    """The seconds of an epoch: `3.0 s an epoch (2.9 to 3.4 s, 4 epochs measured)`."""
    measured_epochs = f"{epochs.epochs:g} epoch{'' if epochs.epochs == 1 else 's'} measured"
    fastest, slowest = epochs.fastest_seconds, epochs.slowest_seconds
    return (
        f"epochs   {epochs.seconds:.3g} s an epoch ({fastest:.3g} to {slowest:.3g} s, "
        f"{measured_epochs})"
    )


def summary_text(summary: Summary) -> Screen:
    """The end of a run: the figures, the verdict with its evidence, and what to do."""
    lines: list[str] = [first_line(summary)]
    if summary.epochs is not None:
        lines.append(epochs_line(summary.epochs))
    for gpu in summary.gpus:
        lines += spreads(gpu)
    if not summary.gpus and summary.tree is not None:
        lines += spread_table("Command", tree_figures(summary.tree))
    if not summary.gpus and summary.host is not None:
        lines += spread_table("Machine", host_figures(summary.host))
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
