"""The monitor's page: one file with charts as inline SVG, which needs no network to open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from gpusetup.model.frozen import Frozen
from gpusetup.monitor.marks import HOT, MEMORY_HIGH, MEMORY_LOW
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.values import GpuSample, GpuSummary, Summary, TreeSample
from gpusetup.render.language import plain
from gpusetup.render.monitor import HEAD, duration, gpu_rows, label, tree_rows

LEFT, RIGHT, TOP, BOTTOM = 44, 8, 12, 24


class Box(Frozen):
    """A chart's size in its own units, which are pixels where there is room."""

    width: float
    height: float

    def x(self, seconds: float, end: float) -> float:
        return LEFT + seconds / end * (self.width - LEFT - RIGHT)

    def y(self, value: float, top: float) -> float:
        return TOP + (1 - value / top) * (self.height - TOP - BOTTOM)


BOX = Box(width=560, height=170)


Points = Sequence[tuple[float, float | None]]
"""Seconds since the start, and what was told then."""


class Chart(Frozen):
    """One figure of a sample. `band`: the marks between which it should be."""

    title: str
    field: str
    unit: str
    least_top: float
    """The axis reaches at least so high."""
    band: tuple[float, float] | None = None

    def points(self, times: Sequence[float], told: Sequence[GpuSample | TreeSample]) -> Points:
        return [(at, getattr(one, self.field)) for at, one in zip(times, told, strict=True)]


GPU_CHARTS = (
    Chart(title="Utilisation", field="utilization_percent", unit="%", least_top=100),
    Chart(title="Memory", field="memory_percent", unit="%", least_top=100,
          band=(MEMORY_LOW, MEMORY_HIGH)),
    Chart(title="Temperature", field="temperature_celsius", unit="°C", least_top=90,
          band=(70, HOT)),
    Chart(title="Power", field="power_watts", unit="W", least_top=50),
    Chart(title="SM clock", field="clock_sm_mhz", unit="MHz", least_top=500),
)  # fmt: skip
TREE_CHARTS = (
    Chart(title="CPU of the command (a core is 100 %)", field="cpu_percent", unit="%",
          least_top=100),
    Chart(title="CPU of its loader workers", field="loader_cpu_percent", unit="%", least_top=100),
)  # fmt: skip


