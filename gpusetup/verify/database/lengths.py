"""Other lengths for the tensors of a call: lines along an axis are taken again, or left out."""

from __future__ import annotations

import contextlib
from math import ceil, prod
from typing import Any, Dict, Iterator, List, Tuple

from .calls import Call, exactly, plain, replaced, tensors_of
from .numbers import NoPart, apart, is_number, jittered, put

MOST_ELEMENTS = 2**17
MOST_ANSWERED = 2**19
TRIES = 3
MEASURED = 512
"""From this length on the answer's size is asked first, on torch's device without memory."""
Axes = Dict[int, List[int]]
"""Of tensors by number: their axes that get the new length."""


def lengthened(making: Any, length: int, runs: bool, elements: int = 0) -> bool:
    """One axis of the call has another length; of `elements`, so many that a tensor has these."""
    torch = making.torch
    tensors = tensors_of(torch, (making.call.given, making.call.options))
    places = [
        (i, axis)
        for i, x in enumerate(tensors)
        if x.layout == torch.strided and not x.is_nested and x.numel()
        for axis in range(x.dim())
    ]
    for _ in range(TRIES if places else 0):
        tensor, axis = making.chance.choice(places)
        x = tensors[tensor]
        long = ceil(elements * x.shape[axis] / x.numel()) if elements else length
        if long == x.shape[axis] or (elements and x.numel() >= elements):
            continue
        for axes in _plans(making, tensors, tensor, axis):
            if _fits(tensors, axes, long) and _taken(making, axes, long, runs):
                return True
    return False


def _plans(making: Any, tensors: List[Any], tensor: int, axis: int) -> Iterator[Axes]:
    """Which axes may have to be as long as the chosen one."""
    count = tensors[tensor].shape[axis]
    back = axis - tensors[tensor].dim()
    same = {
        i: [x.dim() + back]
        for i, x in enumerate(tensors)
        if x.dim() >= -back and x.shape[back] == count
    }
    first = {i: [list(x.shape).index(count)] for i, x in enumerate(tensors) if count in x.shape}
    every = {i: [k for k, n in enumerate(x.shape) if n == count] for i, x in enumerate(tensors)}
    found: List[Axes] = []
    for each in ({tensor: [axis]}, same, {**first, tensor: [axis]}, every):
        axes = {i: kept for i, kept in each.items() if kept}
        if axes not in found:
            found.append(axes)
    making.chance.shuffle(found)
    yield from found


def _fits(tensors: List[Any], axes: Axes, long: int) -> bool:
    for i, which in axes.items():
        x = tensors[i]
        count = x.numel() // max(1, x.shape[which[0]]) ** len(which) * long ** len(which)
        if count > MOST_ELEMENTS:
            return False
    return True


def _taken(making: Any, axes: Axes, long: int, runs: bool) -> bool:
    torch = making.torch
    chosen: Dict[int, Any] = {}
    number = iter(range(10**6))

    def made(x: Any) -> Any:
        mine = axes.get(next(number))
        if not mine or x.layout != torch.strided or not x.numel():
            return x
        y = x.detach()
        for axis in mine:
            y = y.index_select(axis, _lines(making, chosen, x.shape[axis], long, runs))
        if making.keeps_places and is_number(torch, x, making.dtype):
            return put(x, apart(making, y))
        return put(x, y if runs else jittered(making, y))

    call = replaced(torch, making.call, made)
    if long >= MEASURED and _answered(making, call) > MOST_ANSWERED:
        return False
    return bool(making.take(call))


def _lines(making: Any, chosen: Dict[int, Any], count: int, long: int, runs: bool) -> Any:
    if count not in chosen:
        torch = making.torch
        lines = torch.randint(0, max(1, count), (long,), generator=making.made)
        chosen[count] = lines.sort()[0] if runs else lines
    return chosen[count]


def _answered(making: Any, call: Call) -> int:
    """How many elements a call answers, or its arguments have when they meet element by element; 0
    where that is not known."""
    torch = making.torch
    wide = exactly(torch, call, making.dtype)
    with contextlib.suppress(RuntimeError):  # they do not meet
        met = torch.broadcast_shapes(*(x.shape for x in tensors_of(torch, wide.given)))
        if prod(met) > MOST_ANSWERED:
            return prod(met)
    nowhere = replaced(torch, wide, lambda x: x.detach().to("meta"))
    try:
        with torch.no_grad():
            raw = making.form.run(*nowhere.given, **nowhere.options)
        return max((x.numel() for x in plain(torch, raw)), default=0)
    except Exception:  # depends on the numbers, or has no such device
        return 0


def one_line(making: Any, call: Call) -> Call:
    """One tensor has length 1 along an axis, or lacks its first axis."""
    torch = making.torch
    tensors = tensors_of(torch, (call.given, call.options))
    places: List[Tuple[int, int]] = [
        (i, axis)
        for i, x in enumerate(tensors)
        if x.layout == torch.strided and not x.is_nested
        for axis in range(x.dim())
        if x.shape[axis] > 1
    ]
    if len(tensors) < 2 or not places:
        raise NoPart("nothing to broadcast")
    tensor, axis = making.chance.choice(places)
    drop = axis == 0 and making.chance.random() < 0.5
    number = iter(range(10**6))

    def made(x: Any) -> Any:
        if next(number) != tensor:
            return x
        y = x.detach()
        return put(x, y[0].clone() if drop else y.narrow(axis, 0, 1).clone())

    return replaced(torch, call, made)
