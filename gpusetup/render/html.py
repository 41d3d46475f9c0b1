"""A screen as HTML, and the page of the monitor: its screen, and charts that need no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpusetup.model.frozen import Frozen
from gpusetup.monitor.marks import HOT, MEMORY_HIGH, MEMORY_LOW
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.values import GpuSample, Summary, TreeSample
from gpusetup.render.language import plain
from gpusetup.render.monitor import duration, label, summary_text


def drawn(text: str) -> str:
    """A screen as one block; a line that is too long goes on, and foreign text is no markup.

    >>> drawn("a <b> & c")
    '<pre style="white-space:pre-wrap">a &lt;b&gt; &amp; c</pre>'
    """
    return f'<pre style="white-space:pre-wrap">{escape(plain(text))}</pre>'


class Chart(Frozen):
    """One figure of a sample. `band`: the marks between which it should be."""

    title: str
    field: str
    unit: str
    least_top: float
    """The axis reaches at least so high."""
    band: tuple[float, float] | None = None


GPU_CHARTS = (
    Chart(title="Utilisation", field="utilization_percent", unit="%", least_top=100),
    Chart(
        title="Memory",
        field="memory_percent",
        unit="%",
        least_top=100,
        band=(MEMORY_LOW, MEMORY_HIGH),
    ),
    Chart(
        title="Temperature", field="temperature_celsius", unit="°C", least_top=90, band=(70, HOT)
    ),
    Chart(title="Power", field="power_watts", unit="W", least_top=50),
    Chart(title="SM clock", field="clock_sm_mhz", unit="MHz", least_top=500),
)
TREE_CHARTS = (
    Chart(
        title="CPU of the command (a core is 100 %)", field="cpu_percent", unit="%", least_top=100
    ),
    Chart(title="CPU of its loader workers", field="loader_cpu_percent", unit="%", least_top=100),
)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpusetup monitor</title>
<style>
:root{{color-scheme:light dark}}
body{{max-width:1200px;margin:0 auto;padding:24px;font:15px/1.5 system-ui,sans-serif}}
div{{display:grid;gap:16px 28px;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr))}}
figure{{margin:0}}svg{{width:100%;height:150px;border:solid #8886;border-width:0 0 1px 1px}}
.line{{fill:none;stroke:#1f6feb;stroke-width:1.8;vector-effect:non-scaling-stroke}}
.band{{fill:#2da44e40}}
</style>
</head>
<body>
{screen}
{charts}</body>
</html>
"""


Points = Sequence[tuple[float, float | None]]
"""Seconds since the start, and what was told then."""


def page(summary: Summary, tally: Tally) -> str:
    """The whole page; every foreign text in it is escaped."""
    parts = [
        _charts(f"GPU {label(gpu)} {gpu.name or ''}", GPU_CHARTS,
                [(row.seconds, row.gpu) for row in tally.gpus[label(gpu)].kept.all()])
        for gpu in summary.gpus
    ]  # fmt: skip
    if summary.tree is not None:
        told = [(one.seconds, one.tree) for one in tally.kept.all() if one.tree is not None]
        parts.append(_charts("Command", TREE_CHARTS, told))
    return PAGE.format(screen=drawn(summary_text(summary)), charts="".join(parts))


def _charts(
    title: str, charts: Sequence[Chart], told: Sequence[tuple[float, GpuSample | TreeSample]]
) -> str:
    series = [(one, [(at, getattr(row, one.field)) for at, row in told]) for one in charts]
    drawings = "".join(_chart(chart, points) for chart, points in series if _values(points))
    return f"<h2>{escape(plain(title))}</h2>\n<div>\n{drawings}</div>\n"


def _values(points: Points) -> list[float]:
    return [value for _, value in points if value is not None]


def _chart(chart: Chart, points: Points) -> str:
    """Drawn in the units of the values: from 0 to the end, and from 0 to the top."""
    top = max((chart.least_top, *_values(points)))
    end = max(*(at for at, _ in points), 1.0)
    title = f"{chart.title}, 0 to {top:.0f} {chart.unit}, {duration(end)}"
    low, high = chart.band or (0, 0)
    return (
        f'<figure><figcaption>{title}</figcaption><svg viewBox="0 0 {end:g} {top:g}" '
        f'preserveAspectRatio="none" role="img" aria-label="{title}">'
        f'<g transform="translate(0 {top:g}) scale(1 -1)">'
        f'<rect class="band" y="{low:g}" width="{end:g}" height="{high - low:g}"/>'
        f'<path class="line" d="{path(points)}"/></g></svg></figure>\n'
    )


def path(points: Points) -> str:
    """An SVG path; where nothing was told it is broken.

    >>> path([(0, 0), (1, None), (2, 100)])
    'M0 0M2 100'
    """
    parts, letter = [], "M"
    for at, value in points:
        if value is not None:
            parts.append(f"{letter}{at:g} {value:g}")
        letter = "M" if value is None else "L"
    return "".join(parts)
