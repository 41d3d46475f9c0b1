"""One page for each finding, and an index by message: static HTML from the records of the causes.

Titles are the messages that people search for (`web/messages.json`); what to type is what `doctor`
answers to that message on each system.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import Cause
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.explanations import records
from gpusetup.model.finding import Fix
from gpusetup.render.doctor import looks_of, needs, ways_beside
from gpusetup.report.read import read_bytes

MESSAGES = Path(__file__).resolve().parent.parent / "web" / "messages.json"
SYSTEMS = {
    "Linux": "OS: Ubuntu 24.04.1 LTS (x86_64)",
    "Windows": "OS: Microsoft Windows 11 Pro (10.0.26100 64-bit)",
}
"""A system -> the line of collect_env that says so."""
LONGEST_TITLE = 110
FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self'; \
img-src data:; base-uri 'none'; form-action 'none'">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{about}">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="../page.css">
</head>
<body class="article">
<nav aria-label="Pages"><a href="../index.html">gpusetup</a> · <a href="index.html">All messages\
</a></nav>
<main>
{body}</main>
<footer><p>From gpusetup's records; catalog of {as_of}.</p></footer>
</body>
</html>
"""
ABOUT = "What error messages of CUDA, PyTorch, docker and the NVIDIA driver mean, and what to type"
HINT = """<p class="hint">Commands depend on the machine: <a href="../index.html#report">paste \
what yours printed</a>, or run <code>gpusetup doctor</code> there.</p>
"""


class Said(NamedTuple):
    """A message as a program prints it, and the finding that it shows."""

    finding: str
    message: str
    beside: str = ""
    """What else stood in the text, where the message alone does not decide."""

    @property
    def text(self) -> str:
        return f"{self.message}\n{self.beside}".rstrip("\n")


@cache
def messages() -> tuple[Said, ...]:
    return tuple(Said(**row) for row in json.loads(MESSAGES.read_text(encoding="utf-8")))


def said_of(id: str) -> tuple[Said, ...]:
    return tuple(row for row in messages() if row.finding == id)


def ways(row: Said) -> dict[str, Fix]:
    """The way out on each system; one without a name where all are alike."""
    found = {}
    for name, line in SYSTEMS.items():
        diagnosis = diagnose(read_bytes(f"{row.text}\n{line}".encode()), load_catalog())
        one = next((one for one in diagnosis.findings if one.id == row.finding), None)
        if one and one.fix:
            found[name] = one.fix
    if "Linux" in found and (LINUXS.search(row.text) or found["Linux"] == found.get("Windows")):
        return {"": found["Linux"]}
    typed = {fix.text for fix in found.values() if fix.commands}
    return {name: fix for name, fix in found.items() if fix.commands or fix.text not in typed}


LINUXS = re.compile(r"\b(?:bash|zsh|sh): |\bsudo\b|\.so\b|/dev/|/usr/|modprobe|NVRM|\bsrun:|slurmd")
"""What only a text from Linux has."""


def title_of(row: Cause) -> str:
    """The first message that shows it, else what it is."""
    said = said_of(row.id)
    text = " ".join(said[0].message.split()) if said else row.name
    return text if len(text) <= LONGEST_TITLE else f"{text[:LONGEST_TITLE].rsplit(' ', 1)[0]} …"


def page(row: Cause) -> str:
    body = "".join(body_of(row))
    return frame(f"{title_of(row)}: cause and way out", f"{row.name}. {row.means}", body)


def body_of(row: Cause) -> Iterator[str]:
    said = said_of(row.id)
    yield f"<h1>{escape(title_of(row))}</h1>\n"
    named = f'<span class="id">{row.id}</span>: {prose(row.name)}.'
    yield f"<p><strong>{named}</strong> {prose(row.means)}</p>\n"
    if said:
        yield "<h2>Messages that show it</h2>\n"
        yield "".join(f"<pre>{escape(one.message)}</pre>\n" for one in said)
    parts = {"What proves it": row.proven_by, "What looks alike": row.not_when}
    for title, text in (parts | {"The way out": row.text}).items():
        if text:
            yield f"<h2>{title}</h2>\n<p>{linked(text)}.</p>\n"
    for system, fix in ways(said[0]).items() if said else ():
        yield f"<h3>{'On ' + system if system else 'What doctor answers'}</h3>\n"
        yield f"<p>{prose(fix.text + needs(fix))}</p>\n"
        for title, commands in (("", fix.commands), *ways_beside(fix), *looks_of(fix)):
            yield f"<p>{prose(title)}</p>\n" if title else ""
            yield f'<pre tabindex="0">{escape(chr(10).join(commands))}</pre>\n' if commands else ""
    yield HINT


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


def link(id: str) -> str:
    return f'<a class="id" href="{id}.html">{id}</a>'


def frame(title: str, about: str, body: str) -> str:
    told = {"title": escape(title), "about": escape(about[:300]), "as_of": load_catalog().as_of}
    return FRAME.format(body=body, **told)


def index() -> str:
    rows = "".join(
        f'<li><a href="{one.finding}.html">{escape(" ".join(one.message.split()))}</a> '
        f'<span class="source id">{one.finding}</span></li>\n'
        for one in sorted(messages(), key=lambda one: one.message.lower())
    )
    rest = "".join(f"<li>{link(row.id)}: {prose(row.name)}</li>\n" for row in records())
    title = "Error messages of CUDA, PyTorch and the NVIDIA driver"
    body = f'<h1>{title}</h1>\n<p>{ABOUT}. <a href="../index.html">Paste your own</a>.</p>\n'
    body += f'<h2>By message</h2>\n<ul class="plain">\n{rows}</ul>\n'
    body += f'<h2>All findings</h2>\n<ul class="plain">\n{rest}</ul>\n'
    return frame(title, ABOUT, body)


def pages() -> Iterator[tuple[str, str]]:
    """Every page with its place below the built folder."""
    yield "findings/index.html", index()
    for row in records():
        yield f"findings/{row.id}.html", page(row)


def cell(text: str) -> str:
    """A message as code in Markdown.

    >>> cell("a | b `c`")
    '`` a \\\\| b `c` ``'
    """
    line = " ".join(text.split()).replace("|", "\\|")
    return f"`` {line} ``" if "`" in line else f"`{line}`"
