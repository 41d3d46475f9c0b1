"""The program that a text is about: whether torch is under it."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext
from gpusetup.messages.programs import BY_NAME


def is_beside_torch(context: RuleContext) -> bool:
    """Whether a text is about a program that comes to the GPU without torch."""
    program = BY_NAME.get(context.snapshot.failing.program or "")
    return program is not None and not program.on_torch
