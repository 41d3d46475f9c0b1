"""The interface of a package index, as far as a choice needs it. Pure; the caller passes in an
implementation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from gpusetup.choose.choice import Choice
from gpusetup.model.frozen import Frozen


class Released(Frozen):
    """A release of a package on an index."""

    version: str
    published: datetime | None = None
    """None: the index does not say."""

    @property
    def public(self) -> str:
        """The version without its label."""
        return self.version.partition("+")[0]


class IndexAnswer(Frozen):
    """The releases that an index has for some requirements, or the reason why there are none."""

    packages: Mapping[str, Released] = {}
    reason: str | None = None
    notes: tuple[str, ...] = ()


class SetQuestion(Frozen):
    """Which packages go together with one of several torch builds for the same backend."""

    backend: str
    torch: str
    """A specifier: `==2.9.1`, or `>=2.6.0,<=2.9.1`."""
    words: tuple[str, ...]
    limits: tuple[str, ...] = ()
    on_torch_index: tuple[str, ...] = ()
    """The packages that come from torch's own index, as torch does."""


class AnsweringIndex(Protocol):
    """One package index, or several of a person; methods may raise `Blocked` if it does not
    respond."""

    @property
    def torch_root(self) -> str:
        """The root of torch's own indexes, without a login."""

    def begin(self, choice: Choice, words: tuple[str, ...]) -> None:
        """Called before the first question, with the choice without packages, and the packages."""

    def set_beside(self, question: SetQuestion) -> IndexAnswer:
        """The packages that meet some requirements together with a torch, within limits."""

    def newest(self, names: tuple[str, ...]) -> Mapping[str, Released]:
        """The newest release of each package that has a wheel for the host."""

    def newest_source(self, name: str) -> Released | None:
        """The newest release of a package, if it exists only as source code."""
