"""Whether a loss is what splitting takes it for: some samples compared with their halves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from gpusetup.errors import GpuSetupError
from gpusetup.tune.oom import is_out_of_memory
from gpusetup.tune.undo import NORMS

if TYPE_CHECKING:
    from gpusetup.tune.recover import _Case

CLOSE = 2e-6
"""A share of the loss that float32 rounds away."""
CLOSE_CUDA = 1e-5
"""The same where another number of samples is computed by another kernel."""
ROUGH = 2e-3
"""The same where products are computed in 16 bits."""
DRAWN = (torch.nn.modules.dropout._DropoutNd, torch.nn.RNNBase, torch.nn.MultiheadAttention)


def off_by(case: _Case, start: int, micro: int, model: torch.nn.Module) -> str | None:
    """In words by how much the loss of `micro` samples from `start` on is not that of their two
    halves; None where it is."""
    kept = list(case.parts)
    try:
        with _steady(model):
            before = torch.get_rng_state()
            whole, _ = case.part(start, start + micro)
            drawn = not torch.equal(before, torch.get_rng_state())
            middle = start + micro // 2
            halves = [case.part(start, middle), case.part(middle, start + micro)]
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
    if off <= (ROUGH if case.rough or half else CLOSE_CUDA if whole.is_cuda else CLOSE):
        return None
    return (
        f"a mean over parts: the loss of {micro} samples is {100 * off:.2g} % off that of its"
        " halves (`weight=` counts what it is a mean over; a loss over pairs must not be split)"
    )


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
