"""A reference page for each of doctor's findings, and their index by message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.causes.record import Cause

HEAD = """# Error messages

Search for a few words of your message, without its numbers. One message may have several causes:
`gpusetup doctor --report FILE` reads your whole log, names the root cause and prints the commands
for your machine. `gpusetup doctor --explain ID` prints one of these pages.

Most findings are *causes*: errors, or losses of speed. A *symptom* says what failed and not why: if
a text shows only that, the `cause` is `unknown`. A *case of* another finding has that one as its
`cause`.

"""


def pages() -> Iterator[tuple[str, str]]:
    """Each page below `docs/findings`: its name, its text."""
    from gpusetup.diagnosis.explanations import records

    rows = tuple(records())
    yield "index.md", HEAD + "".join(f"- [`{row.id}`]({row.id}.md)\n" for row in rows)
    yield from ((f"{row.id}.md", "".join(page(row))) for row in rows)


def page(row: Cause) -> Iterator[str]:
    from finding_pages import cell, said_of, title_of

    said = [cell(one.message) for one in said_of(row.id)[:3]]
    title = title_of(row)
    yield f"# {cell(title) if said else title}\n\n"
    name, why = f"{row.name}. " if said else "", row.means.split(". ")[0].rstrip(".")
    yield f"`{row.id}`{kind(row)}: {name}{why}".rstrip(": ") + "\n\n"
    parts = {
        "Messages": ", ".join(one for one in said if one[:50] != cell(title)[:50]),
        "Proven by": row.proven_by,
        "What looks alike": row.not_when,
        "What to do": re.split(r"[.;:] | \(", row.text)[0],
    }
    yield from (f"- {label}: {text}\n" for label, text in parts.items() if text)


def kind(row: Cause) -> str:
    if row.kind_of:
        return f" (a case of [`{row.kind_of}`]({row.kind_of}.md))"
    return " (a symptom)" if row.symptom else "" if row.place else " (a note or a warning)"
