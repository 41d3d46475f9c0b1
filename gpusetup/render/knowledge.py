"""What is known of the findings, as a screen: one of them in full, or all of them in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusetup.render.language import HEADING, Row, Screen, heading, labelled

if TYPE_CHECKING:
    from gpusetup.model.documents import KnownFinding


def listed(rows: Sequence[KnownFinding]) -> Screen:
    """All findings, one a line."""
    width = max(len(row.id) for row in rows) + 2
    return Screen(
        Row((f"{row.id:{width}}", HEADING), row.title, hang=min(width, 24)) for row in rows
    )


def explained(row: KnownFinding) -> Screen:
    """One finding in full."""
    parts = (
        ("Proven by", row.proven_by),
        ("Not when", row.not_when),
        ("Way out", row.way_out),
        ("Explains", ", ".join(row.explains)),
        ("Source", row.source),
    )
    width = max(len(label) for label, _ in parts) + 2
    told = (labelled(label, text, width) for label, text in parts if text)
    why = (f"  {row.means}", "") if row.means else ()
    return Screen((heading(f"{row.id}: {row.title}"), "", *why, *told))
