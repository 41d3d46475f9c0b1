"""The parts of a batch: how it is cut, what the loss of a part counts, and whether that is exact.

A batch is a tensor or array, or a tuple, list, mapping, named tuple or dataclass of batches. What
has a first dimension of the batch's size is cut along it, lists of that length too; everything
else goes into each part as it is.

A mean loss is a mean over what torch's loss functions divide by: `cross_entropy` leaves ignored
labels out and divides by class weights, other losses divide by their elements. While a part's step
runs, these calls are seen. Whether the parts then give the whole's gradient is tried on some
samples and their halves.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.tune.oom import is_out_of_memory

# --- how a batch is cut -------------------------------------------------------------------------

CHANNELS = (1, 3, 4)


def batch_size(batch: Any) -> int:
    """The number of samples in a batch.

    >>> batch_size({"text": ["a", "b", "c"]}), batch_size(["a", "b"])
    (3, 2)
    """
    sizes = _sizes(batch)
    if len(sizes) == 1:
        return sizes.pop()
    told = f"parts of several sizes, {sorted(sizes)}" if sizes else "no tensor with a dimension"
    raise UsageError(
        f"The batch cannot be split: it has {told}",
        hint="pass a list of samples, and let `step` make a batch from them",
    )


def part_of(batch: Any, start: int, stop: int, size: int) -> Any:
    """The samples from `start` to `stop` of a batch of `size`.

    >>> part_of({"x": [1, 2, 3], "name": "train"}, 1, 3, 3)
    {'x': [2, 3], 'name': 'train'}
    """
    return _over(batch, lambda column: column[start:stop] if len(column) == size else column)


def cuts(size: int, micro: int) -> list[tuple[int, int]]:
    """Where a batch of `size` is cut into parts of at most `micro`.

    >>> cuts(10, 4)
    [(0, 4), (4, 8), (8, 10)]
    """
    return [(start, min(size, start + micro)) for start in range(0, size, micro)]


def _over(batch: Any, column: Callable[[Any], Any]) -> Any:
    """The same nest, with `column` of each tensor, array and list of samples in it."""
    if len(getattr(batch, "shape", ())) or (isinstance(batch, list) and _holds_samples(batch)):
        return column(batch)
    if isinstance(batch, Mapping):
        same: Any = copy.copy(batch)  # a tokenizer's batch stays one
        for key, one in batch.items():
            same[key] = _over(one, column)
        return same
    if isinstance(batch, list | tuple):
        parts = [_over(one, column) for one in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        given = [field.name for field in dataclasses.fields(batch) if field.init]
        return dataclasses.replace(
            batch, **{name: _over(getattr(batch, name), column) for name in given}
        )
    return batch


def _sizes(batch: Any) -> set[int]:
    """What the parts of a batch say: nothing, its size, or several that contradict."""
    sizes = set[int]()

    def seen(column: Any) -> Any:
        sizes.add(len(column))
        return column

    _over(batch, seen)
    return sizes


def _holds_samples(batch: list[Any]) -> bool:
    """Whether a list holds a sample in each place, not a column: texts, targets of a detection
    batch, images and clouds of their own sizes. No column looks like a picture.

    >>> _holds_samples(["a", "b"]), _holds_samples([{"boxes": 1}]), _holds_samples([["a"], ["b"]])
    (True, True, False)
    """
    shapes = [tuple(getattr(one, "shape", ())) for one in batch]
    pictures = len(batch) > 1 and all(len(one) == 3 and one[0] in CHANNELS for one in shapes)
    targets = all(isinstance(one, Mapping) for one in batch)
    return bool(batch) and (pictures or targets or len(set[int]().union(*map(_sizes, batch))) != 1)


# --- what a loss is a mean over -----------------------------------------------------------------

LABELS = (functional.cross_entropy, functional.nll_loss)
MEANS = (
    functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss,
    functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits,
)  # fmt: skip
"""Of their elements."""


class Counted(Frozen):
    """One part of a batch: its samples, and what each loss of its step divided by."""

    samples: int
    divisors: tuple[float, ...]
    rough: bool
    """Whether autocast computed something in 16 bits."""

    @property
    def weight(self) -> float | None:
        """What the part's loss is a mean over, where its losses agree; None if none told."""
        return self.divisors[0] if len(set(self.divisors)) == 1 else None


