"""Two and three operands that are spread along up to four axes; asked by `pointwise`.

Each axis of an operand is as long as the result's, or 1. Operands of whole numbers lie in memory in
several ways, and Python's lists say which element meets which.
"""

from __future__ import annotations

import itertools
import operator
from math import prod
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

import torch

from ...judging.tolerance import Part
from .answers import exactly, formats_on, tensor_of
from .number_lists import Number, elements_at, repeated

Shape = Tuple[int, ...]
SHAPES: Tuple[Shape, ...] = ((5,), (3, 33), (3, 2, 17), (2, 3, 2, 5))
"""Of the results: one axis to four, of unlike lengths; within a vector, and past it."""
LONG_SHAPE: Shape = (2, 3, 2, 130)
"""Rows past 128 elements, for the two operations that models spread most."""
FLAGS = (True, False, False, True, False, True, True)
DIVISORS = (1, -2, 4, -1, 2, 0.5, -4)
"""Powers of two, so that quotients are exact; seven of them, unlike the length of any axis."""
NUMBERS = (*range(-7, 9), 0, 11, -9)
"""Nineteen numbers, also unlike any axis: no row begins as the row before."""


class Operation(NamedTuple):
    """An operation of two tensors, and the same of two numbers."""

    name: str
    run: Callable[[Any, Any], Any]
    exact: Callable[[Number, Number], Number]
    has_fractions: bool = False
    """Whether whole numbers give others than whole ones."""


def operations() -> Tuple[Operation, ...]:
    """Arithmetic, choices and comparisons; all of them are exact here."""
    return (
        Operation("add", torch.add, operator.add),
        Operation("mul", torch.mul, operator.mul),
        Operation("sub", torch.sub, operator.sub),
        Operation("div", torch.div, operator.truediv, has_fractions=True),
        Operation("maximum", torch.maximum, max),
        Operation("minimum", torch.minimum, min),
        Operation("lt", torch.lt, operator.lt),
        Operation("eq", torch.eq, operator.eq),
        Operation("add twice", add_twice, lambda a, b: a + 2 * b),
    )


def add_twice(first: Any, second: Any) -> Any:
    """The sum by the operand `alpha`, which has a place of its own in the kernel."""
    return torch.add(first, second, alpha=2)


class Operand(NamedTuple):
    """A tensor that is broadcast, and its element at each position of the result."""

    values: List[Number]
    """Its elements in their order."""
    shape: Shape
    spread: List[Number]
    """The element that each place of the result meets."""


def spread_operand(values: Tuple[Number, ...], form: Shape, shape: Shape) -> Operand:
    """An operand of this form, in a result of this shape."""
    elements = repeated(values, prod(form))
    # Each result's index names the element; an axis of length 1 has no part in it.
    positions: List[int] = []
    for index in itertools.product(*map(range, shape)):
        position = 0
        for place, length in zip(index, form):
            position = position * length + (place if length > 1 else 0)
        positions.append(position)
    return Operand(elements, form, elements_at(positions, elements))


def forms_of(shape: Shape) -> List[Shape]:
    """Each way to shorten axes to 1.

    >>> forms_of((2, 3))
    [(2, 3), (2, 1), (1, 3), (1, 1)]
    """
    lengths = [(length, 1) for length in shape]
    return list(itertools.product(*lengths))


def pairs_of_forms(shape: Shape) -> Iterator[Tuple[Shape, Shape]]:
    """Each pair of forms that makes the whole shape together: no axis is 1 in both."""
    forms = forms_of(shape)
    for first, second in itertools.product(forms, forms):
        if tuple(map(max, first, second)) == shape:
            yield first, second


# --- layouts --------------------------------------------------------------------------------------


def plain(tensor: Any) -> Any:
    return tensor


def transposed(tensor: Any) -> Any:
    """The same tensor with the last axis as the outermost one in memory."""
    reversed_axes = list(range(tensor.dim()))[::-1]
    copy = tensor.permute(reversed_axes).contiguous()
    return copy.permute(reversed_axes)


def with_gaps(tensor: Any) -> Any:
    """The same tensor as every second element of a longer row."""
    pairs = torch.stack([tensor, tensor + 1], -1)
    return pairs[..., 0]


def without_first_axes(tensor: Any) -> Any:
    """The same tensor without its leading axes of length 1; a tensor of one element loses all."""
    while tensor.dim() and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor


def channels_inside(tensor: Any) -> Any:
    """The same tensor with the second axis as the innermost one in memory, as in channels last."""
    if tensor.dim() < 3:
        return tensor
    return tensor.transpose(1, -1).contiguous().transpose(1, -1)


