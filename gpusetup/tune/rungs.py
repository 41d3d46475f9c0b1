"""The ladder to climb when memory runs out: one rung at a time, the cheapest first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpusetup.model.frozen import Frozen

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""The allocator's variable: the older name, and the one from torch 2.9 on."""
SEGMENTS = "expandable_segments:True"
WASTE = 0.1
"""A share of reserved memory that holds no tensor from which on fragmentation is worth fighting."""


class Shortage(Frozen):
    """What is known when memory ran out."""

    environment: Mapping[str, str]
    platform: str
    """`sys.platform`."""
    release: str = ""
    """The kernel's release, which names WSL and Jetson (`microsoft`, `tegra`)."""
    device: str = "cuda"
    micro: int | None = None
    """The micro-batch that works; None where none did."""
    allocated_bytes: int = 0
    reserved_bytes: int = 0


def has_segments(shortage: Shortage) -> bool:
    """Whether this platform's allocator knows expandable segments: CUDA on plain Linux.

    >>> has_segments(Shortage(environment={}, platform="linux", release="5.15-microsoft-standard"))
    False
    """
    odd = any(word in shortage.release.lower() for word in ("microsoft", "wsl", "tegra"))
    return shortage.device == "cuda" and shortage.platform == "linux" and not odd


def allocator(shortage: Shortage) -> str | None:
    """The variable, where it is not set already and would do something."""
    chosen = [shortage.environment.get(name, "") for name in VARIABLES]
    if not has_segments(shortage) or any("expandable_segments" in value for value in chosen):
        return None
    reserved = shortage.reserved_bytes
    if reserved and 1 - shortage.allocated_bytes / reserved < WASTE:
        return None
    mine = [f"{name}={_with(value)}" for name, value in zip(VARIABLES, chosen, strict=True)]
    return f"start it with {mine[0]} (from torch 2.9 on {mine[1]}): less is lost between blocks"


def _with(value: str) -> str:
    return f"{value},{SEGMENTS}" if value else SEGMENTS


def batch(shortage: Shortage) -> str | None:
    if shortage.micro is None:
        return None
    return f"set the batch size to {shortage.micro} and accumulate gradients over the rest"


def checkpointing(shortage: Shortage) -> str:
    return "recompute activations (torch.utils.checkpoint), or give it a smaller model or input"


RUNGS: Sequence[Callable[[Shortage], str | None]] = (allocator, batch, checkpointing)


def next_rung(shortage: Shortage) -> str:
    """What to change first.

    >>> next_rung(Shortage(environment={}, platform="win32", micro=16))
    'set the batch size to 16 and accumulate gradients over the rest'
    """
    return next(said for rung in RUNGS if (said := rung(shortage)) is not None)
