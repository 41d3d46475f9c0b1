"""A command as a value, so that the command that is shown, tested and run is the same."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import Frozen


class Step(Frozen):
    """One command to run, as data."""

    argv: tuple[str, ...]
    title: str = ""
    environment: Mapping[str, str] = {}
    timeout_seconds: float = 3600.0
