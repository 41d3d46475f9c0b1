"""Splits a batch into parts, finds how much each part's loss counts, and checks whether the sum is
exact.

A batch is a tensor or array, or a tuple, list, mapping, named tuple or dataclass of batches.
Tensors, arrays and lists whose first dimension is the batch size are cut along it; each part gets
everything else unchanged.

Loss functions divide by different numbers: `cross_entropy` leaves ignored labels out and divides by
the sum of the class weights, other losses divide by the number of elements. So the calls of torch's
loss functions are recorded while a part is computed. A check on a few samples and their two halves
then shows whether the parts give the gradient of the whole batch.
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
    """The number of samples in a batch; UsageError if the batch's tensors have different lengths or
    if there are none.

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
    """The samples from `start` up to `stop` of a batch with `size` samples, in the same structure.

    >>> part_of({"x": [1, 2, 3], "name": "train"}, 1, 3, 3)
    {'x': [2, 3], 'name': 'train'}
    """
    # A column of another length belongs to the whole batch.
    return _over(batch, lambda column: column[start:stop] if len(column) == size else column)


def cuts(size: int, micro: int) -> list[tuple[int, int]]:
    """The start and stop positions that cut a batch of `size` samples into parts of at most
    `micro`.

    >>> cuts(10, 4)
    [(0, 4), (4, 8), (8, 10)]
    """
    return [(start, min(size, start + micro)) for start in range(0, size, micro)]


def _over(batch: Any, column: Callable[[Any], Any]) -> Any:
    """A batch of the same structure, with the function `column` applied to each tensor, array and
    list of samples."""
    has_dimensions = len(getattr(batch, "shape", ())) > 0
    is_list = isinstance(batch, list)
    if has_dimensions or (is_list and _holds_samples(batch)):
        return column(batch)
    if isinstance(batch, Mapping):
        copied: Any = copy.copy(batch)  # keeps the type of a tokenizer's batch
        for key, value in batch.items():
            copied[key] = _over(value, column)
        return copied
    if isinstance(batch, list | tuple):
        parts = [_over(value, column) for value in batch]
        kind = type(batch)
        # A named tuple takes its fields as separate arguments.
        is_named_tuple = hasattr(batch, "_fields")
        return kind(*parts) if is_named_tuple else kind(parts)
    # `is_dataclass` is also true for the class itself, which is not a batch.
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        # The constructor computes fields without `init` from the others.
        names = [field.name for field in dataclasses.fields(batch) if field.init]
        values = {name: _over(getattr(batch, name), column) for name in names}
        return dataclasses.replace(batch, **values)
    return batch


def _sizes(batch: Any) -> set[int]:
    """The lengths of all tensors, arrays and lists in a batch; it can be cut if they all are the
    same."""
    sizes = set[int]()

    def seen(column: Any) -> Any:
        sizes.add(len(column))
        return column

    _over(batch, seen)
    return sizes


def _holds_samples(batch: list[Any]) -> bool:
    """Whether each item of a list is a sample, such as a text, a detection target or an image;
    otherwise the items are columns of the batch.

    >>> _holds_samples(["a", "b"]), _holds_samples([{"boxes": 1}]), _holds_samples([["a"], ["b"]])
    (True, True, False)
    """
    if not batch:
        return False
    # A list of dicts holds one sample per item, such as the targets of a detection batch.
    are_targets = all(isinstance(sample, Mapping) for sample in batch)
    # An image has three dimensions, of which the first is its channels.
    shapes = [tuple(getattr(sample, "shape", ())) for sample in batch]
    are_pictures = all(len(shape) == 3 and shape[0] in CHANNELS for shape in shapes)
    if are_targets or (are_pictures and len(batch) > 1):
        return True
    # Columns of a batch all have the same length, so items of different lengths are samples.
    return len(set().union(*map(_sizes, batch))) != 1


# --- the number that a mean loss is divided by ----------------------------------------------------

