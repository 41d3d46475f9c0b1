"""Compare each tensor in a result with the exact one: the error allowed in each element, and the
elements that are not judged."""

from __future__ import annotations

import contextlib
from math import inf, log
from typing import Any, Callable, Iterator, List, NamedTuple

from ..judging.tolerance import Part, Wrong, holds, wrong_part
from .calls import Answer, tensors_of_call
from .rules import SLOPE_WITHOUT_SPREAD

STEPS = (1.0, 1.3, 0.7)
"""The distances, in roundoffs, by which arguments are moved to see how the exact result changes.
Each element moves up or down at random."""
FURTHER_STEPS = (2.0, 1.0, 3.0)
"""More distances of the same kind, for a result that is still wrong after the first ones."""
OPPOSITE_STEPS = (1.5, -1.5)
"""Distances by which all elements of one argument move up, and all elements of the next argument
down. If a result has many quotients, each may jump from one whole number to the next, and random
moves miss some of these jumps."""


class ComparedTensor(NamedTuple):
    """A tensor to compare, with its exact value."""

    label: str
    computed: Any
    exact: Any
    in_answer: Callable[[Answer], Any]
    """Returns the same tensor of another result, or None if that result does not have it."""

    @property
    def is_gradient(self) -> bool:
        """Whether the tensor is a gradient, judged by its label."""
        return "gradient" in self.label


def kind_of(x: Any) -> str:
    """Returns the kind of a tensor's numbers: `whole` (integers and booleans), `float` or
    `complex`."""
    if x.is_complex():
        return "complex"
    return "float" if x.is_floating_point() else "whole"


def targets(comparison: Any, label: str, answer: Answer, exact: Answer) -> Iterator[Any]:
    """Yields a ComparedTensor for each tensor in a result, and a (wrong) Part for tensors that
    cannot be paired with exact ones."""
    yield from paired(label, "outputs", answer, exact)
    if answer.gradients:
        yield from paired(f"{label} gradient".strip(), "gradients", answer, exact)
    yield from written_targets(comparison, label, answer, exact)


def paired(label: str, field: str, answer: Answer, exact: Answer) -> Iterator[Any]:
    """Yields the tensors in one field of a result, each with its exact counterpart. Yields a wrong
    Part if the numbers of tensors differ, or if only one tensor of a pair is missing."""
    computed_tensors, exact_tensors = getattr(answer, field), getattr(exact, field)
    count = len(exact_tensors)
    # If the counts differ, the tensors cannot be paired.
    if len(computed_tensors) != count:
        yield holds(label, False, f"{len(computed_tensors)} of them, not {count}")
        return
    for place, (x, y) in enumerate(zip(computed_tensors, exact_tensors)):
        if x is not None and y is not None:
            yield ComparedTensor(label, x, y, tensor_at(field, place, count))
            continue
        # A missing gradient stands for zeros, so the other gradient must be all zeros.
        present = x if y is None else y
        if present is not None and bool(present.ne(0).any()):
            yield holds(label, False, "one has no value" if x is None else "one has a value")


def tensor_at(field: str, place: int, count: int) -> Callable[[Answer], Any]:
    """Returns a function that picks the tensor at this place in a field of a result. It returns
    None if the field does not have `count` tensors."""

    def pick(answer: Answer) -> Any:
        tensors = getattr(answer, field)
        if len(tensors) != count:
            return None
        return tensors[place]

    return pick


def written_targets(comparison: Any, label: str, answer: Answer, exact: Answer) -> Iterator[Any]:
    """Yields each argument that the call writes to, with its exact counterpart. Yields a wrong Part
    if an argument that the call should only read has changed."""
    torch = comparison.torch
    arguments = tensors_of_call(torch, comparison.call)
    wide_arguments = tensors_of_call(torch, comparison.wide)
    for place, (x, y) in enumerate(zip(answer.written, exact.written)):
        # Calls never write to sparse arguments.
        if x.layout != torch.strided:
            continue
        is_written_to = not torch.equal(y, wide_arguments[place].detach())
        if is_written_to and not has_nan(y):
            words = f"{label} what it writes".strip()
            pick = tensor_at("written", place, len(wide_arguments))
            yield ComparedTensor(words, x, y, pick)
            continue
        was_changed = not comparison.as_before(x, arguments[place].detach())
        # NaN is not equal to itself, so arguments with NaN cannot be checked.
        if was_changed and not has_nan(x):
            yield holds(f"{label} leaves its arguments".strip(), False, "one was changed")


def has_nan(x: Any) -> bool:
    """Whether the tensor contains NaN."""
    return bool((x != x).any())


