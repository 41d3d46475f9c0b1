"""Whether splitting changes loss or gradient: some samples compared with their halves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from gpusetup.errors import GpuSetupError
from gpusetup.tune.counts import Counted
from gpusetup.tune.oom import is_out_of_memory
from gpusetup.tune.undo import NORMS

CLOSE = 2e-6
"""A share of the loss that float32 rounds away."""
CLOSE_CUDA = 1e-5
"""The same where another number of samples is computed by another kernel."""
ROUGH = 2e-3
"""The same where products are computed in 16 bits."""
CLOSE_GRADIENT, ROUGH_GRADIENT = 1e-4, 5e-2
"""The same of the gradient, whose terms may cancel."""
DRAWN = (torch.nn.modules.dropout._DropoutNd, torch.nn.RNNBase, torch.nn.MultiheadAttention)


class Case(Protocol):
    """A batch whose loss can be asked for in parts."""

    parts: list[Counted]
    sums: bool
    rough: bool

    def part(self, start: int, stop: int) -> tuple[torch.Tensor, float]:
        """The loss of some samples, and how much it counts."""


def off_by(case: Case, start: int, micro: int, model: torch.nn.Module) -> str | None:
    """In words by how much loss or gradient of `micro` samples from `start` on are not those of
    their two halves; None where they are."""
    kept, slope = list(case.parts), None
    try:
        with _steady(model):
            before = torch.get_rng_state()
            whole, _ = case.part(start, start + micro)
            drawn = not torch.equal(before, torch.get_rng_state())
            middle = start + micro // 2
            halves = [case.part(start, middle), case.part(middle, start + micro)]
            if not drawn:
                slope = _slope_off(case, model, whole, halves)
    except GpuSetupError:
        raise
    except Exception as problem:
        why = "memory ran out" if is_out_of_memory(problem) else type(problem).__name__
        return f"whether the loss may be split was not checked ({why})"
    finally:
        case.parts = kept
    if drawn:
        return None  # random numbers are said on their own; nothing can be compared
    total = sum(weight for _, weight in halves)
    if not total:
        return None
    share = 1.0 if case.sums else total
    split = sum(float(loss.detach()) * weight for loss, weight in halves if weight) / share
    wanted = float(whole.detach())
    off = abs(split - wanted) / max(abs(wanted), 1e-12)
    half = whole.dtype in (torch.float16, torch.bfloat16)
    rough = case.rough or half
    if off <= (ROUGH if rough else CLOSE_CUDA if whole.is_cuda else CLOSE):
        if slope is None or slope <= (ROUGH_GRADIENT if rough else CLOSE_GRADIENT):
            return None
        return (
            f"the gradient of {micro} samples is {100 * slope:.2g} % off that of their halves"
            " (a loss over the whole batch, or a backward that is not linear?)"
        )
    return (
        f"a mean over parts: the loss of {micro} samples is {100 * off:.2g} % off that of its"
        " halves (`weight=` counts what it is a mean over; a loss over pairs must not be split)"
    )


def _slope_off(
    case: Case,
    model: torch.nn.Module,
    whole: torch.Tensor,
    halves: list[tuple[torch.Tensor, float]],
) -> float | None:
    """By which share the gradient is not that of the halves; None where it cannot be asked for."""
    given = [one for one in model.parameters() if one.requires_grad]
    share = 1.0 if case.sums else sum(weight for _, weight in halves)
    largest = 0.0
    try:
        left = torch.autograd.grad(whole, given, materialize_grads=True)
        for loss, weight in halves:
            if not weight:
                continue
            found = torch.autograd.grad(loss * (weight / share), given, materialize_grads=True)
            for one, part in zip(left, found, strict=True):
                one.sub_(part)
            largest = max(largest, _norm(found))
    except (RuntimeError, NotImplementedError):  # no memory, or a checkpoint of the old kind
        return None
    return _norm(left) / largest if largest else None


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.hypot(*(float(one.detach().double().norm()) for one in tensors))


@contextmanager
def _steady(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout and TF32, and with BatchNorm's own statistics, which are said elsewhere."""
    moved = [m for m in model.modules() if isinstance(m, (*DRAWN, NORMS)) and m.training]
    for module in moved:
        module.training = False
    exact = (torch.backends.cuda.matmul, torch.backends.cudnn)
    allowed = [one.allow_tf32 for one in exact] if torch.cuda.is_available() else []
    for one, _ in zip(exact, allowed, strict=False):
        one.allow_tf32 = False
    try:
        yield
    finally:
        for one, before in zip(exact, allowed, strict=False):
            one.allow_tf32 = before
        for module in moved:
            module.training = True
