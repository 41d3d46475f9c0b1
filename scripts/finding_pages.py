"""One page for each finding, and an index by message: static HTML from the records of the causes.

Titles are the messages that people search for (`web/messages.json`); what to type is what `doctor`
answers to that message on each system.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape as xml

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import Cause
from gpusetup.diagnosis.diagnose import Diagnosis, diagnose
from gpusetup.diagnosis.knowledge import record, records
from gpusetup.diagnosis.precedence import consequences
from gpusetup.model.finding import Finding, Fix
from gpusetup.probe.saved import example_machines, in_one_line, machine_named
from gpusetup.render.text import looks_of, needs, ways_beside
from gpusetup.report.read import read_bytes

MESSAGES = Path(__file__).resolve().parent.parent / "web" / "messages.json"
SYSTEMS = {
    "Linux": "OS: Ubuntu 24.04.1 LTS (x86_64)",
    "Windows": "OS: Microsoft Windows 11 Pro (10.0.26100 64-bit)",
}
"""A system -> the line of collect_env that says so."""
LONGEST_TITLE = 110


class Said(NamedTuple):
    """A message as a program prints it, and the finding that it shows."""

    finding: str
    message: str
    beside: str = ""
    """What else stood in the text, where the message alone does not decide."""

    @property
    def text(self) -> str:
        return f"{self.message}\n{self.beside}" if self.beside else self.message


@cache
def messages() -> tuple[Said, ...]:
    return tuple(Said(**row) for row in json.loads(MESSAGES.read_text(encoding="utf-8")))


def said_of(id: str) -> tuple[Said, ...]:
    return tuple(row for row in messages() if row.finding == id)


def found(text: str, id: str) -> Finding | None:
    """The finding that a text shows, as doctor words it."""
    return in_answer(diagnose(read_bytes(text.encode()), load_catalog()), id)


def in_answer(diagnosis: Diagnosis, id: str) -> Finding | None:
    return next((one for one in diagnosis.findings if one.id == id), None)


def ways(row: Said) -> dict[str, Fix]:
    """The way out on each system that has one; an entry without a name where all are alike, or
    where the text itself says which system it is of."""
    alone = diagnose(read_bytes(row.text.encode()), load_catalog())
    if alone.snapshot.os.family is not None:
        one = in_answer(alone, row.finding)
        return {"": one.fix} if one and one.fix else {}
    rows = {name: found(f"{row.text}\n{line}", row.finding) for name, line in SYSTEMS.items()}
    fixes = {name: one.fix for name, one in rows.items() if one and one.fix}
    if "Linux" in fixes and (LINUXS.search(row.text) or of_linux(fixes.get("Windows"))):
        return {"": fixes["Linux"]}
    typed = {fix.text for fix in fixes.values() if fix.commands}
    kept = {n: fix for n, fix in fixes.items() if fix.commands or fix.text not in typed}
    alike = len(kept) == len(SYSTEMS) and len(set(map(repr, kept.values()))) == 1
    return {"": next(iter(kept.values()))} if alike else kept


LINUXS = re.compile(r"\b(?:bash|zsh|sh): |\bsudo\b|\.so\b|/dev/|/usr/|modprobe|NVRM|\bsrun:|slurmd")
"""What only a text from Linux has."""


def of_linux(fix: Fix | None) -> bool:
    """Whether a way out is one of Linux alone: Windows finds its libraries by PATH."""
    return fix is not None and "LD_LIBRARY_PATH" in fix.text


@cache
def examples() -> Mapping[str, tuple[str, Finding]]:
    """A finding -> the first example machine whose root it is, and its words there."""
    shown: dict[str, tuple[str, Finding]] = {}
    for name in example_machines():
        diagnosis = diagnose(machine_named(name), load_catalog())
        root = next((one for one in diagnosis.findings if one.root), None)
        if root is not None:
            shown.setdefault(root.id, (name, root))
    return shown


# --- one page -------------------------------------------------------------------------------------


def title_of(row: Cause) -> str:
    """The first message that shows it, else what it is."""
    said = said_of(row.id)
    text = " ".join(said[0].message.split()) if said else sentence(row.title)
    return text if len(text) <= LONGEST_TITLE else f"{text[:LONGEST_TITLE].rsplit(' ', 1)[0]} …"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def page(row: Cause, address: str | None) -> str:
    body = "".join((*head(row), *known_by(row), *way_out(row), *related(row), *source(row)))
    about = f"{sentence(row.title)}. {row.means}"
    return frame(
        f"{title_of(row)}: cause and way out", about, body, f"findings/{row.id}.html", address
    )


def head(row: Cause) -> Iterator[str]:
    yield f"<h1>{escape(title_of(row))}</h1>\n"
    named = f'<span class="id">{row.id}</span>: {prose(row.title)}.'
    yield f"<p><strong>{named}</strong> {prose(row.means)}</p>\n"
    if said := said_of(row.id):
        yield "<h2>Messages that show it</h2>\n"
        yield "".join(f"<pre>{escape(one.message)}</pre>\n" for one in said)


def known_by(row: Cause) -> Iterator[str]:
    yield f"<h2>What proves it</h2>\n<p>{prose(row.proven_by)}.</p>\n"
    if row.not_when:
        yield f"<h2>What looks alike</h2>\n<p>{linked(row.not_when)}.</p>\n"


def way_out(row: Cause) -> Iterator[str]:
    yield f"<h2>The way out</h2>\n<p>{prose(row.way_out)}.</p>\n"
    said = said_of(row.id)
    for system, fix in ways(said[0]).items() if said else ():
        yield f"<h3>{'On ' + system if system else 'What doctor answers'}</h3>\n{fixed(fix)}"
    if not said and row.id in examples():
        name, shown = examples()[row.id]
        yield f"<h3>On an example machine: {escape(in_one_line(machine_named(name)))}</h3>\n"
        yield f"<p>{prose(shown.title)}</p>\n{fixed(shown.fix) if shown.fix else ''}"
        yield f"<p>Replay it: <code>gpusetup doctor --from {name}</code></p>\n"
    yield (
        '<p class="hint">Commands depend on the machine: <a href="../index.html#report">paste what '
        "yours printed</a>, or run <code>gpusetup doctor</code> there.</p>\n"
    )


def fixed(fix: Fix) -> str:
    parts = [f"<p>{prose(fix.text + needs(fix))}</p>\n", *block(fix.commands)]
    for title, commands in (*ways_beside(fix), *looks_of(fix)):
        parts += [f"<p>{prose(title)}</p>\n", *block(commands)]
    return "".join(parts)


def block(commands: Sequence[str]) -> Iterator[str]:
    if commands:
        yield f'<pre tabindex="0">{escape(chr(10).join(commands))}</pre>\n'


def related(row: Cause) -> Iterator[str]:
    above = [one.id for one in records() if row.id in consequences(one)]
    for title, ids in (
        ("What follows from it", consequences(row)),
        ("What may be behind it", above),
    ):
        if ids:
            yield f"<h2>{title}</h2>\n<p>{', '.join(map(link, ids))}</p>\n"


def source(row: Cause) -> Iterator[str]:
    yield f'<p class="source">Known from: {prose(row.source)}.</p>\n'


def link(id: str) -> str:
    return f'<a class="id" href="{id}.html" title="{escape(record(id).title)}">{id}</a>'


def prose(text: str) -> str:
    """Text in which code stands between backticks.

    >>> prose("run `a < b` & go")
    'run <code>a &lt; b</code> &amp; go'
    """
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))


def linked(text: str) -> str:
    """The same with the ids of findings as links."""
    ids = {row.id for row in records()}
    return re.sub(
        r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+", lambda m: link(m[0]) if m[0] in ids else m[0], prose(text)
    )


# --- the index, the map, the frame ----------------------------------------------------------------


def index(address: str | None) -> str:
    by_text = sorted(messages(), key=lambda one: one.message.lower())
    rows = "".join(
        f'<li><a href="{one.finding}.html">{escape(" ".join(one.message.split()))}</a> '
        f'<span class="source id">{one.finding}</span></li>\n'
        for one in by_text
    )
    rest = "".join(f"<li>{link(row.id)}: {prose(row.title)}</li>\n" for row in records())
    body = (
        "<h1>Error messages of CUDA, PyTorch and the NVIDIA driver</h1>\n"
        f'<p>What each means and what to type. <a href="../index.html">Paste your own</a>.</p>\n'
        f'<h2>By message</h2>\n<ul class="plain">\n{rows}</ul>\n'
        f'<h2>All findings</h2>\n<ul class="plain">\n{rest}</ul>\n'
    )
    about = (
        "What error messages of CUDA, PyTorch, docker and the NVIDIA driver mean, and what to type."
    )
    return frame(
        "Error messages of CUDA, PyTorch and the NVIDIA driver",
        about,
        body,
        "findings/index.html",
        address,
    )


def frame(title: str, about: str, body: str, place: str, address: str | None) -> str:
    canonical = f'<link rel="canonical" href="{escape(address + place)}">\n' if address else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="description" content="{escape(about[:300])}">\n'
        f"<title>{escape(title)}</title>\n{canonical}"
        '<link rel="icon" href="data:,">\n<link rel="stylesheet" href="../page.css">\n</head>\n'
        '<body class="article">\n<nav aria-label="Pages"><a href="../index.html">gpusetup</a> · '
        '<a href="index.html">All messages</a></nav>\n'
        f"<main>\n{body}</main>\n<footer><p>From gpusetup's records; catalog of "
        f"{load_catalog().as_of}.</p></footer>\n</body>\n</html>\n"
    )


def site_map(places: Sequence[str], address: str) -> str:
    rows = "".join(f"<url><loc>{xml(address + place)}</loc></url>\n" for place in places)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</urlset>\n'


def pages(address: str | None = None) -> Iterator[tuple[str, str]]:
    """Every page with its place below the built folder; the map where the address is known."""
    yield "findings/index.html", index(address)
    for row in records():
        yield f"findings/{row.id}.html", page(row, address)
    if address:
        places = [
            "index.html",
            "findings/index.html",
            *(f"findings/{r.id}.html" for r in records()),
        ]
        yield "sitemap.xml", site_map(places, address)


# --- a message in Markdown ------------------------------------------------------------------------


def cell(text: str) -> str:
    """A message as code in a cell of a table.

    >>> cell("a | b `c`")
    '`` a \\\\| b `c` ``'
    """
    line = " ".join(text.split()).replace("|", "\\|")
    return f"`` {line} ``" if "`" in line else f"`{line}`"
