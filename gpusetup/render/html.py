"""A screen as HTML, and the page of the monitor: its screen, and charts that need no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpusetup.monitor.tally import Tally
from gpusetup.monitor.values import Summary
from gpusetup.render.language import plain
from gpusetup.render.monitor import duration, label, summary_text


def drawn(text: str) -> str:
    """A screen as one block; a line that is too long goes on, and foreign text is no markup.

    >>> drawn("a <b> & c")
    '<pre style="white-space:pre-wrap">a &lt;b&gt; &amp; c</pre>'
    """
    return f'<pre style="white-space:pre-wrap">{escape(plain(text))}</pre>'


Charts = tuple[tuple[str, str, str, float], ...]
"""Title, field of a sample, unit, and how high the axis reaches at least."""
GPU_CHARTS: Charts = (
    ("Utilisation", "utilization_percent", "%", 100),
    ("Memory", "memory_percent", "%", 100),
    ("Temperature", "temperature_celsius", "°C", 90),
    ("Power", "power_watts", "W", 50),
    ("SM clock", "clock_sm_mhz", "MHz", 500),
)
TREE_CHARTS: Charts = (
    ("CPU of the command (a core is 100 %)", "cpu_percent", "%", 100),
    ("CPU of its loader workers", "loader_cpu_percent", "%", 100),
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
path{{fill:none;stroke:#1f6feb;stroke-width:1.8;vector-effect:non-scaling-stroke}}
</style>
</head>
<body>
{body}
</body>
</html>
"""

Points = Sequence[tuple[float, float | None]]
"""Seconds since the start, and what was told then."""


def page(summary: Summary, tally: Tally) -> str:
    """The whole page; every foreign text in it is escaped."""
    parts = [drawn(summary_text(summary))]
    for gpu in summary.gpus:
        rows = [(row.seconds, row.gpu) for row in tally.gpus[label(gpu)].kept.all()]
        parts.append(_charts(f"GPU {label(gpu)} {gpu.name or ''}", GPU_CHARTS, rows))
    if summary.tree is not None:
        told = [(one.seconds, one.tree) for one in tally.kept.all() if one.tree is not None]
        parts.append(_charts("Command", TREE_CHARTS, told))
    return PAGE.format(body="\n".join(parts))


def _charts(title: str, charts: Charts, told: Sequence[tuple[float, object]]) -> str:
    drawings = []
    for name, field, unit, least in charts:
        points = [(at, getattr(row, field)) for at, row in told]
        values = [value for _, value in points if value is not None]
        top, end = max((least, *values)), max(*(at for at, _ in told), 1.0)
        caption = f"{name}, 0 to {top:.0f} {unit}, {duration(end)}"
        # Drawn in the units of the values: from 0 to the end, and from 0 to the top.
        chart = (
            f'<figure><figcaption>{caption}</figcaption><svg viewBox="0 0 {end:g} {top:g}" '
            f'preserveAspectRatio="none" role="img" aria-label="{caption}">'
            f'<g transform="translate(0 {top:g}) scale(1 -1)">'
            f'<path d="{path(points)}"/></g></svg></figure>'
        )
        drawings += [chart] if values else []
    return f"<h2>{escape(plain(title))}</h2>\n<div>{''.join(drawings)}</div>"


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
