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
    problem = f"parts of several sizes, {sorted(sizes)}" if sizes else "no tensor with a dimension"
    raise UsageError(
        f"The batch cannot be split: it has {problem}",
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
        copied: Any = copy.copy(batch)  # a tokenizer's batch stays one
        for key, one in batch.items():
            copied[key] = _over(one, column)
        return copied
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
    """The lengths of the columns of a batch: one if it can be cut."""
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

LABEL_LOSSES = (functional.cross_entropy, functional.nll_loss)
ELEMENT_LOSSES = (
    functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss,
    functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits,
)  # fmt: skip
"""Losses whose mean is over the elements."""


class PartLosses(Frozen):
    """One part of a batch: its samples, and what each loss of its step divided by."""

    samples: int
    divisors: tuple[float, ...]
    in_16_bits: bool
    """Whether autocast computed something in 16 bits."""

    @property
    def weight(self) -> float | None:
        """What the part's loss is a mean over; None if its losses disagree or none is known."""
        return self.divisors[0] if len(set(self.divisors)) == 1 else None


class LossWatcher(TorchFunctionMode):  # type: ignore[misc]
    """Notes what each loss function divides by, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.divisors: list[torch.Tensor | float] = []
        self.in_16_bits = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():
            return result
        if isinstance(result, torch.Tensor):
            self.in_16_bits |= result.dtype in (torch.float16, torch.bfloat16)
        if func in LABEL_LOSSES + ELEMENT_LOSSES and getattr(result, "requires_grad", False):
            divisor = _divisor(func, args, kwargs or {})
            self.divisors += [] if divisor is None else [divisor]
        return result


def _divisor(func: Any, args: Any, kwargs: Any) -> torch.Tensor | float | None:
    """What a loss function divides its sum by; None if it takes no mean."""
    call = inspect.signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    arguments = call.arguments
    scores, target = arguments["input"], arguments["target"]
    if arguments["reduction"] != "mean":
        return None
    if func in ELEMENT_LOSSES:
        return float(torch.broadcast_shapes(scores.shape, target.shape).numel())
    if target.is_floating_point():  # probabilities: the samples
        return float(target.numel() / scores.shape[1 if scores.dim() > 1 else 0])
    counted = target != arguments["ignore_index"]
    if arguments["weight"] is None:
        return counted.sum()
    return arguments["weight"].detach()[target[counted]].sum()


# --- a batch, asked in parts --------------------------------------------------------------------


class BatchStep(Frozen):
    """One batch, and the step whose loss is taken of its parts."""

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

    def part(self, start: int, stop: int, parts: list[PartLosses]) -> tuple[torch.Tensor, float]:
        """A part's loss, and how much it counts; what it is a mean over is added to `parts`."""
        part = part_of(self.batch, start, stop, self.count)
        with LossWatcher() as watcher:
            loss = self.loss(part)
        divisors = tuple(float(one) for one in watcher.divisors)
        parts.append(
            PartLosses(samples=stop - start, divisors=divisors, in_16_bits=watcher.in_16_bits)
        )
        if self.sums:
            return loss, 1.0
        if self.weight is not None:
            return loss, float(self.weight(part))
        weight = parts[-1].weight
        return loss, float(stop - start) if weight is None else weight

    def uneven_losses(self, parts: Sequence[PartLosses]) -> list[str]:
        """Why no weight of the parts gives the whole batch's loss; [] if one does."""
        some_disagree = any(one.divisors for one in parts) and any(
            one.weight is None for one in parts
        )
        ratios = {tuple(round(n / one.samples, 9) for n in one.divisors) for one in parts}
        if self.sums or self.weight is not None or not some_disagree or len(ratios) == 1:
            return []
        return [
            "several losses count different things, so the parts are only averaged (give `weight=`)"
        ]


# --- whether the parts are exact ----------------------------------------------------------------

TOLERANCE = {False: 1e-4, True: 5e-2}
"""The share of the gradient, whose terms may cancel, that rounding explains: of float32, and (True)
where products are computed in 16 bits."""
BATCH_NORM = torch.nn.modules.batchnorm._BatchNorm
RANDOM_MODULES = (
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.RNNBase,
    torch.nn.MultiheadAttention,
)


def gradient_difference(
    case: BatchStep, start: int, micro: int, model: torch.nn.Module
) -> str | None:
    """How far the gradient of `micro` samples from `start` on is from that of their two halves, in
    words; None if rounding explains it."""
    parts, middle = list[PartLosses](), start + micro // 2
    trained = [one for one in model.parameters() if one.requires_grad]
    try:
        with _deterministic(model):
            random_state = torch.get_rng_state()
            whole, _ = case.part(start, start + micro, parts)
            if not torch.equal(random_state, torch.get_rng_state()):
                return None  # random numbers are said on their own; nothing can be compared
            difference = torch.autograd.grad(whole, trained, materialize_grads=True)
            scale = _norm(difference)
            halves = [case.part(start, middle, parts), case.part(middle, start + micro, parts)]
            total_weight = 1.0 if case.sums else sum(weight for _, weight in halves)
            for loss, weight in halves if total_weight else ():
                if weight:
                    counted = loss * (weight / total_weight)
                    part = torch.autograd.grad(counted, trained, materialize_grads=True)
                    for one, two in zip(difference, part, strict=True):
                        one.sub_(two)
                    scale += _norm(part)
    except GpuSetupError:
        raise
    except Exception as problem:  # also a checkpoint of the old kind
        why = "memory ran out" if is_out_of_memory(problem) else type(problem).__name__
        return f"gpusetup did not check whether the loss may be split ({why})"
    error = 2 * _norm(difference) / scale if scale else 0.0
    is_16_bit = any(one.in_16_bits for one in parts) or whole.dtype in (
        torch.float16,
        torch.bfloat16,
    )
    if error <= TOLERANCE[is_16_bit]:
        return None
    return (
        f"the gradient of {micro} samples is {100 * error:.2g} % off that of their halves (a mean"
        " over parts, which `weight=` makes exact; a loss over pairs or the whole batch, which must"
        " not be split; or a backward that is not linear)"
    )


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.hypot(*(float(one.detach().double().norm()) for one in tensors))


@contextmanager
def _deterministic(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout and TF32, and with BatchNorm's running statistics."""
    modules = [
        m for m in model.modules() if isinstance(m, (*RANDOM_MODULES, BATCH_NORM)) and m.training
    ]
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    allowed_tf32 = [one.allow_tf32 for one in backends]
    for module in modules:
        module.training = False
    for one in backends:
        one.allow_tf32 = False
    try:
        yield
    finally:
        for one, before in zip(backends, allowed_tf32, strict=True):
            one.allow_tf32 = before
        for module in modules:
            module.training = True
