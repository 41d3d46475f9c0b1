"""A finding as knowledge: the row behind its id."""

from __future__ import annotations

from gpusetup.rules.precedence import EXPLAINS
from gpusetup.value import Value


class Fact(Value):
    """One finding as knowledge: the row behind its id."""

    id: str
    title: str
    means: str
    """Why it happens and what it does, in a sentence or two."""
    proven_by: str
    """The evidence in a snapshot that makes the finding."""
    not_when: str = ""
    """What looks alike and is another finding, or none."""
    way_out: str
    source: str
    """Where it is known from."""

    @property
    def explains(self) -> tuple[str, ...]:
        """The findings that are its consequences where both are there."""
        return EXPLAINS.get(self.id, ())
