"""Other numbers and positions for the tensors of a call, of the same shapes."""

from __future__ import annotations

from typing import Any, Dict

from .calls import WHOLE, Call, replaced

KINDS: Dict[str, bool] = {
    "whole": True,
    "fractions": False,
    "large": False,
    "equal": True,
    "sorted": True,
    "special": False,
}
"""Numbers: small whole ones of both signs, below 1, of 4 to 4,096, of two values alone, in order,
with NaN, infinities and -0. Whether whole formats have them too: there no sum may wrap around."""
POSITIONS = ("same-index", "index-runs", "index-back", "index-mixed")
SPECIAL_SHARE = 0.1


class NoPart(Exception):
    """Why a call has no such part."""


def is_index(torch: Any, x: Any, dtype: str) -> bool:
    """Whether a tensor holds positions or counts, not numbers of the working format."""
    return (
        x.dtype in (torch.int64, torch.int32)
        and x.dtype != getattr(torch, dtype)
        and x.layout == torch.strided
        and x.numel() > 1
    )


def is_number(torch: Any, x: Any, dtype: str) -> bool:
    of_format = x.dtype == getattr(torch, dtype) or x.is_floating_point() or x.is_complex()
    return of_format and x.layout == torch.strided and not x.is_nested


def put(x: Any, values: Any) -> Any:
    """The values in the format of `x`, and learning as it does."""
    y = values.detach().to(x.dtype)
    return y.requires_grad_() if x.requires_grad else y


def changed_numbers(making: Any, kind: str) -> Call:
    """The call with other numbers of one kind."""
    torch = making.torch
    alone = kind in ("special", "large")
    # Gradients there are 0 times infinity, or 1 less almost 1.

    def made(x: Any) -> Any:
        if not is_number(torch, x, making.dtype) or not x.numel():
            return x.detach() if alone else x
        if making.keeps_places and kind not in ("fractions", "large"):
            return put(x, apart(making, x))
        found = put(x, _numbers(making, kind, x.detach()))
        return found.detach() if alone else found

    return replaced(torch, making.call, made)


def _numbers(making: Any, kind: str, x: Any) -> Any:
    if x.is_complex():
        parts = [_numbers(making, kind, each) for each in (x.real, x.imag)]
        return making.torch.complex(*[each.double() for each in parts])
    return {
        "whole": _small,
        "fractions": _fractions,
        "large": _large,
        "equal": _of_two,
        "sorted": _in_order,
        "special": _special,
    }[kind](making, x)


def _small(making: Any, x: Any) -> Any:
    low, high = (0, 5) if x.dtype == making.torch.uint8 else (-3, 4)
    return making.torch.randint(low, high, tuple(x.shape), generator=making.made)


def _uniform(making: Any, x: Any) -> Any:
    torch = making.torch
    return torch.rand(tuple(x.shape), generator=making.made, dtype=torch.float64)


def _fractions(making: Any, x: Any) -> Any:
    low = making.chance.choice((-1.0, 0.0))
    return _uniform(making, x) * (0.999 - low) + low


def _large(making: Any, x: Any) -> Any:
    torch = making.torch
    signs = torch.randint(0, 2, tuple(x.shape), generator=making.made) * 2 - 1
    top = 5 if making.dtype == "float16" else 10
    return signs * 2 ** (2 + top * _uniform(making, x))


def _of_two(making: Any, x: Any) -> Any:
    flat = x.reshape(-1)
    two = [flat[making.chance.randrange(x.numel())] for _ in range(2)]
    return making.torch.where(_uniform(making, x) < 0.8, *two)


def _in_order(making: Any, x: Any) -> Any:
    return x.reshape(-1).sort(descending=making.chance.random() < 0.5)[0].reshape(x.shape)


def _special(making: Any, x: Any) -> Any:
    nan = float("nan")
    kinds = making.chance.choice(
        [(nan,), (float("inf"),), (-0.0, 0.0), (nan, float("inf"), float("-inf"), -0.0)]
    )
    flat = x.double().reshape(-1).clone()
    count = max(1, int(SPECIAL_SHARE * flat.numel()))
    for place in making.torch.randperm(flat.numel(), generator=making.made)[:count].tolist():
        flat[place] = making.chance.choice(kinds)
    return flat.reshape(x.shape)


def apart(making: Any, x: Any) -> Any:
    """Numbers of which no two are alike in the format, as long as it has so many."""
    torch = making.torch
    order = torch.randperm(x.numel(), generator=making.made).reshape(x.shape)
    if x.dtype in (torch.float16, torch.bfloat16):
        steps = 1024 if x.dtype == torch.float16 else 128
        most = 16 * steps
        size = (1 + (order % steps) / steps) * 2.0 ** ((order % most) // steps - 8)
        found = torch.where(order < most, size, -size)
    else:
        found = order - (0 if x.dtype == torch.uint8 else x.numel() // 2)
        most = 2**7 if x.dtype in (torch.int8, torch.uint8) else 2**14
    if x.numel() > 2 * most:
        raise NoPart("the format has not so many numbers")
    return found


def changed_positions(making: Any, kind: str) -> Call:
    """The call with its positions in another order; only values that the sample has."""
    torch = making.torch

    def made(x: Any) -> Any:
        if not is_index(torch, x, making.dtype):
            return x
        flat = x.reshape(-1)
        if kind == "same-index":
            return flat[making.chance.randrange(flat.numel())].expand_as(x).clone()
        if kind == "index-runs":
            return flat.sort()[0].reshape(x.shape)
        if kind == "index-back":
            return flat.flip(0).reshape(x.shape)
        return flat[torch.randperm(flat.numel(), generator=making.made)].reshape(x.shape)

    return replaced(torch, making.call, made)


def jittered(making: Any, x: Any) -> Any:
    """Numbers up to a quarter nearer to 0, so that lines that were repeated are not alike."""
    if making.dtype in WHOLE or not is_number(making.torch, x, making.dtype) or not x.numel():
        return x
    wide = x.detach().to(making.torch.complex128 if x.is_complex() else making.torch.float64)
    return put(x, wide * (1 - _uniform(making, x) / 4))
