"""Shows the monitor's samples and summaries: a table, the live screen, and the summary at the
end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from gpusetup.model.units import GIB
from gpusetup.monitor.documents import GpuSample, GpuSummary, HostSample, Sample, Spread, Summary
from gpusetup.render.screen import (
    DIM,
    GOOD,
    HEADING,
    RED,
    WARNING,
    YELLOW,
    Part,
    Screen,
    ScreenLine,
    command,
    facts,
    heading,
    plural,
    table,
)

UNKNOWN = "-"


def measured(value: float | None, unit: str, digits: int = 0, *, scale: float = 1) -> str:
    """A value with its unit, or a dash if it is None. `scale` is how much of the value one unit is.

    >>> measured(31.26, "W", 1), measured(2e9, "MB", scale=1e6), measured(None, "W")
    ('31.3 W', '2000 MB', '-')
    """
    if value is None:
        return UNKNOWN
    return f"{value / scale:.{digits}f} {unit}"


def memory(used_bytes: float | None, total_bytes: float | None) -> str:
    """The memory in use, with the total if it is known, as text in GiB; a dash if it is unknown.

    >>> memory(10 << 30, 40 << 30), memory(None, 40 << 30)
    ('10.0 of 40.0 GiB', '-')
    """
    if used_bytes is None:
        return UNKNOWN
    used_gib = used_bytes / GIB
    if not total_bytes:
        return f"{used_gib:.1f} GiB"
    return f"{used_gib:.1f} of {total_bytes / GIB:.1f} GiB"


def duration(seconds: float) -> str:
    """A duration as text in its two largest units.

    >>> duration(4.2), duration(75), duration(3700)
    ('4 s', '1 min 15 s', '1 h 1 min')
    """
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {seconds_left} s" if minutes else f"{seconds_left} s"


# --- a sample -------------------------------------------------------------------------------------


TITLES = ("GPU", "util", "memory", "temp", "power", "SM clock", "limited by", "name")
"""The most important columns come first, because a narrow terminal cuts off the end of the row."""
WORDS = (TITLES.index("GPU"), TITLES.index("limited by"), TITLES.index("name"))
"""The columns that are left-aligned, like words."""
IDLE = "gpu_idle"
"""The throttle reason of an idle GPU, whose low clocks mean nothing."""


def cells(gpu: GpuSample) -> tuple[str | Part, ...]:
    """A GPU's row in the table of a sample, in the order of TITLES."""
    power = measured(gpu.power_watts, "W")
    if gpu.power_limit_watts is not None:
        power = f"{power.removesuffix(' W')}/{gpu.power_limit_watts:.0f} W"
    reasons = [reason for reason in gpu.throttle_reasons or () if reason != IDLE]
    return (
        str(gpu.index),
        ("lost", RED) if gpu.lost else measured(gpu.utilization_percent, "%"),
        memory(gpu.memory_used_bytes, gpu.memory_total_bytes),
        measured(gpu.temperature_celsius, "°C"),
        power,
        measured(gpu.clock_sm_mhz, "MHz"),
        (" ".join(reasons) or gpu.problem or "", YELLOW),
        gpu.name or UNKNOWN,
    )


def host_line(host: HostSample) -> str:
    """The line about the machine: CPU, memory, disk and network."""
    megabytes = partial(measured, unit="MB/s", digits=1, scale=1e6)
    cores = f" of {plural(host.cores, 'core')}" if host.cores else ""
    parts = (
        f"CPU {measured(host.cpu_percent, '%')}{cores}",
        f"memory {memory(host.memory_used_bytes, host.memory_total_bytes)}",
        f"disk {megabytes(host.disk_read_bytes_per_second)} read",
        f"{megabytes(host.disk_write_bytes_per_second)} written",
        f"network {megabytes(host.network_receive_bytes_per_second)} received",
    )
    return f"machine  {', '.join(parts)}"


def once(sample: Sample) -> Screen:
    """The screen of one sample: a table of the GPUs; without any, the line about the machine."""
    if not sample.gpus:
        return Screen([host_line(sample.host)] if sample.host else [])
    return Screen(table(TITLES, map(cells, sample.gpus), left=WORDS))


# --- the live screen ------------------------------------------------------------------------------


