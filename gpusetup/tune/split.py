"""Cutting a batch into micro-batches, whatever it is made of. Pure: needs no torch.

A batch is a tensor or array, or a tuple, list, mapping, named tuple or dataclass of batches. What
has a first dimension of the batch's size is cut along it, lists of that length too; everything
else goes into each part as it is.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.errors import UsageError


def batch_size(batch: Any) -> int:
    """The number of samples in a batch.

    >>> batch_size({"text": ["a", "b", "c"]}), batch_size(["a", "b"])
    (3, 2)
    """
    sizes = _sizes(batch)
    if sizes and len(sizes) == 1:
        return next(iter(sizes))
    several = f"sizes {sorted(sizes)}" if sizes else "parts of several sizes"
    told = "no tensor with a first dimension" if sizes is None else several
    raise UsageError(
        f"The batch cannot be split: it has {told}", hint="give `size=` and `split=` yourself"
    )


def part_of(batch: Any, start: int, stop: int, size: int) -> Any:
    """The samples from `start` to `stop` of a batch of `size`.

    >>> part_of({"x": [1, 2, 3], "name": "train"}, 1, 3, 3)
    {'x': [2, 3], 'name': 'train'}
    """
    if _is_tensor(batch):
        return batch[start:stop] if len(batch.shape) and batch.shape[0] == size else batch
    if isinstance(batch, Mapping):
        return _mapping(batch, {k: part_of(v, start, stop, size) for k, v in batch.items()})
    if isinstance(batch, tuple):
        return _tuple(batch, [part_of(one, start, stop, size) for one in batch])
    if isinstance(batch, list):
        return _list(batch, start, stop, size)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in dataclasses.fields(batch) if field.init]
        parts = {name: part_of(getattr(batch, name), start, stop, size) for name in names}
        return dataclasses.replace(batch, **parts)
    return batch


def cuts(size: int, micro: int) -> tuple[tuple[int, int], ...]:
    """Where a batch of `size` is cut into parts of at most `micro`.

    >>> cuts(10, 4)
    ((0, 4), (4, 8), (8, 10))
    """
    return tuple((start, min(size, start + micro)) for start in range(0, size, micro))


def _is_tensor(one: Any) -> bool:
    return hasattr(one, "shape") and hasattr(one, "__getitem__")


def _parts(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        yield from batch.values()
    elif isinstance(batch, list | tuple):
        yield from batch
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        yield from (getattr(batch, field.name) for field in dataclasses.fields(batch))


def _sizes(batch: Any) -> set[int] | None:
    """The sizes that a batch may have, {} where its parts contradict; None where it tells none."""
    if _is_tensor(batch):
        return {int(batch.shape[0])} if len(batch.shape) else None
    if isinstance(batch, list) and _are_samples(batch):
        return {len(batch)}
    columns = _columns(batch)
    if not columns and isinstance(batch, list) and batch:
        return {len(batch)}
    return columns


def _columns(batch: Any) -> set[int] | None:
    """The sizes that all parts agree on; {} where they contradict, None where none tells."""
    told = [one for part in _parts(batch) if (one := _sizes(part)) is not None]
    return set.intersection(*told) if told else None


def _are_samples(batch: list[Any]) -> bool:
    """Whether a list holds a sample in each place, not a column: images and clouds of their own
    sizes, the targets of a detection batch, texts.

    >>> _are_samples(["a", "b"]), _are_samples([{"boxes": 1}]), _are_samples([["a"], ["b"]])
    (True, True, False)
    """
    if not batch:
        return False
    shapes = [tuple(one.shape) for one in batch if _is_tensor(one)]
    if len(shapes) == len(batch):
        firsts = {shape[:1] for shape in shapes}
        return len(firsts) > 1 or () in firsts or (len(batch) > 1 and _are_images(shapes))
    if all(isinstance(one, Mapping) for one in batch):
        return True
    return not any(_is_tensor(one) or isinstance(one, list | tuple) for one in batch)


CHANNELS = (1, 3, 4)


def _are_images(shapes: list[tuple[int, ...]]) -> bool:
    """Of three dimensions, the first of them channels: no column of a batch looks like that."""
    return all(len(shape) == 3 and shape[0] in CHANNELS for shape in shapes)


def _list(batch: list[Any], start: int, stop: int, size: int) -> list[Any]:
    """A list of samples is cut; a list of columns is gone into."""
    if len(batch) == size and (_are_samples(batch) or size not in (_columns(batch) or ())):
        return batch[start:stop]
    return [part_of(one, start, stop, size) for one in batch]


def _tuple(batch: tuple[Any, ...], parts: list[Any]) -> Any:
    return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)


def _mapping(batch: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """The same kind of mapping: a tokenizer's batch stays one."""
    if type(batch) is dict:
        return parts
    same = copy.copy(batch)
    for key, part in parts.items():
        same[key] = part  # type: ignore[index]
    return same
