"""A command as a value: what is shown, what is tested and what is run are the same."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import Frozen


class Step(Frozen):
    """One command to run, as data: shown, tested and run from the same value."""

    argv: tuple[str, ...]
    title: str = ""
    environment: Mapping[str, str] = {}
    timeout_seconds: float = 3600.0
