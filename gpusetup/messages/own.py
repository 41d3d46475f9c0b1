"""What a program says when it fails by itself: no driver, torch or GPU has to be mended for it."""

from __future__ import annotations

from gpusetup.messages.row import Row, row


def own(
    program: str, needle: str, pattern: str = "", *, says: str, way: str = "", unless: str = ""
) -> Row:
    """A row of `program-failed`: the answer is `ok`, and names what the program failed at."""
    told = {"way": way} if way else {}
    return row(
        "program-failed",
        needle,
        pattern,
        unless=unless,
        program=program,
        says=f"{program} {says}",
        **told,
    )
