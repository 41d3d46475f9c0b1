"""The interface to a package index, as choosing packages needs it. The caller passes in an
implementation, so this module is pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from gpusetup.choose.choice import Choice
from gpusetup.model.frozen import Frozen


class Released(Frozen):
    """One release of a package on an index."""

    version: str
    published: datetime | None = None
    """When the release was published; None if the index does not say."""

    @property
    def public(self) -> str:
        """The version without its local label (such as `+cu124`)."""
        return self.version.partition("+")[0]


class IndexAnswer(Frozen):
    """The packages that an index has for some requirements, or the reason why there are none."""

    packages: Mapping[str, Released] = {}
    reason: str | None = None
    unknown: tuple[str, ...] = ()
    """The packages that no index has in any version, if there is no set because of them."""
    notes: tuple[str, ...] = ()


class SetQuestion(Frozen):
    """A question: which releases of these packages work with a torch version for one backend?"""

    backend: str
    torch: str
    """A version specifier, such as `==2.9.1` or `>=2.6.0,<=2.9.1`."""
    words: tuple[str, ...]
    limits: tuple[str, ...] = ()
    on_torch_index: tuple[str, ...] = ()
    """The packages that, like torch, come from torch's own index."""


class AnsweringIndex(Protocol):
    """The package indexes that the user has configured. Methods may raise `Blocked` if an index
    does not respond."""

    @property
    def torch_root(self) -> str:
        """The root URL of torch's own indexes, without a login."""

    @property
    def places(self) -> tuple[str, ...]:
        """Sentences that tell where packages are looked for: which indexes are asked, and which
        files name other indexes but are not read."""

    def begin(self, choice: Choice, words: tuple[str, ...]) -> None:
        """Called once before the first question, with the choice made without packages and with the
        required packages."""

    def set_beside(self, question: SetQuestion) -> IndexAnswer:
        """The releases that meet the requirements together with torch, within the limits; or the
        reason why there are none."""

    def newest(self, names: tuple[str, ...]) -> Mapping[str, Released]:
        """The newest release of each package that has a wheel for the host; packages without one
        are left out."""

    def newest_source(self, name: str) -> Released | None:
        """The newest release of a package that only exists as source code; None if there is
        none."""
