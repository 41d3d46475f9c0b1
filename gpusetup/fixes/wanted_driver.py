"""Which driver the GPUs of a machine want: its branch, and its kernel modules."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.catalog.facts import driver_branch
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import Lines
from gpusetup.model.versions import Capability, parsed

OPEN_FROM = Capability(7, 5)
"""Turing: the first that NVIDIA's open kernel modules drive (their README)."""


ONLY_OPEN_FROM = Capability(10, 0)
"""Blackwell: no closed module drives it."""


def last_closed() -> int:
    """The last branch with closed modules for GPUs before Turing."""
    return driver_branch("last closed")


def at_least(floor: str | None) -> int:
    """The branch of a version; 0 without one."""
    return parsed(floor).major if floor else 0


class Wanted(Frozen):
    """A driver, and the system that it is for."""

    branch: int
    capability: Capability | None
    """The lowest of the GPUs; None where it is not known."""
    newest: Capability | None
    """The highest of them."""
    id: str
    """os-release's ID."""
    version: str
    """os-release's VERSION_ID, or ""."""
    machine: str
    kernel: str
    secure_boot: bool
    at_least: int = 0
    """The branch that is needed for certain, or 0."""

    @property
    def is_open(self) -> bool:
        return self.capability is None or self.capability >= OPEN_FROM

    @property
    def only_open(self) -> bool:
        return self.newest is not None and self.newest >= ONLY_OPEN_FROM

    @property
    def closed_branch(self) -> int:
        """The branch of closed modules to take: the wanted one while there are some."""
        return min(self.branch, last_closed())

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


Way = Callable[[Wanted], Lines]