@contextmanager
def live_screen(*, color: bool) -> Iterator[Callable[[Sample], None]]:
    """During this block, use the terminal's alternate screen, and yield a function that shows a
    sample there; anything that does not fit is cut off."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False, no_color=not color)
    with Live(
        "waiting for the first measurement",
        console=console,
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as live:

        def draw(sample: Sample) -> None:
            # `at` is a time such as 2026-11-26T10:15:00Z.
            times = f"  {sample.at[11:19]}  {duration(sample.seconds)}"
            status = f"{times}  Ctrl-C stops and shows the verdict"
            title = ScreenLine(("gpusetup monitor", HEADING), (status, DIM))
            screen = Screen((title, *once(sample).lines))
            text = screen.for_terminal(width=console.width, colour=color)
            live.update(Text.from_ansi(text, no_wrap=True, overflow="ellipsis"), refresh=True)

        yield draw


# --- the end of a run -----------------------------------------------------------------------------


FIGURES = (
    ("utilization_percent", "utilisation", "%", 1, 0),
    ("memory_used_bytes", "memory", "GiB", GIB, 1),
    ("temperature_celsius", "temperature", "°C", 1, 0),
    ("power_watts", "power", "W", 1, 0),
    ("clock_sm_mhz", "SM clock", "MHz", 1, 0),
)
"""The figures of a summary that the final table shows: the field, its label, the unit, how much of
the field's unit that is, and the decimals."""


def gpu_table(gpu: GpuSummary) -> Iterator[str | ScreenLine]:
    """Yields the final table of a GPU, with the share of the working samples in which each throttle
    reason was active."""
    total = f", {gpu.memory_total_bytes / GIB:.1f} GiB" if gpu.memory_total_bytes else ""
    yield from ("", heading(f"GPU {gpu.index} {gpu.name or ''}".rstrip() + total))
    # A single sample has no course.
    columns = ("mean", "p5", "p95", "peak") if gpu.samples > 1 else ("value",)
    rows = []
    for field, label, unit, scale, digits in FIGURES:
        spread: Spread | None = getattr(gpu, field)
        # Not every source tells every figure.
        if spread is not None:
            values = (spread.mean, spread.p5, spread.p95, spread.peak)[: len(columns)]
            cells_of_row = [measured(value, unit, digits, scale=scale) for value in values]
            rows.append((label, *cells_of_row))
    yield from table(("", *columns), rows)
    shares = {name: share for name, share in gpu.throttled.items() if name != IDLE}
    reasons = (f"{name} {share * 100:.0f} %" for name, share in shares.items())
    yield from facts({"limited by": ", ".join(reasons)})


def summary_text(summary: Summary) -> Screen:
    """The screen at the end of a run: figures, the verdict with its evidence, and what to do."""
    time, samples = duration(summary.seconds), plural(summary.samples, "sample")
    watched = f"Watched {time}, {samples}"
    if summary.source == "machine":
        watched += " of this machine, without a GPU"
    # The names of the logs begin so; the live source is `nvidia-smi`.
    elif (summary.source or "").startswith("nvidia-smi "):
        course = f" over {time}" if summary.seconds else ""
        watched = f"Read {samples}{course} ({summary.source})"
    elif summary.source:
        watched += f" by {summary.source}"
    if summary.not_watched:
        # Why no better source was used.
        watched += f" ({summary.not_watched})"
    lines: list[str | ScreenLine] = [watched]
    epochs = summary.epochs
    if epochs is not None:
        lines.append(f"epochs   {epochs.seconds:.3g} s per epoch ({epochs.epochs:g} measured)")

    for gpu in summary.gpus:
        lines += gpu_table(gpu)
    # If there is a GPU, the verdict already mentions what matters about the rest of the machine.
    if not summary.gpus and summary.machine is not None:
        lines.append(host_line(summary.machine))

    lines.append("")
    lines += verdict_lines(summary)
    return Screen(lines)


def verdict_lines(summary: Summary) -> Iterator[ScreenLine]:
    """Yields the verdict, its evidence, the next step, the guide's advice in order, and notes."""
    role = GOOD if summary.verdict == "good" else WARNING
    yield ScreenLine((f"Verdict: {summary.verdict or 'none'}", role))
    yield ScreenLine(f"  {summary.evidence}", hang=2)

    if summary.next is not None:
        yield ScreenLine(f"  next: {summary.next.text}", hang=8)
        if summary.next.command:
            yield command(summary.next.command, 8)

    if summary.advice:
        yield ScreenLine("  or try, in this order:")
        for number, advice in enumerate(summary.advice, 1):
            yield ScreenLine(f"    {number}. {advice}", hang=7)

    for note in summary.notes:
        yield ScreenLine("  ", ("note", HEADING), f": {note}", hang=4)
