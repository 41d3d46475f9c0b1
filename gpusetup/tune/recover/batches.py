"""Cuts a batch into parts, and finds the number that the mean loss of a part is divided by.

A batch is a tensor or array, or a tuple, list, mapping or named tuple of batches.
Tensors, arrays and lists whose first dimension is the batch size are cut along it; each part gets
everything else unchanged.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from gpusetup.errors import UsageError

CHANNELS = (1, 3, 4)
"""The first dimension of an image: grey, RGB or RGBA."""


def batch_size(batch: Any) -> int:
    """The number of samples in a batch; UsageError if the batch's tensors have different lengths or
    if there are none.

    >>> batch_size({"text": ["a", "b", "c"]}), batch_size(["a", "b"])
    (3, 2)
    """
    sizes = _lengths(batch)
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


def _over(batch: Any, column: Callable[[Any], Any]) -> Any:
    """A batch of the same structure, with the function `column` applied to each tensor, array and
    list of samples."""
    has_dimensions = len(getattr(batch, "shape", ())) > 0
    if has_dimensions or (isinstance(batch, list) and _holds_samples(batch)):
        return column(batch)
    if isinstance(batch, Mapping):
        copied: Any = copy.copy(batch)  # keeps the type of a tokenizer's batch
        for key, value in batch.items():
            copied[key] = _over(value, column)
        return copied
    if isinstance(batch, list | tuple):
        parts = [_over(value, column) for value in batch]
        # A named tuple takes its fields as separate arguments.
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def _lengths(batch: Any) -> set[int]:
    """The lengths of all tensors, arrays and lists in a batch."""
    lengths = set[int]()

    def note(column: Any) -> Any:
        lengths.add(len(column))
        return column

    _over(batch, note)
    return lengths


def _holds_samples(batch: list[Any]) -> bool:
    """Whether each item of a list is a sample, such as a text, a detection target or an image;
    otherwise the items are columns of the batch.

    >>> _holds_samples(["a", "b"]), _holds_samples([{"boxes": 1}]), _holds_samples([["a"], ["b"]])
    (True, True, False)
    """
    if not batch:
        return False
    # A list of dicts holds one sample per item, such as the targets of a detection batch.
    if all(isinstance(sample, Mapping) for sample in batch):
        return True
    shapes = [tuple(getattr(sample, "shape", ())) for sample in batch]
    if len(batch) > 1 and all(len(shape) == 3 and shape[0] in CHANNELS for shape in shapes):
        return True
    # Columns of a batch all have the same length, so items of different lengths are samples.
    return len(set().union(*map(_lengths, batch))) != 1


# --- the number that a mean loss is divided by ----------------------------------------------------

LABEL_LOSSES = (functional.cross_entropy, functional.nll_loss)
"""Losses that leave ignored labels out, and are divided by the sum of the class weights."""
ELEMENT_LOSSES = (
    functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss,
    functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits,
)  # fmt: skip
"""Losses that are divided by the number of elements."""
HALF_TYPES = (torch.float16, torch.bfloat16)


class LossWatcher(TorchFunctionMode):  # type: ignore[misc]
    """A context manager that records the number by which each of torch's loss functions divides its
    sum, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.divisors: list[torch.Tensor | float] = []
        self.in_16_bits = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        result = func(*args, **keywords)
        # Do not record anything while the compiler traces this function.
        if torch.compiler.is_compiling() or not isinstance(result, torch.Tensor):
            return result
        self.in_16_bits |= result.dtype in HALF_TYPES
        # Skip losses without a gradient, which are computed only to be printed.
        if result.requires_grad and (func in LABEL_LOSSES or func in ELEMENT_LOSSES):
            divisor = _divisor(func, args, keywords)
            if divisor is not None:
                self.divisors.append(divisor)
        return result


def _divisor(func: Any, args: Any, kwargs: Any) -> torch.Tensor | float | None:
    """The number by which a loss function divides its sum; None if the loss is not a mean."""
    call = inspect.signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    arguments = call.arguments
    scores, target = arguments["input"], arguments["target"]
    if arguments["reduction"] != "mean":
        return None
    if func in ELEMENT_LOSSES:
        return float(torch.broadcast_shapes(scores.shape, target.shape).numel())
    if target.is_floating_point():
        # The target contains class probabilities along this dimension, so divide by the number of
        # samples.
        return float(target.numel() / scores.shape[1 if scores.dim() > 1 else 0])
    counted = target != arguments["ignore_index"]
    class_weights = arguments["weight"]
    if class_weights is None:
        return counted.sum()
    return class_weights.detach()[target[counted]].sum()
