"""The reply of a command: its document, the screen that shows the document, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """The reply of a command, which has not been written to the console yet."""

    document: Any = None
    """The document that `--json` prints and Python receives; None if the command has already
    printed its answer itself."""
    screen: str | Callable[[Any], str] = ""
    """The text for the user, or a function that makes it from the document."""
    exit_code: int = 0