LABEL_LOSSES = (functional.cross_entropy, functional.nll_loss)
HALF_TYPES = (torch.float16, torch.bfloat16)
ELEMENT_LOSSES = (
    functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss,
    functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits,
)  # fmt: skip
"""Losses that are divided by the number of elements."""


class PartLosses(Frozen):
    """One part of a batch: its number of samples, and the divisor of each loss that was
    computed."""

    samples: int
    divisors: tuple[float, ...]
    in_16_bits: bool
    """Whether autocast computed something in 16 bits."""

    @property
    def weight(self) -> float | None:
        """The number that the mean of the part's loss is divided by; None if its losses are divided
        by different numbers, or if no loss is known."""
        return self.divisors[0] if len(set(self.divisors)) == 1 else None


class LossWatcher(TorchFunctionMode):  # type: ignore[misc]
    """A context manager that records the number by which each loss function divides its sum."""

    def __init__(self) -> None:
        super().__init__()
        # The divisors are in the order in which the losses were computed.
        self.divisors: list[torch.Tensor | float] = []
        self.in_16_bits = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        result = func(*args, **keywords)
        # Do not record anything while the compiler traces this function.
        if torch.compiler.is_compiling():
            return result
        if isinstance(result, torch.Tensor):
            self.in_16_bits |= result.dtype in HALF_TYPES
        is_loss = func in LABEL_LOSSES or func in ELEMENT_LOSSES
        # Skip losses without a gradient, which are computed only to be printed.
        is_trained = getattr(result, "requires_grad", False)
        if is_loss and is_trained:
            divisor = _divisor(func, args, keywords)
            if divisor is not None:
                self.divisors.append(divisor)
        return result


def _divisor(func: Any, args: Any, kwargs: Any) -> torch.Tensor | float | None:
    """The number by which a loss function divides its sum; None if the loss is not a mean."""
    call = inspect.signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    arguments = call.arguments
    scores = arguments["input"]
    target = arguments["target"]
    if arguments["reduction"] != "mean":
        return None
    if func in ELEMENT_LOSSES:
        shape = torch.broadcast_shapes(scores.shape, target.shape)
        return float(shape.numel())
    if target.is_floating_point():
        # The target contains class probabilities along this dimension, so divide by the number of
        # samples.
        return float(target.numel() / scores.shape[1 if scores.dim() > 1 else 0])
    counted = target != arguments["ignore_index"]
    class_weights = arguments["weight"]
    if class_weights is None:
        return counted.sum()
    return class_weights.detach()[target[counted]].sum()


# --- a batch that is computed in parts ------------------------------------------------------------


class BatchStep(Frozen):
    """A batch, and the step function that computes the loss of any part of it."""

    step: Callable[[Any], torch.Tensor]
    batch: Any
    count: int
    sums: bool
    weight: Callable[[Any], float] | None

    def loss(self, part: Any) -> torch.Tensor:
        """The loss of a part; UsageError if the step does not return a single number."""
        loss = self.step(part)
        is_one_number = isinstance(loss, torch.Tensor) and loss.dim() == 0
        if not is_one_number:
            raise UsageError(
                "`step` must return the loss, a tensor with one number",
                hint="return the mean over the samples, and do not call backward yourself",
            )
        return loss

    def part(self, start: int, stop: int, parts: list[PartLosses]) -> tuple[torch.Tensor, float]:
        """The loss of the samples from `start` to `stop` and its weight; the divisors of the losses
        are appended to `parts`."""
        part = part_of(self.batch, start, stop, self.count)
        with LossWatcher() as watcher:
            loss = self.loss(part)
        samples = stop - start
        divisors = tuple(float(divisor) for divisor in watcher.divisors)
        losses = PartLosses(samples=samples, divisors=divisors, in_16_bits=watcher.in_16_bits)
        parts.append(losses)
        if self.sums:
            return loss, 1.0
        # The user's own weight takes precedence.
        if self.weight is not None:
            return loss, float(self.weight(part))
        if losses.weight is None:
            return loss, float(samples)
        return loss, losses.weight

    def uneven_losses(self, parts: Sequence[PartLosses]) -> list[str]:
        """The reasons why the parts cannot be weighted so that they give the loss of the whole
        batch; [] if they can."""
        if self.sums or self.weight is not None:
            return []
        # If the divisors per sample are the same in all parts, the numbers of samples are the right
        # weights. Rounded, so that floating-point errors do not make parts of different lengths
        # look different.
        ratios = {
            tuple(round(divisor / part.samples, 9) for divisor in part.divisors) for part in parts
        }
        any_is_known = any(part.divisors for part in parts)
        any_disagrees = any(part.weight is None for part in parts)
        if not (any_is_known and any_disagrees) or len(ratios) == 1:
            return []
        return [
            "several losses count different things, so the parts are only averaged (give `weight=`)"
        ]


