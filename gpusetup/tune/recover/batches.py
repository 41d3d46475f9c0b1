"""Cuts a batch into parts.

A batch is a tensor or array, or a tuple, list, mapping or named tuple of batches.
Tensors, arrays and lists whose first dimension is the batch size are cut along it; each part gets
everything else unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

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
