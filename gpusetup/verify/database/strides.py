"""Other strides for the tensors of a call, each its own."""

from __future__ import annotations

import warnings
from typing import Any, List

from ..operators.drawing import laid_out
from .calls import Call, exactly, fresh, replaced, tensors_of
from .numbers import NoPart

LAYOUTS = ("as it is", "axes", "axes", "step", "step", "offset", "back", "channels-last", "pitched")


def laid_out_anew(making: Any, x: Any) -> Any:
    """The same numbers with other strides."""
    torch = making.torch
    if x.layout != torch.strided or x.is_nested or not x.dim() or not x.numel():
        return x
    y = _laid_out(making, x.detach(), making.chance.choice(LAYOUTS))
    return y.requires_grad_() if x.requires_grad else y


def _laid_out(making: Any, x: Any, kind: str) -> Any:
    if kind in ("axes", "back"):
        order = list(range(x.dim()))[::-1]
        if kind == "axes":
            making.chance.shuffle(order)
        back = [order.index(axis) for axis in range(x.dim())]
        return x.permute(order).contiguous().permute(back)
    if kind == "step":
        axis = making.chance.randrange(x.dim())
        return laid_out(making.torch, x.movedim(axis, -1), "strided").movedim(-1, axis)
    return laid_out(making.torch, x, kind) if kind != "as it is" else x


def expanded(making: Any, call: Call) -> Call:
    """One tensor is one of its lines, as often as it is long, by a stride of 0."""
    torch = making.torch
    tensors = tensors_of(torch, (call.given, call.options))
    places = [
        (i, axis)
        for i, x in enumerate(tensors)
        if x.layout == torch.strided and not x.is_nested and x.numel()
        for axis in range(x.dim())
        if x.shape[axis] > 1
    ]
    if not places:
        raise NoPart("nothing to expand")
    tensor, axis = making.chance.choice(places)
    number = iter(range(10**6))

    def made(x: Any) -> Any:
        if next(number) != tensor:
            return x
        y = x.detach().narrow(axis, 0, 1).clone().expand(x.shape)
        return y.requires_grad_() if x.requires_grad else y

    return replaced(torch, call, made)


def writes_nothing(torch: Any, run: Any, call: Call, dtype: str) -> bool:
    """Whether float64 takes these strides, and writes into none of its arguments."""
    wide = replaced(torch, exactly(torch, call, dtype), lambda x: x.detach())
    low = tensors_of(torch, (call.given, call.options))
    laid: List[Any] = []
    for x, y in zip(low, tensors_of(torch, (wide.given, wide.options))):
        laid.append(_as(torch, x, y) if x.layout == torch.strided and not x.is_nested else y)
    places = iter(laid)
    own = replaced(torch, fresh(torch, wide), lambda _: next(places))
    before = [x.clone() for x in laid]
    state = torch.get_rng_state()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(*own.given, **own.options)
    except Exception:  # takes no such strides
        return False
    if not torch.equal(state, torch.get_rng_state()):
        torch.set_rng_state(state)
        return False
    pairs = zip(before, laid)
    return all(a.layout != torch.strided or torch.equal(_bits(a), _bits(b)) for a, b in pairs)


def _bits(x: Any) -> Any:
    return x.nan_to_num(12345.0) if x.is_floating_point() or x.is_complex() else x


def _as(torch: Any, x: Any, y: Any) -> Any:
    """The numbers of `y` with the strides of `x`."""
    made = torch.empty_strided(tuple(x.shape), x.stride(), dtype=y.dtype)
    if x.numel():
        single = [slice(0, 1) if step == 0 else slice(None) for step in x.stride()]
        made[tuple(single)] = y[tuple(single)]
    return made
