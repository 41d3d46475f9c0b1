"""The program that a text is about: whether torch is under it, from which language it is called."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, events
from gpusetup.messages.program import Program
from gpusetup.messages.programs import BY_NAME


def called(context: RuleContext, name: str | None) -> Program | None:
    """The program of a name, in the form that the text's language calls."""
    program = BY_NAME.get(name or "")
    forms = dict(program.forms) if program else {}
    spoken = (event.values.get("language", "") for event in events(context, "called-from"))
    return next((forms[one] for one in spoken if one in forms), program)


def is_beside_torch(context: RuleContext) -> bool:
    """Whether a text is about a program that comes to the GPU without torch."""
    program = BY_NAME.get(context.snapshot.failing.program or "")
    return program is not None and not program.on_torch
