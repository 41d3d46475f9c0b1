"""The reply of a command: its document, the screen that shows the document, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from gpusetup.errors import Unsatisfiable

Document = TypeVar("Document")


class Reply(NamedTuple):
    """The reply of a command, which has not been written to the console yet."""

    document: Any = None
    """The document that `--json` prints and Python receives; None if the command has already
    printed its answer itself."""
    screen: str | Callable[[Any], str] = ""
    """The text for the user, or a function that makes it from the document."""
    exit_code: int = 0


def answer(
    document: Document, screen: str | Callable[[Document], str] = "", *, yes: object = True
) -> Reply:
    """A reply with a document and its screen. The exit code is 0 if `yes` is true, otherwise 1."""
    return Reply(document, screen, 0 if yes else Unsatisfiable.exit_code)