ROUNDOFFS_OF_ANSWER = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0, "complex64": 32.0}
"""The error allowed in a result, for each format, in unit roundoffs times the size of the result.
"""
MOVE_FACTOR = 16.0
"""The error allowed in a result, as a multiple of its change if the arguments are moved by about a
roundoff."""
MEAN_MOVE_SHARE = 0.05
"""The fraction of the elements' average change that is added to each element's own change."""
UPSTREAM_SHARE = 0.25
"""A gradient is judged as if it were at least this fraction of the upstream gradient's size,
because it is often computed from a rounded result."""
SMALLEST = {"float16": 2.0**-24}
"""Smaller numbers count as equal, because kernels may flush them to zero. For float16 this is its
smallest subnormal number; for all other formats it is the smallest normal number."""
FAULT_FACTOR = 8.0
"""The factor by which most limits are widened. Errors of a fault are larger than that, while
smaller errors may come from another order of the same steps."""
ROUNDED_ONCE = 2.0
"""The error allowed in a result that is rounded only once, in unit roundoffs."""


class ErrorLimits(NamedTuple):
    """The limits for one tensor, element by element."""

    allowed: Any
    """The error allowed in each element."""
    unsure: Any
    """A flag for each element: True if it is not judged."""


class Moves(NamedTuple):
    """How the exact result changes if the arguments are changed by about a roundoff ("moved")."""

    change: Any
    """The largest change of each element."""
    unsure: Any
    """A flag for each element: True if it changes between finite and infinite or NaN, so that it
    cannot be judged."""

    @property
    def mean_change(self) -> float:
        """The average change of the elements; 0 for an empty tensor."""
        if not self.change.numel():
            return 0.0
        return float(self.change.mean())


def moves_of(torch: Any, exact: Any, moved_tensors: List[Any]) -> Moves:
    """Compute how far the results for moved arguments are from the exact result."""
    change = torch.zeros_like(exact.abs())
    unsure = torch.zeros_like(change, dtype=torch.bool)
    for moved in moved_tensors:
        # If the shape depends on a roundoff, as for `nonzero`, no element can be judged.
        if moved is None or moved.shape != exact.shape:
            unsure = torch.ones_like(unsure)
            continue
        distance = (moved - exact).abs()
        either_is_finite = exact.isfinite().logical_or(moved.isfinite())
        unsure |= ~distance.isfinite() & either_is_finite
        finite_distance = torch.nan_to_num(distance, 0.0, 0.0, 0.0)
        change = torch.maximum(change, finite_distance)
    return Moves(change, unsure)


def finite_sizes(torch: Any, exact: Any) -> Any:
    """Returns the absolute value of each element; 0 if it is infinite or NaN."""
    size = exact.abs()
    return torch.where(size.isfinite(), size, torch.zeros_like(size))


def limits(
    torch: Any, comparison: Any, target: ComparedTensor, moved_tensors: List[Any]
) -> ErrorLimits:
    """Compute the error allowed in each element, and which elements are not judged.

    The error allowed is some roundoffs times the largest element, plus a multiple of the exact
    result's change if its arguments are moved by about a roundoff.
    """
    # For a complex format these are the limits of its real and imaginary parts.
    format = torch.finfo(target.computed.dtype)
    roundoff = max(comparison.roundoff, float(format.eps) / 2)
    size = finite_sizes(torch, target.exact)
    moves = moves_of(torch, target.exact, moved_tensors)
    mean_change = moves.mean_change
    # Smaller numbers count as zero.
    least = SMALLEST.get(comparison.dtype, format.tiny)
    # Sums are rounded more often than single numbers.
    roundings = comparison.roundings_of_sums
    if comparison.rounds_once and not target.is_gradient:
        allowed_move = MOVE_FACTOR * roundings * (moves.change + mean_change)
        allowed = ROUNDED_ONCE * roundoff * size + allowed_move + least
        return ErrorLimits(allowed, moves.unsure | (size + allowed >= format.max))
    greatest_size = max(comparison.least_size, greatest(size))
    if target.is_gradient:
        size_by_upstream = UPSTREAM_SHARE * comparison.upstream_size
        size_without_spread = SLOPE_WITHOUT_SPREAD * comparison.least_size
        greatest_size = max(greatest_size, size_by_upstream, size_without_spread)
    roundings *= FAULT_FACTOR
    roundoffs = ROUNDOFFS_OF_ANSWER.get(comparison.dtype, ROUNDOFFS_OF_ANSWER["float32"])
    allowed = comparison.error_factor * roundings * roundoffs * (roundoff * greatest_size + least)
    allowed += roundings * MOVE_FACTOR * (moves.change + MEAN_MOVE_SHARE * mean_change)
    unsure = moves.unsure
    # Near the largest number of the format, whether a step overflows depends on the order of the
    # steps.
    unsure |= size + allowed >= format.max
    if target.is_gradient:
        # If a gradient is this large, rounding an argument changes it by as much as the whole
        # upstream gradient.
        unsure |= size * roundoff >= comparison.upstream_size
    if may_overflow(comparison, target, float(format.max)):
        unsure |= ~target.computed.isfinite()
    return ErrorLimits(allowed, unsure)


