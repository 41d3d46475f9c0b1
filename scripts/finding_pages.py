"""One static HTML page for each finding, and an index by message, for the page in the browser.

The content is that of `finding_page`; this file makes HTML of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from finding_page import (
    GROUPS,
    Block,
    Bullets,
    Code,
    Heading,
    blocks,
    finding_ids,
    group_of,
    title_of,
)
from messages_searched import headings_of

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import Cause
from gpusetup.diagnosis.explanations import records

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
LONGEST_TITLE = 110
"""Of the browser's tab; the page's own heading has the whole message."""
LONGEST_DESCRIPTION = 300


def pages() -> Iterator[tuple[str, str]]:
    """Every page with its place below the built folder."""
    yield "findings/index.html", index()
    for record in records():
        yield f"findings/{record.id}.html", page(record)


def page(record: Cause) -> str:
    """The page of one finding."""
    first, *others = blocks(record)
    id_line = f'<p>Finding: <span class="id">{record.id}</span></p>\n'
    body = in_html(first) + id_line + "".join(map(in_html, others)) + HINT
    about = f"{record.name}. {record.means}"
    return frame(f"{_tab_title(record)}: cause and fix", about, body)


def _tab_title(record: Cause) -> str:
    text = title_of(record).text
    if len(text) <= LONGEST_TITLE:
        return text
    return f"{text[:LONGEST_TITLE].rsplit(' ', 1)[0]} …"


def in_html(block: Block) -> str:
    """One block of a page."""
    if isinstance(block, Heading):
        return f"<h{block.level}>{escape(block.text)}</h{block.level}>\n"
    if isinstance(block, Code):
        lines = escape("\n".join(block.lines))
        return f'<pre tabindex="0">{lines}</pre>\n'
    if isinstance(block, Bullets):
        items = "".join(f"<li>{linked(text)}</li>\n" for text in block.texts)
        return f"<ul>\n{items}</ul>\n"
    return f"<p>{linked(block.text)}</p>\n"


def linked(text: str) -> str:
    """A paragraph as HTML: code, emphasis, and links for the ids of findings outside code.

    >>> linked("run `a < b` & **see** ok")
    'run <code>a &lt; b</code> &amp; <strong>see</strong> ok'
    """
    ids = finding_ids()
    parts = re.split(r"(`[^`]*`)", text)
    for place, part in enumerate(parts):
        if part.startswith("`"):
            parts[place] = f"<code>{escape(part.strip('`'), quote=False)}</code>"
            continue
        prose = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(part, quote=False))
        parts[place] = re.sub(
            r"(?<![\w/-])[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?![\w/-])",
            lambda match: link(match[0]) if match[0] in ids else match[0],
            prose,
        )
    return "".join(parts)


def link(id: str) -> str:
    return f'<a class="id" href="{id}.html">{id}</a>'


def frame(title: str, about: str, body: str) -> str:
    """A whole document."""
    return FRAME.format(
        title=escape(title),
        about=escape(about[:LONGEST_DESCRIPTION]),
        as_of=load_catalog().as_of,
        body=body,
    )


def index() -> str:
    """The messages by where they come from, each with the id of its finding."""
    title = "Error messages of CUDA, PyTorch and the NVIDIA driver"
    body = f'<h1>{title}</h1>\n<p>{ABOUT}. <a href="../index.html">Paste your own</a>.</p>\n'
    for group in GROUPS:
        members = [record for record in records() if group_of(record) == group]
        rows = "".join(sorted(row for record in members for row in index_rows(record)))
        body += f'<h2>{group}</h2>\n<ul class="plain">\n{rows}</ul>\n'
    return frame(title, ABOUT, body)


def index_rows(record: Cause) -> Iterator[str]:
    """A row for each message of a finding, or one with its name."""
    for name in headings_of(record.id) or (title_of(record).text,):
        yield (
            f'<li><a href="{record.id}.html">{escape(name)}</a> '
            f'<span class="source id">{record.id}</span></li>\n'
        )
