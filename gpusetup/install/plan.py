"""The plan of an installation: what to download and replace, and the commands to run."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.builds import Fallback
from gpusetup.model.frozen import Frozen
from gpusetup.model.steps import Step
from gpusetup.uv.lock import Wheel


class Plan(Frozen):
    """Everything that an installation will do."""

    target: str
    python: str
    """The interpreter of the target."""
    venv: str | None = None
    """The environment to be made first."""
    choice: Fallback
    """Its index may have a login."""
    fallbacks: tuple[Fallback, ...] = ()
    """What is left to fall back to."""
    wheels: tuple[Wheel, ...] = ()
    steps: tuple[Step, ...] = ()
    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    device: str = "auto"
    """What verify is told to prove."""
