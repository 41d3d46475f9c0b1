"""The program that a text is about, and the stage at which it failed."""

from __future__ import annotations

from typing import Literal

from gpusetup.model.frozen import Frozen

Stage = Literal["install", "build", "import", "start", "first-kernel", "running", "distributed"]


class Failing(Frozen):
    """Which program failed, at what, and the line that shows it; None where none shows it."""

    program: str | None = None
    stage: Stage | None = None
    text: str | None = None
    source: str | None = None


COMPLAINT = "failing.complaint"
"""The subject of the readings that say that somebody complains in a text, of whatever."""
