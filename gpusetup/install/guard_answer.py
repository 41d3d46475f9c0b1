"""What `gpusetup guard` answers under `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.frozen import Frozen

GuardState = Literal["shown", "written", "unchanged", "restored"]


class GuardFile(Frozen):
    """A file that is written, whole."""

    path: str
    text: str
    added: tuple[str, ...] = ()
    """The lines of it that are new."""


class GuardAnswer(Frozen):
    schema: Literal["gpusetup.guard/1"] = "gpusetup.guard/1"
    state: GuardState
    target: str
    pins: Mapping[str, str]
    """Name -> exact version of what is guarded; empty after `--undo`."""
    files: tuple[GuardFile, ...] = ()
    """Those that differ from what is there, or were written."""
    settings: Mapping[str, str] = {}
    """Tool -> the line that makes it read the constraints in this shell."""
    notes: tuple[str, ...] = ()
