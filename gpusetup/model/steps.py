"""A command as a value, so that the command that is run is exactly the one that was shown and
tested."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.frozen import Frozen


class Step(Frozen):
    """One command to run, as a value."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = {}
    timeout_seconds: float = 3600.0
