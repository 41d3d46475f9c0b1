"""The page for a reader: what ran, each claim with its verdict, every table. No script."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --dim: #777; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; color: var(--dim) }
table { border-collapse: collapse; font-size: 13.5px; display: block; overflow-x: auto }
th, td { text-align: left; padding: .22rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; max-width: 36rem; overflow-wrap: break-word }
th { font-weight: 600; white-space: nowrap } td.n { text-align: right; white-space: nowrap }
.holds, .ok { color: var(--good); font-weight: 600 }
.fails, .no { color: var(--bad); font-weight: 600 }
.open, .elsewhere, .stand-in { color: var(--dim) } td.verdict, td.source { white-space: nowrap }
.banner { border: 1px solid var(--bad); padding: .5rem .8rem; border-radius: 6px }
@media (max-width: 40rem) {
  .claims tr { display: block; border-bottom: 1px solid var(--line); padding: .3rem 0 }
  .claims tr:first-child { display: none }
  .claims td { display: block; border: 0; padding: 0 .3rem; white-space: normal } }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --dim: #999 } }
"""
BANNER = (
    "<p class=banner>No card was used: the parts ran on the CPU. Nothing on this page says "
    "anything about a GPU.</p>"
)
FACTS = ("date", "card", "driver", "torch", "cuda", "python", "gpusetup", "commit")


def page(whole: Mapping[str, Any]) -> str:
    """The evidence as HTML; every text of it is escaped."""
    parts = whole["parts"]
    subject = whole.get("card") or "CPU stand-in"
    pieces = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>gpusetup on {escape(subject)}</title><style>{STYLE}</style>",
        f"<h1>gpusetup on {escape(subject)}</h1>",
        BANNER if whole.get("stand_in") else "",
        table([{name: whole.get(name) for name in FACTS}]),
        absent(whole),
        tally(whole),
        "<h2>Parts</h2>",
        table([summary(part) for part in parts]),
        *(section(part) for part in parts),
        "<h2>Not run</h2>" + claims(whole["open"]) if whole.get("open") else "",
    ]
    return "\n".join(filter(None, pieces)) + "\n"


def absent(whole: Mapping[str, Any]) -> str:
    """What is only compared with where it is there."""
    names = ", ".join(map(escape, whole.get("absent", ())))
    return f"<p>Not installed, so not compared with: {names}.</p>" if names else ""


def tally(whole: Mapping[str, Any]) -> str:
    """How many claims have which verdict."""
    every = [c for part in whole["parts"] for c in part["claims"]] + list(whole.get("open", ()))
    count: dict[str, int] = {}
    for claim in every:
        count[claim["verdict"]] = count.get(claim["verdict"], 0) + 1
    words = ", ".join(f"<b>{number}</b> {escape(verdict)}" for verdict, number in count.items())
    return f"<p>{len(every)} claims: {words}.</p>"


def summary(part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "part": part["name"],
        "ok": "ok" if part["ok"] else "no",
        "status": part["status"],
        "seconds": round(part["seconds"], 1),
        "limit": round(part["limit_seconds"], 1),
        "problem": part["problem"],
    }


def section(part: Mapping[str, Any]) -> str:
    tables = "".join(
        f"<h3>{escape(name)}</h3>{table(rows)}" for name, rows in part["tables"].items()
    )
    return f"<h2>{escape(part['name'])}</h2>{claims(part['claims'])}{tables}"


def claims(rows: Iterable[Mapping[str, Any]]) -> str:
    lines = "".join(
        f"<tr><td class='verdict {escape(row['verdict'])}'>{escape(row['verdict'])}</td>"
        f"<td>{escape(row['text'])}</td><td>{escape(row['figure'])}</td>"
        f"<td class=source>{escape(row['source'])}</td></tr>"
        for row in rows
    )
    head = "<tr><th>verdict<th>claim<th>figure<th>said in</tr>"
    return f"<table class=claims>{head}{lines}</table>" if lines else ""


def table(rows: list[dict[str, Any]]) -> str:
    """Columns in the order in which the rows name them first.

    >>> "<td class=n>2</td>" in table([{"a": 1}, {"a": 3, "b": 2}])
    True
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    lines = "".join(
        f"<tr>{''.join(cell(row.get(name), name) for name in names)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{lines}</table>"


JUDGED = ("same", "caught", "agrees")
"""Columns in which a no is bad news."""


def cell(value: Any, column: str) -> str:
    """
    >>> cell(False, "same"), cell(False, "ours")
    ('<td class=no>no</td>', '<td>no</td>')
    """
    if isinstance(value, bool):
        mark = " class=no" if not value and column in JUDGED else ""
        return f"<td{mark}>{'yes' if value else 'no'}</td>"
    if isinstance(value, (int, float)):
        return f"<td class=n>{value:.4g}</td>" if isinstance(value, float) else number(value)
    words = value if value in ("ok", "no") else ""
    mark = f" class={words}" if words else ""
    return f"<td{mark}>{escape(value)}</td>"


def number(value: int) -> str:
    return f"<td class=n>{value}</td>"


def escape(value: Any) -> str:
    return "" if value is None else html.escape(str(value))
