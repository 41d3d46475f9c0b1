"""What a program says when it fails by itself: no driver, torch or GPU has to be mended for it."""

from __future__ import annotations

from gpusetup.messages.row import Row, row

NOT_SHOWN = "not shown"
"""`why` of a failure whose reason stands elsewhere, or may be the GPU's stack: nobody names it."""


def own(
    program: str,
    needle: str,
    pattern: str = "",
    *,
    says: str,
    way: str = "",
    unless: str = "",
    why: str = "",
) -> Row:
    """A row of `program-failed`: the answer names what the program failed at; with
    `why=NOT_SHOWN` it is `unknown`."""
    told = {name: value for name, value in (("way", way), ("why", why)) if value}
    return row(
        "program-failed",
        needle,
        pattern,
        unless=unless,
        program=program,
        says=f"{program} {says}",
        **told,
    )
