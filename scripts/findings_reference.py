"""The pages of the findings as Markdown for `docs/findings`, and their index by message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from finding_page import Block

    from gpusetup.causes.record import Cause

HEAD = """# Error messages

To find your message, search this page for a few of its words, without numbers and paths. Each page
shows how to check that you have this problem, the commands that fix it, and the other problems
that it is easily confused with.

One message may have several causes. To let gpusetup read your whole log and name the cause, run
`gpusetup doctor --report error.txt`; on the machine itself, run `gpusetup doctor`.

"""
RUN_IT = "You can [run gpusetup without installing it](../how-to/run-without-installing.md)."


def pages() -> Iterator[tuple[str, str]]:
    """Each page below `docs/findings`: its name, its text."""
    from gpusetup.diagnosis.explanations import records

    yield "index.md", index()
    yield from ((f"{record.id}.md", page(record)) for record in records())


def page(record: Cause) -> str:
    """The page of one finding."""
    from finding_page import blocks

    parts = [in_markdown(block, record.id) for block in blocks(record)]
    # The id stands below the title: doctor prints it, so people search for it too.
    id_line = f"Finding: `{record.id}`"
    return "\n\n".join((parts[0], id_line, *parts[1:-1], RUN_IT, parts[-1])) + "\n"


def in_markdown(block: Block, page_id: str) -> str:
    """One block of a page."""
    from finding_page import Bullets, Code, Heading

    if isinstance(block, Heading):
        text = code_span(block.text) if block.is_message else block.text
        return f"{'#' * block.level} {text}"
    if isinstance(block, Code):
        return fenced(block.lines, block.language)
    if isinstance(block, Bullets):
        return "\n".join(f"- {linked(text, page_id)}" for text in block.texts)
    return linked(block.text, page_id)


def index() -> str:
    """The messages by where they come from, each with the id of its finding."""
    from finding_groups import GROUPS, group_of

    from gpusetup.diagnosis.explanations import records

    parts = [HEAD]
    for group in GROUPS:
        members = [record for record in records() if group_of(record) == group]
        rows = sorted((row for record in members for row in index_rows(record)), key=_index_order)
        parts.append(f"## {group}\n\n{''.join(rows)}\n")
    return "".join(parts).rstrip("\n") + "\n"


def _index_order(row: str) -> tuple[bool, str]:
    """Messages first, then the findings that no program names; each by its letters."""
    is_message = row.startswith("- [`")
    return not is_message, re.sub(r"[^a-z0-9 ]", "", row.lower()).strip()


def index_rows(record: Cause) -> Iterator[str]:
    """A row for each message of a finding, or one with its name."""
    from finding_page import title_of
    from messages_searched import headings_of

    title = title_of(record)
    lines = headings_of(record.id) or ((title.text,) if title.is_message else ())
    names = [code_span(line) for line in lines] or [title.text]
    yield from (f"- [{name}]({record.id}.md) (`{record.id}`)\n" for name in names)


def code_span(message: str) -> str:
    """A message as code in Markdown, whatever it contains.

    >>> code_span("a `b`"), code_span("a b")
    ('`` a `b` ``', '`a b`')
    """
    line = " ".join(message.split())
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def fenced(lines: tuple[str, ...], language: str) -> str:
    """A block of code; the fence is longer than any run of backticks in it."""
    text = "\n".join(lines)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return f"{fence}{language}\n{text}\n{fence}"


def linked(text: str, page_id: str) -> str:
    """A paragraph with links for the ids of findings, outside its code.

    >>> linked("see driver-missing, not `driver-missing`", "ok")
    'see [driver-missing](driver-missing.md), not `driver-missing`'
    """
    from finding_groups import finding_ids

    ids = finding_ids() - {page_id}
    parts = re.split(r"(`[^`]*`)", text)
    for place, part in enumerate(parts):
        if not part.startswith("`"):
            parts[place] = re.sub(
                r"(?<![\w/-])[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?![\w/-])",
                lambda match: f"[{match[0]}]({match[0]}.md)" if match[0] in ids else match[0],
                escaped(part),
            )
    return "".join(parts)


def escaped(prose: str) -> str:
    """Prose in which nothing but our own emphasis acts as Markdown or HTML.

    >>> escaped("a <b> __c__")
    'a &lt;b> \\\\_\\\\_c__'
    """
    # An underscore within a word is a letter; before a word it would begin emphasis.
    quoted = prose.replace("<", "&lt;").replace("[", "\\[")
    return re.sub(r"(?<!\w)_+", lambda run: "\\_" * len(run[0]), quoted)
