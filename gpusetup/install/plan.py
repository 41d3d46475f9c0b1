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
    """The path of the target's interpreter."""
    venv: str | None = None
    """The folder of the environment to create first; None if the environment exists."""
    choice: Fallback
    """The build to install and the index it comes from. The index's URL may contain a login."""
    fallbacks: tuple[Fallback, ...] = ()
    """The other builds that can be tried if the chosen one is not available."""
    wheels: tuple[Wheel, ...] = ()
    steps: tuple[Step, ...] = ()
    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    device: str = "auto"
    """The device that verify must test."""
