"""A CUDA library that something lacks: whether torch is who asks, and what a Jetson's torch needs.

Each is given the kind of event that names the library.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.catalog.jetpack import UNIFIED, board_of, jetpack_of, undeclared
from gpusetup.evidence.context import RuleContext, cuda_needed, events
from gpusetup.fixes.distributions import undeclared_commands
from gpusetup.model.finding import Fix


def _named(context: RuleContext, kind: str) -> str:
    return " ".join(event.values.get("library", "") for event in events(context, kind))


def is_with_torch(kind: str) -> Callable[[RuleContext], bool]:
    """Whether torch computes with this library's CUDA, so that its wheels brought it."""

    def where(context: RuleContext) -> bool:
        torch, major = (
            context.torch,
            (context.torch.cuda or "?").partition(".")[0],
        )
        return bool(torch.cuda_available and f".so.{major}" in _named(context, kind))

    return where


def is_anothers(kind: str) -> Callable[[RuleContext], bool]:
    """Whether something else than torch asks: torch works, another program fails, or a runtime of
    another CUDA is named (`11.0` is all of 11)."""

    def where(context: RuleContext) -> bool:
        torch = context.torch
        found = re.search(r"^libcudart.*\.so\.(\d+(?:\.[1-9])?)", _named(context, kind))
        needed, program = cuda_needed(torch), context.snapshot.failing.program or "torch"
        other = needed and found and not needed.startswith(found[1])
        return bool(torch.cuda_available or other or program != "torch")

    return where


def _of_torch(context: RuleContext, kind: str) -> str:
    """The library that is missing, if a Jetson's torch links it and does not declare it."""
    library = next((event.values.get("library", "") for event in events(context, kind)), "")
    there = board_of(context.snapshot) or library.startswith("libnvpl_")
    return library if there and undeclared(library) else ""


def is_undeclared(kind: str) -> Callable[[RuleContext], bool]:
    return lambda context: bool(_of_torch(context, kind))


def of_a_jetson(kind: str) -> Callable[[RuleContext, str], Fix]:
    """The way to such a library."""

    def way(context: RuleContext, text: str) -> Fix:
        jetpack = jetpack_of(board_of(context.snapshot)) or UNIFIED
        cuda = cuda_needed(context.torch) or jetpack.cuda
        return Fix(text=text, commands=undeclared_commands(context, _of_torch(context, kind), cuda))

    return way
