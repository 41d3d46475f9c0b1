"""What a mean loss is a mean over, told by the loss functions that a step calls.

`cross_entropy` leaves ignored labels out and divides by class weights, other losses divide by
their elements. While a part's step runs, calls of torch's loss functions with `reduction="mean"`
are seen, and what each divided by is noted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from gpusetup.model.frozen import Frozen

LABELS = (functional.cross_entropy, functional.nll_loss)
ELEMENTS = (
    functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss,
    functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits,
    functional.kl_div, functional.soft_margin_loss,
)  # fmt: skip
WATCHED: frozenset[Callable[..., Any]] = frozenset((*LABELS, *ELEMENTS))


class Counted(Frozen):
    """One part of a batch: its samples, and what each loss of its step divided by."""

    samples: int
    divisors: tuple[float, ...] = ()

    @property
    def weight(self) -> float | None:
        """What the part's loss is a mean over, where its losses agree; None where none told."""
        return self.divisors[0] if len(set(self.divisors)) == 1 else None

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(round(one / self.samples, 9) for one in self.divisors)


class Watching(TorchFunctionMode):  # type: ignore[misc]
    """Sees the loss functions while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor | float] = []
        self.rough = False
        """Whether autocast computed something in 16 bits, for all that was seen."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():
            return result
        if isinstance(result, torch.Tensor):
            self.rough |= result.dtype in (torch.float16, torch.bfloat16)
        if func in WATCHED and getattr(result, "requires_grad", False):
            divisor = divisor_of(func, args, kwargs or {})
            if divisor is not None:
                self.seen.append(divisor)
        return result

    def counted(self, samples: int) -> Counted:
        return Counted(samples=samples, divisors=tuple(float(one) for one in self.seen))


def divisor_of(func: Any, args: Any, kwargs: Any) -> torch.Tensor | float | None:
    """What a loss function divides its sum by; None where it takes no mean."""
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    said = bound.arguments
    if said.get("reduction") == "batchmean":
        return float(said["input"].shape[0])
    if said.get("reduction") != "mean":
        return None
    if func in LABELS:
        return _of_labels(said["input"], said["target"], said["weight"], said["ignore_index"])
    return float(torch.broadcast_shapes(said["input"].shape, said["target"].shape).numel())


def _of_labels(
    scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, ignored: int
) -> torch.Tensor | float:
    """Class indices: those that count, by their weight; probabilities: the samples."""
    if target.is_floating_point():
        return float(target.numel() / scores.shape[1 if scores.dim() > 1 else 0])
    kept = target != ignored
    if weight is None:
        return kept.sum()
    return weight.detach()[target[kept]].sum()
