"""A command as a value, so that exactly the command that is shown and tested is run."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import Frozen


class Step(Frozen):
    """One command to run, as data."""

    argv: tuple[str, ...]
    title: str = ""
    environment: Mapping[str, str] = {}
    timeout_seconds: float = 3600.0
