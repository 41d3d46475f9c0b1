"""The fleet as one page: a table with the worst node first, no script, no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import get_args

from gpusetup.fleet.facts import words_of
from gpusetup.fleet.show import RATES, FleetAnswer, NodeAnswer, Status
from gpusetup.render.language import plain

STYLE = """
:root{color-scheme:light dark;--line:#8884;--bad:#b3261e;--odd:#8a5a00;--good:#1b6e3c}
@media (prefers-color-scheme:dark){:root{--bad:#ff8a80;--odd:#ffc46b;--good:#7ddc9c}}
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:70rem;padding:1rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;overflow-wrap:anywhere}
th,td{border-bottom:1px solid var(--line)}th{font-weight:600}
.failed{color:var(--bad);font-weight:600}td:is(.differs,.degraded){color:var(--odd);font-weight:600}
.ok{color:var(--good)}
code{font-family:ui-monospace,monospace;font-size:.9em}ul{margin:0;padding-left:1.1rem}
@media (max-width:40rem){thead{display:none}tr,td{display:block}td{border:0;padding:.1rem 0}
tr{border-bottom:1px solid var(--line);padding:.6rem 0}}
"""


def fleet_page(answer: FleetAnswer) -> str:
    """The whole page; every foreign text in it is escaped."""
    counts = Counter(node.status for node in answer.nodes)
    said = ", ".join(f"{counts[status]} {status}" for status in get_args(Status))
    title = f"{len(answer.nodes)} nodes: {said}"
    rows = "".join(_row(node) for node in answer.nodes)
    exclude = f"<p><code>{_text(answer.exclude.slurm)}</code></p>\n" if answer.exclude.slurm else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>gpusetup fleet: {_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<main>\n<h1>{_text(title)}</h1>\n{exclude}"
        "<table>\n<thead><tr><th>Node</th><th>Status</th><th>Findings</th><th>Unlike the others"
        f"</th><th>Read at</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</main>\n"
        "</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return escape(plain(text))


def _row(node: NodeAnswer) -> str:
    return (
        f"<tr><td>{_text(node.name)}</td><td class={node.status}>{node.status}</td>"
        f"<td>{_list(_findings(node))}</td><td>{_list(_drift(node))}</td>"
        f"<td>{_text(node.taken_at or '')}</td></tr>\n"
    )


def _list(lines: Iterator[str]) -> str:
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _findings(node: NodeAnswer) -> Iterator[str]:
    if node.problem:
        yield _text(node.problem)
    for one in node.findings:
        since = f" (since {_text(one.since)})" if one.since else ""
        yield f"<b>{_text(one.id)}</b>: {_text(one.title)}{since}"


def _drift(node: NodeAnswer) -> Iterator[str]:
    for one in node.drift:
        field = one.field
        words = field.removeprefix(RATES) if RATES in field else words_of(field)
        yield f"{_text(words)}: <b>{_text(one.value)}</b>, others {_text(one.majority)}"
