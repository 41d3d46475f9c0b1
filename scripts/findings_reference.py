"""The reference page of doctor's findings: a section each, with links to the answers by message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusetup.causes.record import Cause

HEAD = """# Findings

What `gpusetup doctor` can find, and from what. `gpusetup doctor --list` and `--explain ID` print
the same. A *cause* is an error that stops CUDA (or the program that a report is about), or a loss
of speed. A *symptom* says what failed and not why: if a text shows only a symptom, the answer's
`cause` is `unknown` and `symptom` names it. A *case of* another finding has that one as the `cause`
of a report. All others are warnings and notes.
"""


def page(generated: str) -> str:
    return "".join([generated, HEAD, *sections()])


def sections() -> Iterator[str]:
    from gpusetup.diagnosis.knowledge import records
    from gpusetup.diagnosis.precedence import consequences

    for row in records():
        yield f"\n## {row.id}\n\n{row.title[0].upper()}{row.title[1:]}. {row.means}\n\n"
        said = {
            "Kind": kind(row),
            "Proven by": row.proven_by,
            "What it is not": row.not_when,
            "Way out": row.way_out,
            "Explains": ", ".join(f"`{id}`" for id in consequences(row)),
            "Source": row.source,
            "Messages": ", ".join(answers(row.id)),
        }
        yield from (f"- {label}: {text}\n" for label, text in said.items() if text)
        yield from example(row.id)


def kind(row: Cause) -> str:
    if row.kind_of:
        return f"a case of [`{row.kind_of}`](#{row.kind_of})"
    return "a symptom" if row.symptom else "a cause" if row.place else ""


def answers(id: str) -> Iterator[str]:
    """The messages of a finding, as links to their answers."""
    from faq_page import entries
    from finding_pages import cell

    rows = [entry for group in entries().values() for entry in group]
    mine = [entry for entry in rows if any(row.finding == id for row in entry.rows)]
    yield from (f"[{cell(entry.message)}](../faq.md#{entry.anchor})" for entry in mine)


def example(id: str) -> Iterator[str]:
    """The example machine of a finding that no message of the list shows."""
    from finding_pages import examples, said_of

    if id in examples() and not said_of(id):
        name, found = examples()[id]
        if found.fix is not None:
            yield f"- Example machine: `gpusetup doctor --from {name}`\n"
