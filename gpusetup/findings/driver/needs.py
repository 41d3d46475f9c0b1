"""Which driver a message asks for, and which CUDA the driver serves."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, cuda_needed
from gpusetup.model.machine import Event
from gpusetup.model.versions import parsed


def is_met(context: RuleContext, event: Event) -> bool:
    """Whether the driver that was read is as new as the need that was read."""
    has, needs = context.snapshot.driver.version, need_of(context, event)
    return bool(has and needs and parsed(has) >= parsed(needs))


def need_of(context: RuleContext, event: Event) -> str | None:
    """The driver that a message asks for, of itself or for torch; None where that was not read."""
    if named := event.values.get("needs_driver") or event.values.get("needed"):
        return named
    family = driver_family(context)
    if cuda := event.values.get("cuda"):
        return context.catalog.toolkit_driver(cuda, family)
    torchs = cuda_needed(context.snapshot.torch)
    refused = event.kind == "cuda-error" or event.values.get("refused")
    return context.catalog.driver_floor(torchs, family) if torchs and refused else None


def driver_family(context: RuleContext) -> str:
    """Whose driver numbers count: WSL uses the driver of Windows."""
    return "windows" if context.snapshot.os.wsl else context.snapshot.os.family or "linux"


def served(context: RuleContext, messages: tuple[Event, ...]) -> str | None:
    """The CUDA that the driver serves, as read or as the message has it."""
    return context.snapshot.driver.cuda or named_as_served(messages)


def named_as_served(messages: tuple[Event, ...]) -> str | None:
    found = (e.values.get("driver_cuda") or as_release(e.values.get("found", "")) for e in messages)
    return next(filter(None, found), None)


def as_release(number: str) -> str:
    """The runtime's number for a CUDA release.

    >>> as_release("11040"), as_release("11.4")
    ('11.4', '11.4')
    """
    if not (number.isascii() and number.isdigit() and len(number) in (4, 5)):
        return number
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"
