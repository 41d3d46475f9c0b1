"""The interface to a package index, as choosing packages needs it. The caller passes in an
implementation, so this module is pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpusetup.choose.choice import Choice
from gpusetup.model.frozen import Frozen


class SetQuestion(Frozen):
    """A question: which releases meet these requirements, alone or together with a torch?"""

    words: tuple[str, ...]
    torch: str | None = None
    """The torch versions, as a specifier such as `==2.9.1`; None to ask without torch."""
    backend: str = ""
    """The backend of torch's index from which torch and its family come."""
    limits: tuple[str, ...] = ()
    """Constraints, such as `torchcodec<0.14`."""
    of_torch_index: tuple[str, ...] = ()
    """The packages besides torch's family that come from torch's index, if they are in the set."""
    python: str | None = None
    """Another Python version than the machine's."""
    with_dependencies: bool = True


class IndexAnswer(Frozen):
    """The packages that an index has for some requirements, or the reason why there are none."""

    packages: Mapping[str, str] = {}
    """Their names with the chosen versions, such as `2.9.1+cu124`."""
    on_torch_index: tuple[str, ...] = ()
    """The names of those packages that come from torch's own index."""
    reason: str | None = None
    unknown: tuple[str, ...] = ()
    """The packages that no index has in any version, if there is no set because of them."""
    without_wheel: tuple[str, ...] = ()
    """The packages without a wheel for this machine, if there is no set because of them."""


class AnsweringIndex(Protocol):
    """The package indexes that the user has configured."""

    @property
    def torch_root(self) -> str:
        """The root URL of torch's own indexes, without a login."""

    def begin(self, choice: Choice, words: tuple[str, ...]) -> None:
        """Called before the first question, with the choice of torch alone and the packages."""

    def ask(self, question: SetQuestion) -> IndexAnswer:
        """The newest releases that answer the question, or the reason why there are none. Raises
        `Blocked` if an index does not respond."""