LAYOUTS: Tuple[Callable[[Any], Any], ...] = (
    plain,
    transposed,
    with_gaps,
    without_first_axes,
    channels_inside,
)


# --- questions ------------------------------------------------------------------------------------


def spread_pairs(device: str) -> Iterator[Part]:
    """Catches an operand whose first row, channel or image alone is used along another axis."""
    all_operations = operations()
    for shape in SHAPES:
        yield from operations_of_shape(all_operations, shape, device)
    yield from operations_of_shape(all_operations[:2], LONG_SHAPE, device)


def dtype_names_on(device: str) -> List[str]:
    """One format of 32 bits, one of 16 bits, and one of whole numbers, for which kernels differ."""
    halves = "bfloat16" if "bfloat16" in formats_on(device) else "float16"
    return ["float32", halves, "int64"]


def operations_of_shape(
    some_operations: Tuple[Operation, ...], shape: Shape, device: str
) -> Iterator[Part]:
    """Some operations of each pair of forms, laid in memory in other ways from pair to pair."""
    # The first layout changes with each turn and the second with every fifth, so that all pairs of
    # the five layouts come round.
    turns = itertools.count()
    for first_form, second_form in pairs_of_forms(shape):
        first = spread_operand(NUMBERS, first_form, shape)
        second = spread_operand(DIVISORS, second_form, shape)
        whole_second = spread_operand(NUMBERS[3:], second_form, shape)
        for dtype_name in dtype_names_on(device):
            is_whole = dtype_name == "int64"
            other = whole_second if is_whole else second
            first_tensor = tensor_of(first.values, dtype_name, device, *first_form)
            second_tensor = tensor_of(other.values, dtype_name, device, *second_form)
            for operation in some_operations:
                if is_whole and operation.has_fractions:
                    continue
                turn = next(turns)
                first_layout = LAYOUTS[turn % len(LAYOUTS)]
                second_layout = LAYOUTS[turn // len(LAYOUTS) % len(LAYOUTS)]
                exact = list(map(operation.exact, first.spread, other.spread))
                forms = f"{first_form} and {second_form} {dtype_name}"
                label = f"{operation.name} of {forms}"
                computed = operation.run(first_tensor, second_tensor)
                yield exactly(label, computed, exact)
                left = first_layout(first_tensor)
                right = second_layout(second_tensor)
                computed = operation.run(left, right)
                layouts = f"{first_layout.__name__}, {second_layout.__name__}"
                yield exactly(f"{label}, {layouts}", computed, exact)


def spread_choices(device: str) -> Iterator[Part]:
    """Catches a `where` that takes another row's condition, or another row of an operand."""
    turns = itertools.count()
    for shape in (*SHAPES, LONG_SHAPE):
        full = spread_operand(NUMBERS, shape, shape)
        for condition_form, other_form in pairs_of_forms(shape):
            flags = spread_operand(FLAGS, condition_form, shape)
            other = spread_operand(DIVISORS, other_form, shape)
            exact = chosen(flags.spread, full.spread, other.spread)
            opposite = chosen(flags.spread, other.spread, full.spread)
            condition = tensor_of(flags.values, "bool", device, *condition_form)
            for dtype_name in dtype_names_on(device)[:2]:
                layout = LAYOUTS[next(turns) % len(LAYOUTS)]
                first = tensor_of(full.values, dtype_name, device, *shape)
                second = tensor_of(other.values, dtype_name, device, *other_form)
                forms = f"{condition_form}, {shape} and {other_form} {dtype_name}"
                computed = torch.where(condition, first, second)
                yield exactly(f"where of {forms}", computed, exact)
                laid_condition = layout_of_flags(layout, condition)
                computed = torch.where(laid_condition, layout(second), first)
                yield exactly(f"where of {forms}, {layout.__name__}", computed, opposite)


def chosen(flags: List[Number], first: List[Number], second: List[Number]) -> List[Number]:
    """From each pair the first number where its flag is true, else the second one."""
    numbers: List[Number] = []
    for flag, number, other in zip(flags, first, second):
        numbers.append(number if flag else other)
    return numbers


def layout_of_flags(layout: Callable[[Any], Any], condition: Any) -> Any:
    """A condition in another layout. `with_gaps` adds 1, which booleans do not support, so their
    gaps are filled with the opposite."""
    if layout is with_gaps:
        pairs = torch.stack([condition, ~condition], -1)
        return pairs[..., 0]
    return layout(condition)