# --- whether the parts are exact ----------------------------------------------------------------

TOLERANCE_FLOAT32 = 1e-4
"""The relative difference between two gradients that rounding can explain, since their terms may
cancel."""
TOLERANCE_16_BIT = 5e-2
"""The relative difference that rounding can explain if products are computed in 16 bits."""
BATCH_NORM = torch.nn.modules.batchnorm._BatchNorm
RANDOM_MODULES = (
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.RNNBase,
    torch.nn.MultiheadAttention,
)


def gradient_difference(case: BatchStep, micro: int, model: torch.nn.Module) -> str | None:
    """How much the gradient of the first `micro` samples differs from the gradient of their two
    halves, in words; None if rounding explains the difference."""
    parts = list[PartLosses]()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    middle = micro // 2
    try:
        with _deterministic(model):
            random_state = torch.get_rng_state()
            whole, _ = case.part(0, micro, parts)
            if not torch.equal(random_state, torch.get_rng_state()):
                return None  # random numbers are reported separately
            difference = torch.autograd.grad(whole, trained, materialize_grads=True)
            scale = _norm(difference)
            halves = [case.part(0, middle, parts), case.part(middle, micro, parts)]
            total_weight = 1.0 if case.sums else sum(weight for _, weight in halves)
            for loss, weight in halves:
                # In a part in which no sample counts, the mean is NaN.
                if not weight or not total_weight:
                    continue
                share = loss * (weight / total_weight)
                part = torch.autograd.grad(share, trained, materialize_grads=True)
                for gradient, gradient_of_part in zip(difference, part, strict=True):
                    gradient.sub_(gradient_of_part)
                scale += _norm(part)
    except GpuSetupError:
        raise
    except Exception as problem:  # for example with reentrant checkpointing
        why = "memory ran out" if is_out_of_memory(problem) else type(problem).__name__
        return f"gpusetup did not check whether the loss may be split ({why})"
    # `scale` is the sum of both norms, so halve it.
    error = 2 * _norm(difference) / scale if scale else 0.0
    is_16_bit = whole.dtype in HALF_TYPES or any(part.in_16_bits for part in parts)
    if error <= (TOLERANCE_16_BIT if is_16_bit else TOLERANCE_FLOAT32):
        return None
    return (
        f"the gradient of {micro} samples is {100 * error:.2g} % off that of their halves (a mean"
        " over parts, which `weight=` makes exact; a loss over pairs or the whole batch, which must"
        " not be split; or a backward that is not linear)"
    )


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    """The Euclidean norm of all gradients together, as if they were one vector. In 64 bits, because
    a sum of many squares overflows in 16 bits."""
    return math.hypot(*(float(tensor.detach().double().norm()) for tensor in tensors))


@contextmanager
def _deterministic(model: torch.nn.Module) -> Iterator[None]:
    """A context without dropout and TF32, in which BatchNorm uses its running statistics."""
    kinds = (*RANDOM_MODULES, BATCH_NORM)
    modules = [one for one in model.modules() if isinstance(one, kinds) and one.training]
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    allowed_tf32 = [backend.allow_tf32 for backend in backends]
    for module in modules:
        module.training = False
    for backend in backends:
        backend.allow_tf32 = False
    try:
        yield
    finally:
        for backend, before in zip(backends, allowed_tf32, strict=True):
            backend.allow_tf32 = before
        for module in modules:
            module.training = True
