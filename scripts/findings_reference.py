"""The reference page of doctor's findings: a section each, with the messages that show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.causes.record import Cause

HEAD = """# Findings

What `gpusetup doctor` can find, and from what. Search this page for a few words of your message,
without its numbers. One message may have several causes: `gpusetup doctor --report FILE` reads your
whole log, names the root cause and prints the commands for your machine. `gpusetup doctor
--explain` prints what is here, and with an ID the source of one.

Most findings are *causes*: errors that stop CUDA (or the program that a report is about), or losses
of speed. A *symptom* says what failed and not why: if a text shows only a symptom, the answer's
`cause` is `unknown` and `symptom` names it. A *case of* another finding has that one as the `cause`
of a report.
"""


def page() -> str:
    from gpusetup.diagnosis.knowledge import records

    return "".join([HEAD, *(text for row in records() for text in section(row))])


def section(row: Cause) -> Iterator[str]:
    from finding_pages import cell, said_of

    title = f"{row.title[0].upper()}{row.title[1:]}"
    yield f"\n## {row.id}\n\n{title}{kind(row)}. {row.means}\n\n"
    said = {
        "Messages": ", ".join(cell(one.message) for one in said_of(row.id)),
        "Proven by": row.proven_by,
        "What it is not": row.not_when,
        "Way out": row.way_out,
    }
    yield from (f"- {label}: {text}\n" for label, text in said.items() if text)


def kind(row: Cause) -> str:
    if row.kind_of:
        return f" (a case of [`{row.kind_of}`](#{row.kind_of}))"
    return " (a symptom)" if row.symptom else "" if row.place else " (a note or a warning)"
