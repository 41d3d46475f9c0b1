"""Operations whose operands are broadcast along up to four axes. Part of the check `pointwise`.

Each axis of an operand is as long as the result's axis, or has length 1. The operands contain whole
numbers in several memory layouts, and Python lists give the element of each operand for every
element of the result.
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
"""Shapes of the results, with one to four axes. Neighbouring axes differ in length, and some rows
are shorter and some longer than a kernel's vector."""
LONG_SHAPE: Shape = (2, 3, 2, 130)
"""A shape with rows of more than 128 elements. It is only used for add and mul, which models
broadcast most often."""
FLAGS = (True, False, False, True, False, True, True)
DIVISORS = (1, -2, 4, -1, 2, 0.5, -4)
"""Seven powers of two, so that quotients are exact. No axis has length seven, so an operation that
reads a wrong row gets a wrong result."""
NUMBERS = (*range(-7, 9), 0, 11, -9)
"""Nineteen numbers. No axis has that length either, so no row begins like the row before it."""


class Operation(NamedTuple):
    """An operation on two tensors, and the same operation on two Python numbers."""

    name: str
    run: Callable[[Any, Any], Any]
    exact: Callable[[Number, Number], Number]
    has_fractions: bool = False
    """Whether whole operands can have a fractional result."""


def operations() -> Tuple[Operation, ...]:
    """Arithmetic, maximum, minimum and comparisons. All results are exact for the numbers used
    here."""
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
    """Returns first + 2 * second, with torch's argument `alpha`, which the kernel handles
    separately."""
    return torch.add(first, second, alpha=2)


class Operand(NamedTuple):
    """An operand's elements, before and after it is broadcast to the result's shape."""

    values: List[Number]
    """The elements before broadcasting, in row-major order."""
    shape: Shape
    spread: List[Number]
    """The operand's element for each element of the result."""


def spread_operand(values: Tuple[Number, ...], form: Shape, shape: Shape) -> Operand:
    """Make an operand of shape `form` and broadcast it to a result of shape `shape`."""
    elements = repeated(values, prod(form))
    # Find the operand's element for each index of the result. Along an axis of length 1 it is
    # always the same element.
    positions: List[int] = []
    for index in itertools.product(*map(range, shape)):
        position = 0
        for place, length in zip(index, form):
            position = position * length + (place if length > 1 else 0)
        positions.append(position)
    return Operand(elements, form, elements_at(positions, elements))


def forms_of(shape: Shape) -> List[Shape]:
    """Returns all shapes in which none, some or all axes of `shape` have length 1 instead.

    >>> forms_of((2, 3))
    [(2, 3), (2, 1), (1, 3), (1, 1)]
    """
    lengths = [(length, 1) for length in shape]
    return list(itertools.product(*lengths))


def pairs_of_forms(shape: Shape) -> Iterator[Tuple[Shape, Shape]]:
    """Yields each pair of shapes from `forms_of` that broadcast to `shape`. No axis has length 1 in
    both, unless `shape` itself has length 1 there."""
    forms = forms_of(shape)
    for first, second in itertools.product(forms, forms):
        if tuple(map(max, first, second)) == shape:
            yield first, second


# --- layouts --------------------------------------------------------------------------------------


def plain(tensor: Any) -> Any:
    return tensor


def transposed(tensor: Any) -> Any:
    """The same tensor with its axes in reverse order in memory."""
    reversed_axes = list(range(tensor.dim()))[::-1]
    copy = tensor.permute(reversed_axes).contiguous()
    return copy.permute(reversed_axes)


def with_gaps(tensor: Any) -> Any:
    """The same tensor with gaps: its elements are every second element in memory."""
    pairs = torch.stack([tensor, tensor + 1], -1)
    return pairs[..., 0]


def without_first_axes(tensor: Any) -> Any:
    """The same tensor without its leading axes of length 1. A tensor of one element loses all its
    axes."""
    while tensor.dim() and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor


def channels_inside(tensor: Any) -> Any:
    """The same tensor with its second axis contiguous in memory, like channels-last."""
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
    """Catches an operation that uses only the first row, channel or image of an operand, as if it
    were broadcast."""
    all_operations = operations()
    for shape in SHAPES:
        yield from operations_of_shape(all_operations, shape, device)
    yield from operations_of_shape(all_operations[:2], LONG_SHAPE, device)


def dtype_names_on(device: str) -> List[str]:
    """A 32-bit format, a 16-bit format and an integer format, because their kernels differ."""
    halves = "bfloat16" if "bfloat16" in formats_on(device) else "float16"
    return ["float32", halves, "int64"]


def operations_of_shape(
    some_operations: Tuple[Operation, ...], shape: Shape, device: str
) -> Iterator[Part]:
    """Compare these operations for every pair of forms, with a different pair of memory layouts
    each time."""
    # The first layout changes in each turn and the second in every fifth turn, so that all pairs of
    # the five layouts occur.
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
    """Catches a `where` that reads the condition or an operand from the wrong row."""
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
    """For each pair, the first number if its flag is true, otherwise the second."""
    numbers: List[Number] = []
    for flag, number, other in zip(flags, first, second):
        numbers.append(number if flag else other)
    return numbers


def layout_of_flags(layout: Callable[[Any], Any], condition: Any) -> Any:
    """Returns a condition in another memory layout. `with_gaps` fills gaps with the number plus 1,
    which booleans do not support, so here the gaps contain the opposite flag."""
    if layout is with_gaps:
        pairs = torch.stack([condition, ~condition], -1)
        return pairs[..., 0]
    return layout(condition)