def may_overflow(comparison: Any, target: ComparedTensor, greatest_number: float) -> bool:
    """Whether an intermediate step may exceed the range of the format."""
    if comparison.dtype == "float16":
        return True
    if not target.is_gradient:
        return False
    # Gradients may be computed from the cube of the result, or from an argument's exponential. 1e30
    # limits the cube to Python's range, and its cube exceeds the range of every other format.
    output_size = min(comparison.output_size, 1e30)
    if output_size**3 * 4 >= greatest_number:
        return True
    return bool(comparison.argument_size >= 0.5 * log(greatest_number))


def greatest(x: Any) -> float:
    """Returns the largest finite absolute value in a tensor; 0 for an empty or sparse tensor."""
    # Compare the layout by its name, because this module does not import torch.
    is_dense = str(x.layout) == "torch.strided"
    if not x.numel() or not is_dense:
        return 0.0
    x = x.detach()
    is_integer = not (x.is_complex() or x.is_floating_point())
    if is_integer:
        # abs(-128) overflows in int8, so integers are compared in float64.
        x = x.double()
    greatest_size = float(x.abs().max())
    if greatest_size < inf:
        return greatest_size
    sizes = x.abs()
    finite = sizes[sizes.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def judged(comparison: Any, target: ComparedTensor) -> Part:
    """Compare a tensor with the exact one.

    Results for moved arguments need several more calls, so they are only computed if the error is
    larger than the tensor's own rounding explains.
    """
    computed, exact = target.computed, target.exact
    # Tensors with different shapes cannot be compared.
    if computed.shape != exact.shape:
        problem = f"shape {list(computed.shape)}, not {list(exact.shape)}"
        return holds(target.label, False, problem)
    if kind_of(computed) != kind_of(exact):
        problem = f"{computed.dtype}, for {exact.dtype} of the exact".replace("torch.", "")
        return holds(target.label, False, problem)
    if kind_of(computed) == "whole":
        return judged_whole(comparison, target)
    # First allow only the rounding of the result, without moved arguments.
    part = judged_close(comparison, target, [])
    # An operator such as `floor` jumps from one whole number to the next. Its argument is exact, so
    # moving it would only excuse a wrong result.
    if comparison.may_jump and kind_of(exact) == "float" and bool((exact == exact.round()).all()):
        return part
    if part.worst > 1:
        moved_tensors = [target.in_answer(answer) for answer in comparison.moved_answers()]
        part = judged_close(comparison, target, moved_tensors)
    if part.worst > 1 and comparison.answers_to_moves:
        add_further_moves(comparison)
        moved_tensors = [target.in_answer(answer) for answer in comparison.answers_to_moves]
        part = judged_close(comparison, target, moved_tensors)
    return part


def add_further_moves(comparison: Any) -> None:
    """Add exact results for further moves of the arguments. This happens only once for all tensors
    of a call."""
    has_further_moves = len(comparison.answers_to_moves) > len(STEPS)
    if has_further_moves:
        return
    for apart, steps in ((False, FURTHER_STEPS), (True, OPPOSITE_STEPS)):
        for step in steps:
            # The operator may reject a moved argument, for example one above 1.
            with contextlib.suppress(Exception):
                answer = comparison.moved(step, apart=apart)
                comparison.answers_to_moves.append(answer)


def same_numbers_at(torch: Any, x: Any, places: Any, other_places: Any) -> bool:
    """Whether a tensor has the same numbers at two sets of indices along one of its axes.

    If several numbers are equal, the index may depend on the device, for example in `topk`,
    `median` and `mode`.

    >>> import torch
    >>> x = torch.tensor([[3, 1, 3]])
    >>> same_numbers_at(torch, x, torch.tensor([[2]]), torch.tensor([[0]]))
    True
    >>> same_numbers_at(torch, x, torch.tensor([[1]]), torch.tensor([[0]]))
    False
    """
    if places.shape != other_places.shape or places.dtype != torch.int64 or x.dtype == torch.bool:
        return False
    # A reduction may have removed the axis.
    axis_was_dropped = places.dim() == x.dim() - 1
    for axis in range(x.dim()):
        pair = [places, other_places]
        if axis_was_dropped:
            pair = [tensor.unsqueeze(axis) for tensor in pair]
        if pair[0].dim() != x.dim() or not are_places(x, pair, axis):
            continue
        numbers, other_numbers = (x.gather(axis, tensor) for tensor in pair)
        both_nan = (numbers != numbers) & (other_numbers != other_numbers)
        if bool(((numbers == other_numbers) | both_nan).all()):
            return True
    return False


def are_places(x: Any, tensors: List[Any], axis: int) -> bool:
    """Whether `gather` would accept the tensors as indices into `x` along this axis."""
    for places in tensors:
        # An empty tensor does not show whether it contains indices.
        if not places.numel():
            return False
        for other_axis, length in enumerate(places.shape):
            # Along the axis itself there may be more indices than elements.
            if other_axis != axis and length > x.shape[other_axis]:
                return False
        least, greatest_place = int(places.min()), int(places.max())
        if least < 0 or greatest_place >= x.shape[axis]:
            return False
    return True


def names_other_places(comparison: Any, computed: Any, exact: Any) -> bool:
    """Whether the result consists of indices that differ from the exact ones but refer to equal
    numbers, which is allowed on a GPU."""
    # On a CPU the indices must be the same, because the exact result is computed on the CPU too.
    if comparison.device == "cpu":
        return False
    torch = comparison.torch
    arguments = tensors_of_call(torch, comparison.call)
    searched = [x.detach() for x in arguments if x.layout == torch.strided and x.dim()]
    # Operators that return indices search their first argument.
    return any(same_numbers_at(torch, x, computed, exact) for x in searched[:1])


STEPS_OF_WHOLE = (1.3, -0.9)
"""The distances, in roundoffs, by which arguments are moved for a result of whole numbers. Equal
numbers stay equal, because otherwise comparisons of them would change."""


def judged_whole(comparison: Any, target: ComparedTensor) -> Part:
    """Compare whole numbers or booleans, which must be equal. Numbers that rounding could change
    are not judged."""
    torch = comparison.torch
    right_part = Part(target.label, 0.0, 0.0)
    computed, exact = target.computed.to(torch.int64), target.exact.to(torch.int64)
    is_wrong = computed != exact
    if not bool(is_wrong.any()):
        return right_part
    if names_other_places(comparison, target.computed, target.exact):
        return right_part
    if target.computed.dtype != torch.bool:
        # Numbers outside the range of the format may saturate or wrap around, so they are not
        # judged.
        format = torch.iinfo(target.computed.dtype)
        is_wrong &= (exact > format.min) & (exact < format.max)
    # If rounding cannot change the result, any difference is wrong.
    if not comparison.moved_answers():
        return part_of(target, is_wrong, worst=inf, allowed=0.0)
    # Do not judge numbers that change if the arguments change by a roundoff.
    for step in STEPS_OF_WHOLE:
        moved_answer = comparison.moved(step, alike=True)
        moved = target.in_answer(moved_answer)
        if moved is None or moved.shape != exact.shape:
            return right_part
        is_wrong &= moved.to(torch.int64) == exact
    return part_of(target, is_wrong, worst=inf, allowed=0.0)


def judged_close(comparison: Any, target: ComparedTensor, moved_tensors: List[Any]) -> Part:
    """Compare floating-point or complex numbers, within the error that the format and the moved
    arguments allow."""
    torch = comparison.torch
    exact = target.exact
    computed = target.computed.to(exact.dtype)
    is_equal = (computed == exact) | (computed.isnan() & exact.isnan())
    if bool(is_equal.all()):
        return Part(target.label, 0.0, 0.0)
    allowed, unsure = limits(torch, comparison, target, moved_tensors)
    error = (computed - exact).abs()
    # Products of infinities can be infinite or NaN, depending on the order of the steps, so both
    # are accepted.
    if exact.is_complex() or target.is_gradient:
        is_equal |= ~computed.isfinite() & ~exact.isfinite()
    no_error = torch.zeros_like(error)
    share_of_limit = torch.where(is_equal | unsure, no_error, error / allowed)
    share_of_limit = torch.nan_to_num(share_of_limit, inf, inf, inf)
    is_wrong = ~(share_of_limit <= 1)
    # Empty tensors were equal above, so there is at least one element here.
    worst = float(share_of_limit.max())
    most_allowed = float(allowed.max())
    return part_of(target, is_wrong, worst, most_allowed)


def part_of(target: ComparedTensor, is_wrong: Any, worst: float, allowed: float) -> Part:
    """Returns the comparison of a tensor. `worst` is its largest error divided by the limit, and
    `allowed` the largest limit."""
    if bool(is_wrong.any()):
        tensors = Wrong(target.computed, target.exact, is_wrong)
        return wrong_part(target.label, worst, allowed, tensors)
    # If no error is allowed, `worst` is only meaningful for wrong elements, and there are none
    # here.
    return Part(target.label, worst if allowed else 0.0, allowed)
