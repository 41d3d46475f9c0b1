"""The rules about messages of programs: loaded only where some program said something."""

from __future__ import annotations

from gpusetup.rules import (
    compiled,
    engines,
    extensions,
    installing,
    parallel,
    running,
    tags,
    wheels,
)
from gpusetup.rules.case import Rule

RULES: tuple[Rule, ...] = (
    *engines.RULES,
    *extensions.RULES,
    *compiled.RULES,
    *running.RULES,
    *parallel.RULES,
    *installing.RULES,
    *tags.RULES,
    *wheels.RULES,
)
"""Every rule that needs an event."""
