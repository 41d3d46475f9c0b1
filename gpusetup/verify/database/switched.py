"""Variants of a call: with its options switched, or with its lists repeated."""

from __future__ import annotations

from typing import Any

from .calls import Call, replaced, tensors_of_call
from .draw import Draw

KEPT = ("sorted", "stable", "train", "training", "inplace", "out_int32", "sparse", "hermitian")
"""Options that must keep their value, because switching them leaves an order undefined, draws
random numbers, writes to an argument, or makes a false claim about an argument (`hermitian`)."""


def otherwise(draw: Draw, call: Call) -> Call:
    """Returns the call with each boolean option switched, except those in KEPT.

    If all tensors have the same shape, all except the first are shortened to length 1 along one
    axis, so that they are broadcast.
    """
    torch = draw.torch
    tensors = tensors_of_call(torch, call)
    options = dict(call.options)
    for name, value in call.options.items():
        if type(value) is bool and name not in KEPT:
            options[name] = not value
    call = call._replace(options=options)
    first = tensors[0] if tensors else torch.empty(())
    if not first.dim() or not first.numel():
        return call
    for x in tensors:
        # int64 tensors may be indices, which must not be broadcast.
        names_places = x.dtype == torch.int64
        if names_places or x.shape != first.shape:
            return call
    # Along this axis, all tensors except the first get length 1.
    axis = draw.choice(range(first.dim()))

    def cut(x: Any) -> Any:
        if x is first:
            return x
        y = x.detach().narrow(axis, 0, 1).clone()
        return y.requires_grad_(x.requires_grad)

    return replaced(torch, call, cut)


def with_repeated_lists(torch: Any, call: Call, times: int) -> Call:
    """Returns the call with its lists repeated `times` times, so that they can have more tensors
    than one kernel processes."""
    list_length = len(call.args[0])

    def repeat(argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            # Repeat a tensor that has one number for each tensor in the list, such as the scalars
            # of `_foreach_mul`.
            return argument.repeat(times) if argument.shape == (list_length,) else argument
        return argument * times if isinstance(argument, list) else argument

    args = tuple(repeat(argument) for argument in call.args)
    options = {name: repeat(option) for name, option in call.options.items()}
    return call._replace(args=args, options=options)
