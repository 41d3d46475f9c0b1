"""The monitor's samples and summaries as plain text. Needs nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.model.units import GIB
from gpusetup.monitor.marks import HOT, MEMORY_HIGH
from gpusetup.monitor.seen import loaders_in_words
from gpusetup.monitor.values import (
    GpuSample,
    GpuSummary,
    Sample,
    Spread,
    Summary,
    TreeSample,
)
from gpusetup.render.language import (
    GOOD,
    HEADING,
    WARNING,
    Row,
    Screen,
    command,
    heading,
    labelled,
    plain,
    table,
)

HEAD = ("", "mean", "p5", "p95", "peak")


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


Cell = tuple[str, str]
"""What one GPU has in a column, and its role."""
WIDTHS = {"util": 5, "memory": 18, "heat": 6, "power": 9, "SM clock": 9, "held down by": 0}
"""Columns of a line, each this wide."""


def cells(gpu: GpuSample) -> dict[str, Cell]:
    """A GPU of a sample, by column."""
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    full = used is not None and total and used / total * 100 > MEMORY_HIGH
    hot = gpu.temperature_celsius is not None and gpu.temperature_celsius > HOT
    watts, limit = measured(gpu.power_watts, "W"), gpu.power_limit_watts
    return {
        "GPU": (gpu.label, ""),
        "name": (plain(gpu.name or "-"), ""),
        "util": ("lost", "red") if gpu.lost else (measured(gpu.utilization_percent, "%"), ""),
        "memory": (memory(used, total), "yellow" if full else ""),
        "heat": (measured(gpu.temperature_celsius, "°C"), "red" if hot else ""),
        "power": (watts if limit is None else f"{watts.split()[0]}/{limit:.0f} W", ""),
        "SM clock": (measured(gpu.clock_sm_mhz, "MHz"), ""),
        "held down by": (brakes(gpu), "yellow"),
    }


def sample_lines(sample: Sample) -> str:
    """One line a GPU, and one for the command: what stands where there is no terminal."""
    rows = [gpu_line(gpu) for gpu in sample.gpus]
    rows += [tree_line(sample.tree)] if sample.tree is not None else []
    return "".join(f"{sample.at[11:19]}  {row}\n" for row in rows)


def gpu_line(gpu: GpuSample) -> str:
    """
    >>> gpu_line(GpuSample(index=1, lost=True))
    'GPU 1  lost'
    """
    if gpu.lost:
        return f"GPU {gpu.label}  lost"
    known = cells(gpu)
    told = (f"{known[name][0]:>{width}}" for name, width in WIDTHS.items())
    return f"GPU {gpu.label}  {'  '.join(told)}".rstrip()


def brakes(gpu: GpuSample) -> str:
    """The throttle reasons; that it idles is none."""
    told = [reason for reason in gpu.throttle_reasons or () if reason != "gpu_idle"]
    return plain(" ".join(told) or (gpu.problem or ""))


def tree_line(tree: TreeSample) -> str:
    parts = [f"CPU {tree.cpu_percent:.0f} %", f"memory {tree.memory_bytes / GIB:.1f} GiB"]
    if tree.read_bytes_per_second:
        parts.append(f"disk {tree.read_bytes_per_second / 1e6:.0f} MB/s")
    if tree.loader_workers:
        each = tree.loader_cpu_percent / tree.loader_workers
        parts.append(f"{loaders_in_words(tree.loader_workers)} at {each:.0f} %")
    return f"command  {', '.join(parts)}"


def summary_text(summary: Summary) -> Screen:
    """The end of a run: the figures, the verdict with its evidence, and what to do."""
    return Screen((*figures(summary), *verdict_lines(summary)))


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


def figures(summary: Summary) -> Iterator[str]:
    source = f" by {summary.source}" if summary.source else ""
    count = f"{summary.samples} sample{'' if summary.samples == 1 else 's'}"
    yield f"Watched {duration(summary.seconds)}, {count}{source}"
    for gpu in summary.gpus:
        yield ""
        yield from spread_table(f"GPU {label(gpu)} {gpu.name or ''}".rstrip(), gpu_rows(gpu))
    yield ""


def label(gpu: GpuSummary) -> str:
    return str(gpu.index) if gpu.mig_index is None else f"{gpu.index}:{gpu.mig_index}"


def gpu_rows(gpu: GpuSummary) -> list[tuple[str, ...]]:
    of = f" of {gpu.memory_total_bytes / GIB:.1f} GiB" if gpu.memory_total_bytes else ""
    rows = [
        spread_row("utilisation", gpu.utilization_percent, "%"),
        spread_row(f"memory{of}", gpu.memory_used_bytes, "GiB", GIB, 1),
        spread_row("temperature", gpu.temperature_celsius, "°C"),
        spread_row("power", gpu.power_watts, "W"),
        spread_row("SM clock", gpu.clock_sm_mhz, "MHz"),
    ]
    held = [f"{plain(k)} {v * 100:.0f} %" for k, v in gpu.throttled.items() if k != "gpu_idle"]
    told = [row for row in rows if row]
    return [*told, ("held down by", ", ".join(held))] if held else told


def spread_row(
    name: str, spread: Spread | None, unit: str, scale: float = 1.0, digits: int = 0
) -> tuple[str, ...]:
    """() where nothing told it."""
    if spread is None:
        return ()
    values = (spread.mean, spread.p5, spread.p95, spread.peak)
    return (name, *(measured(value / scale, unit, digits) for value in values))


def spread_table(name: str, rows: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Rows of figures below what they are of; a row of two cells is a label and words."""
    yield heading(name)
    yield from table(HEAD, [row for row in rows if len(row) == len(HEAD)])
    yield from (labelled(row[0], row[1], 14) for row in rows if len(row) != len(HEAD))


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