class Watching(TorchFunctionMode):  # type: ignore[misc]
    """Sees the loss functions while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor | float] = []
        self.rough = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():
            return result
        if isinstance(result, torch.Tensor):
            self.rough |= result.dtype in (torch.float16, torch.bfloat16)
        if func in LABELS + MEANS and getattr(result, "requires_grad", False):
            divisor = _divisor(func, args, kwargs or {})
            self.seen += [] if divisor is None else [divisor]
        return result


def _divisor(func: Any, args: Any, kwargs: Any) -> torch.Tensor | float | None:
    """What a loss function divides its sum by; None if it takes no mean."""
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    said = bound.arguments
    scores, target = said["input"], said["target"]
    if said["reduction"] != "mean":
        return None
    if func in MEANS:
        return float(torch.broadcast_shapes(scores.shape, target.shape).numel())
    if target.is_floating_point():  # probabilities: the samples
        return float(target.numel() / scores.shape[1 if scores.dim() > 1 else 0])
    kept = target != said["ignore_index"]
    if said["weight"] is None:
        return kept.sum()
    return said["weight"].detach()[target[kept]].sum()


# --- a batch, asked in parts --------------------------------------------------------------------


class Case(Frozen):
    """What is asked of each part."""

    step: Callable[[Any], torch.Tensor]
    batch: Any
    count: int
    sums: bool
    weight: Callable[[Any], float] | None

    def loss(self, part: Any) -> torch.Tensor:
        loss = self.step(part)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            raise UsageError(
                "`step` must return the loss, a tensor with one number",
                hint="return the mean over the samples, and do not call backward yourself",
            )
        return loss

    def part(self, start: int, stop: int, told: list[Counted]) -> tuple[torch.Tensor, float]:
        """A part's loss, and how much it counts; `told` hears what it was a mean over."""
        part = part_of(self.batch, start, stop, self.count)
        with Watching() as seen:
            loss = self.loss(part)
        divisors = tuple(float(one) for one in seen.seen)
        told.append(Counted(samples=stop - start, divisors=divisors, rough=seen.rough))
        if self.sums:
            return loss, 1.0
        if self.weight is not None:
            return loss, float(self.weight(part))
        known = told[-1].weight
        return loss, float(stop - start) if known is None else known

    def uneven(self, parts: Sequence[Counted]) -> list[str]:
        """What the losses of the parts said that no weight of the parts can make up for."""
        told = any(one.divisors for one in parts) and any(one.weight is None for one in parts)
        ratios = {tuple(round(n / one.samples, 9) for n in one.divisors) for one in parts}
        if self.sums or self.weight is not None or not told or len(ratios) == 1:
            return []
        return [
            "several losses count different things, so the parts are only averaged (give `weight=`)"
        ]


# --- whether the parts are exact ----------------------------------------------------------------

CLOSE = {False: 1e-4, True: 5e-2}
"""The share of the gradient, whose terms may cancel, that rounding explains: of float32, and (True)
where products are computed in 16 bits."""
NORMS = torch.nn.modules.batchnorm._BatchNorm
DRAWN = (torch.nn.modules.dropout._DropoutNd, torch.nn.RNNBase, torch.nn.MultiheadAttention)


def off_by(case: Case, start: int, micro: int, model: torch.nn.Module) -> str | None:
    """In words by how much the gradient of `micro` samples from `start` on is not that of their
    two halves; None if it is."""
    told, middle = list[Counted](), start + micro // 2
    given = [one for one in model.parameters() if one.requires_grad]
    try:
        with _steady(model):
            before = torch.get_rng_state()
            whole, _ = case.part(start, start + micro, told)
            if not torch.equal(before, torch.get_rng_state()):
                return None  # random numbers are said on their own; nothing can be compared
            left = torch.autograd.grad(whole, given, materialize_grads=True)
            scale = _norm(left)
            halves = [case.part(start, middle, told), case.part(middle, start + micro, told)]
            share = 1.0 if case.sums else sum(weight for _, weight in halves)
            for loss, weight in halves if share else ():
                if weight:
                    counted = loss * (weight / share)
                    part = torch.autograd.grad(counted, given, materialize_grads=True)
                    for one, two in zip(left, part, strict=True):
                        one.sub_(two)
                    scale += _norm(part)
    except GpuSetupError:
        raise
    except Exception as problem:  # also a checkpoint of the old kind
        why = "memory ran out" if is_out_of_memory(problem) else type(problem).__name__
        return f"gpusetup did not check whether the loss may be split ({why})"
    off = 2 * _norm(left) / scale if scale else 0.0
    rough = any(one.rough for one in told) or whole.dtype in (torch.float16, torch.bfloat16)
    if off <= CLOSE[rough]:
        return None
    return (
        f"the gradient of {micro} samples is {100 * off:.2g} % off that of their halves (a mean"
        " over parts, which `weight=` makes exact; a loss over pairs or the whole batch, which must"
        " not be split; or a backward that is not linear)"
    )


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.hypot(*(float(one.detach().double().norm()) for one in tensors))


@contextmanager
def _steady(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout and TF32, and with BatchNorm's own statistics, which are said elsewhere."""
    moved = [m for m in model.modules() if isinstance(m, (*DRAWN, NORMS)) and m.training]
    exact = (torch.backends.cuda.matmul, torch.backends.cudnn)
    allowed = [one.allow_tf32 for one in exact]
    for module in moved:
        module.training = False
    for one in exact:
        one.allow_tf32 = False
    try:
        yield
    finally:
        for one, before in zip(exact, allowed, strict=True):
            one.allow_tf32 = before
        for module in moved:
            module.training = True