def page(summary: Summary, tally: Tally) -> str:
    """The whole page; every foreign text in it is escaped."""
    title = f"gpusetup monitor: {summary.verdict or 'no verdict'}"
    body = "".join((*_head(summary), *_gpus(summary, tally), *_command(summary, tally)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{body}</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return escape(plain(text))


def _said(text: str) -> str:
    """As text, with what stands in backticks as code.

    >>> _said("run `a < b`")
    'run <code>a &lt; b</code>'
    """
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", _text(text))


def _head(summary: Summary) -> Iterator[str]:
    verdict = summary.verdict or "no verdict"
    kind = "good" if verdict == "good" else "none" if summary.verdict is None else "bad"
    yield f'<header><p class="verdict {kind}">{_text(verdict)}</p>\n'
    yield f"<h1>{_text(summary.evidence)}</h1>\n"
    if summary.next is not None:
        command = f" <code>{_text(summary.next.command)}</code>" if summary.next.command else ""
        yield f'<p class="next"><b>Next:</b> {_text(summary.next.text)}{command}</p>\n'
    if summary.advice:
        yield f"<ol>{''.join(f'<li>{_said(line)}</li>' for line in summary.advice)}</ol>\n"
    if summary.notes:
        yield f"<ul>{''.join(f'<li>{_said(note)}</li>' for note in summary.notes)}</ul>\n"
    told = [f"{duration(summary.seconds)}, {summary.samples} samples"]
    told += [f"by {summary.source}"] if summary.source else []
    told += [" ".join(summary.command)] if summary.command else []
    told += [f"exit {summary.exit}"] if summary.exit is not None else []
    yield f'<p class="told">{_text(" · ".join(told))}</p></header>\n'


def _gpus(summary: Summary, tally: Tally) -> Iterator[str]:
    """Each GPU: its charts and figures."""
    for gpu in summary.gpus:
        rows = tally.gpus[label(gpu)].kept.all()
        times = [row.seconds for row in rows]
        yield f"<section><h2>GPU {_text(label(gpu))} {_text(gpu.name or '')}</h2>\n"
        yield from _charts(GPU_CHARTS, times, [row.gpu for row in rows])
        yield _table(gpu_rows(gpu))
        yield f"{_lost(gpu)}</section>\n"


def _lost(gpu: GpuSummary) -> str:
    return f"<p>Lost since {_text(gpu.lost_at)}.</p>" if gpu.lost_at else ""


def _command(summary: Summary, tally: Tally) -> Iterator[str]:
    if summary.tree is None:
        return
    told = [(one.seconds, one.tree) for one in tally.kept.all() if one.tree is not None]
    yield "<section><h2>Command</h2>\n"
    yield from _charts(TREE_CHARTS, [at for at, _ in told], [tree for _, tree in told])
    yield _table(tree_rows(summary.tree))
    yield "</section>\n"


def _charts(
    charts: Sequence[Chart], times: Sequence[float], told: Sequence[GpuSample | TreeSample]
) -> Iterator[str]:
    series = [(chart, chart.points(times, told)) for chart in charts]
    yield '<div class="charts">\n'
    yield from (_chart(chart, points) for chart, points in series if _values(points))
    yield "</div>\n"


def _values(points: Points) -> list[float]:
    return [value for _, value in points if value is not None]


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in HEAD)
    body = "".join(map(_row, rows))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>\n'


def _row(row: Sequence[str]) -> str:
    wide = f' colspan="{len(HEAD) - 1}"' if len(row) == 2 else ""
    cells = "".join(f"<td{wide}>{_text(cell)}</td>" for cell in row[1:])
    return f'<tr><th scope="row">{_text(row[0])}</th>{cells}</tr>'


# --- charts ---------------------------------------------------------------------------------------


def _chart(chart: Chart, points: Points) -> str:
    top = nice_top(max((chart.least_top, *_values(points))))
    end = max(*(at for at, _ in points), 1.0)
    title, line = f"{chart.title}, {chart.unit}", path(points, top, end)
    return (
        f"<figure><figcaption>{_text(title)}</figcaption>"
        f'<svg viewBox="0 0 {BOX.width:g} {BOX.height:g}" role="img" aria-label="{_text(title)}" '
        f'data-unit="{chart.unit}" data-top="{top:g}" data-end="{end:g}">'
        f'{_band(chart, top)}{"".join(_grid(top, end))}<path class="line" d="{line}"/>'
        f'<line class="cross" y1="{TOP}" y2="{BOX.height - BOTTOM:g}"/>'
        '<text class="read" y="10"></text></svg></figure>\n'
    )


def _band(chart: Chart, top: float) -> str:
    if chart.band is None:
        return ""
    low, high = (BOX.y(value, top) for value in chart.band)
    place = f'x="{LEFT}" y="{high:.1f}" width="{BOX.width - LEFT - RIGHT:g}"'
    return f'<rect class="band" {place} height="{low - high:.1f}"/>'


def _grid(top: float, end: float) -> Iterator[str]:
    right = BOX.width - RIGHT
    for part, anchor in ((0, "start"), (0.5, "middle"), (1, "end")):
        x, y = BOX.x(end * part, end), BOX.y(top * part, top)
        yield f'<line class="grid" x1="{LEFT}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * part:g}</text>'
        where = f'x="{x:.1f}" y="{BOX.height - 6:g}" text-anchor="{anchor}"'
        yield f"<text {where}>{duration(end * part)}</text>"


def path(points: Points, top: float, end: float) -> str:
    """An SVG path; where nothing was told it is broken.

    >>> path([(0, 0), (1, None), (2, 100)], 100, 2)
    'M44.0 146.0M552.0 12.0'
    """
    parts, broken = [], True
    for at, value in points:
        if value is None:
            broken = True
            continue
        letter = "M" if broken else "L"
        parts.append(f"{letter}{BOX.x(at, end):.1f} {BOX.y(value, top):.1f}")
        broken = False
    return "".join(parts)


def nice_top(value: float) -> float:
    """The next round number.

    >>> nice_top(100), nice_top(342), nice_top(1234)
    (100.0, 400.0, 1500.0)
    """
    size = 10.0 ** (len(str(int(value))) - 1)
    return next(size * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if value <= size * step)


STYLE = """
:root{--paper:#fff;--ink:#1c2430;--faint:#5d6b7c;--rule:#dde3ea;--line:#1f6feb;--band:#2da44e26;
--good:#1a7f37;--bad:#bc4c00;--none:#5d6b7c}
@media(prefers-color-scheme:dark){:root{--paper:#11161d;--ink:#e6edf3;--faint:#9aa7b4;--rule:#2b3440;
--line:#58a6ff;--band:#3fb95030;--good:#3fb950;--bad:#f0883e;--none:#9aa7b4}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1200px;margin:0 auto;padding:28px 24px 48px}
h1{font-size:22px;line-height:1.35;margin:8px 0 12px;font-weight:600}
h2{font-size:17px;margin:36px 0 12px;border-bottom:1px solid var(--rule);padding-bottom:6px}
.verdict{display:inline-block;margin:0;padding:3px 12px;border-radius:12px;color:#fff;
font-weight:600}
.good{background:var(--good)}.bad{background:var(--bad)}.none{background:var(--none)}
.told,figcaption,svg text{color:var(--faint);fill:var(--faint)}.told{overflow-wrap:anywhere}
code{background:var(--rule);padding:1px 6px;border-radius:4px;overflow-wrap:anywhere}
.charts{display:grid;gap:16px 28px;
grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr))}
.line{pointer-events:none}.wide{overflow-x:auto}
figure{margin:0}figcaption{font-size:13px;margin-bottom:2px}svg{width:100%;height:auto;display:block}
svg text{font-size:11px}.line{fill:none;stroke:var(--line);stroke-width:1.8;stroke-linejoin:round;
stroke-linecap:round}.grid{stroke:var(--rule)}.band{fill:var(--band)}
.cross{stroke:var(--faint);visibility:hidden}svg .read{fill:var(--ink);font-weight:600}
table{border-collapse:collapse;margin-top:14px;font-variant-numeric:tabular-nums}
th,td{padding:3px 18px 3px 0;text-align:right;white-space:nowrap}tbody th{font-weight:400;
text-align:left;color:var(--faint)}thead th{font-weight:600;font-size:13px}
@media(max-width:520px){main{padding:16px 14px 32px}h1{font-size:18px}th,td{padding:3px 10px 3px 0;
font-size:13px}svg text{font-size:13px}}
"""

SCRIPT = f"""
for (const svg of document.querySelectorAll("svg")) {{
  const d = svg.querySelector(".line").getAttribute("d");
  const points = [...d.matchAll(/[ML]([\\d.]+) ([\\d.]+)/g)].map(m => [+m[1], +m[2]]);
  const cross = svg.querySelector(".cross"), read = svg.querySelector(".read");
  const top = +svg.dataset.top, end = +svg.dataset.end;
  const wide = svg.viewBox.baseVal.width, high = svg.viewBox.baseVal.height;
  svg.addEventListener("pointermove", event => {{
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * wide;
    let best = points[0];
    for (const p of points) if (Math.abs(p[0] - x) < Math.abs(best[0] - x)) best = p;
    const value = (1 - (best[1] - {TOP}) / (high - {TOP + BOTTOM})) * top;
    const second = (best[0] - {LEFT}) / (wide - {LEFT + RIGHT}) * end;
    cross.setAttribute("x1", best[0]); cross.setAttribute("x2", best[0]);
    cross.style.visibility = "visible";
    read.textContent = value.toFixed(value < 10 ? 1 : 0) + " " + svg.dataset.unit +
      " at " + second.toFixed(0) + " s";
    const right = best[0] > wide / 2;
    read.setAttribute("x", best[0] + (right ? -6 : 6));
    read.setAttribute("text-anchor", right ? "end" : "start");
  }});
  svg.addEventListener("pointerleave", () => {{
    cross.style.visibility = "hidden"; read.textContent = "";
  }});
}}
"""
