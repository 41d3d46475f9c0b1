"""Compares each tensor of an answer with the exact one: how far each element may be off, and which
elements are not judged."""

from __future__ import annotations

import contextlib
from math import inf, log
from typing import Any, Callable, Iterator, List, NamedTuple

from ..judging.tolerance import Part, Wrong, holds, wrong_part
from .calls import Answer, tensors_of_call
from .rules import SLOPE_WITHOUT_SPREAD

STEPS = (1.0, 1.3, 0.7)
"""Roundoffs by which the arguments of a call are moved: the same number for all of them, each
element up or down by chance."""
FURTHER_STEPS = (2.0, 1.0, 3.0)
"""Further moves of the same kind, for an answer that is wrong by the first ones."""
OPPOSITE_STEPS = (1.5, -1.5)
"""Moves of all elements of one argument up and of the next one down. Where an answer has many
quotients, each may jump from one whole number to the next, and moves by chance miss some."""


class ComparedTensor(NamedTuple):
    """A tensor to compare, with its exact value."""

    label: str
    computed: Any
    exact: Any
    in_answer: Callable[[Answer], Any]
    """The same tensor of another answer; None where it has none."""

    @property
    def is_gradient(self) -> bool:
        """Whether the tensor is a gradient, as its label says."""
        return "gradient" in self.label


def kind_of(x: Any) -> str:
    """The kind of a tensor's numbers: `whole` (integers and booleans), `float` or `complex`."""
    if x.is_complex():
        return "complex"
    return "float" if x.is_floating_point() else "whole"


def targets(comparison: Any, label: str, answer: Answer, exact: Answer) -> Iterator[Any]:
    """Yields each tensor of an answer as a ComparedTensor, and a Part for tensors that cannot be
    paired with exact ones."""
    yield from paired(label, "outputs", answer, exact)
    if answer.gradients:
        yield from paired(f"{label} gradient".strip(), "gradients", answer, exact)
    yield from written_targets(comparison, label, answer, exact)


def paired(label: str, field: str, answer: Answer, exact: Answer) -> Iterator[Any]:
    """Yields the tensors in one field of an answer, each with the exact one; a Part if their number
    differs, or if only one of the two is missing."""
    computed_tensors, exact_tensors = getattr(answer, field), getattr(exact, field)
    count = len(exact_tensors)
    # Another count says more than any difference.
    if len(computed_tensors) != count:
        yield holds(label, False, f"{len(computed_tensors)} of them, not {count}")
        return
    for place, (x, y) in enumerate(zip(computed_tensors, exact_tensors)):
        if x is not None and y is not None:
            yield ComparedTensor(label, x, y, tensor_at(field, place, count))
            continue
        # A missing gradient means zeros, so only another number contradicts it.
        present = x if y is None else y
        if present is not None and bool(present.ne(0).any()):
            yield holds(label, False, "one has no value" if x is None else "one has a value")


def tensor_at(field: str, place: int, count: int) -> Callable[[Answer], Any]:
    """A function that returns the tensor at this place of a field, or None if the answer has
    another number of tensors."""

    def pick(answer: Answer) -> Any:
        tensors = getattr(answer, field)
        if len(tensors) != count:
            return None
        return tensors[place]

    return pick


def written_targets(comparison: Any, label: str, answer: Answer, exact: Answer) -> Iterator[Any]:
    """Yields the arguments that a call writes to, each with the exact one; a Part if an argument
    that it only reads has changed."""
    torch = comparison.torch
    arguments = tensors_of_call(torch, comparison.call)
    wide_arguments = tensors_of_call(torch, comparison.wide)
    for place, (x, y) in enumerate(zip(answer.written, exact.written)):
        # A sparse argument is only read.
        if x.layout != torch.strided:
            continue
        is_written_to = not torch.equal(y, wide_arguments[place].detach())
        if is_written_to and not has_nan(y):
            words = f"{label} what it writes".strip()
            pick = tensor_at("written", place, len(wide_arguments))
            yield ComparedTensor(words, x, y, pick)
            continue
        was_changed = not comparison.as_before(x, arguments[place].detach())
        # NaN differs from itself, so of such an argument nothing can be said.
        if was_changed and not has_nan(x):
            yield holds(f"{label} leaves its arguments".strip(), False, "one was changed")


def has_nan(x: Any) -> bool:
    """Whether the tensor contains NaN."""
    return bool((x != x).any())


ROUNDOFFS_OF_ANSWER = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0, "complex64": 32.0}
"""The error allowed in an answer, in roundoffs of the answer's size, by format."""
MOVE_FACTOR = 16.0
"""The error allowed in an answer, in multiples of how far it moves if its arguments are moved by
about a roundoff."""
MEAN_MOVE_SHARE = 0.05
"""The part of the other elements' average move that is added to an element's own move."""
UPSTREAM_SHARE = 0.25
"""The part of the upstream gradient's size that counts as the size of a gradient: a derivative is
often computed from a rounded answer."""
SMALLEST = {"float16": 2.0**-24}
"""Numbers below this count as equal, because kernels may take them for zero. Formats without a row:
their least normal number; float16: the least number that it has."""
FAULT_FACTOR = 8.0
"""All limits are this many times as wide: a fault is farther off, and what is nearer may be another
order of the same steps."""
ROUNDED_ONCE = 2.0
"""The error allowed in an answer that is rounded once, in roundoffs."""


class ErrorLimits(NamedTuple):
    """The limits for one tensor, element by element."""

    allowed: Any
    """The error allowed of each element."""
    unsure: Any
    """Which elements are not judged."""


class Moves(NamedTuple):
    """How the exact answer changes if its arguments are moved by about a roundoff."""

    change: Any
    """How far each element moves at most."""
    unsure: Any
    """Which elements become finite or stop being so, and so cannot be judged."""

    @property
    def mean_change(self) -> float:
        """How far the elements move on average; 0 for an empty tensor."""
        if not self.change.numel():
            return 0.0
        return float(self.change.mean())


def moves_of(torch: Any, exact: Any, moved_tensors: List[Any]) -> Moves:
    """How far the answers for moved arguments are from the exact one."""
    change = torch.zeros_like(exact.abs())
    unsure = torch.zeros_like(change, dtype=torch.bool)
    for moved in moved_tensors:
        # If the shape changes with a roundoff, as that of `nonzero` does, no element can be judged.
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
    """The absolute value of each element; 0 if it is infinite or NaN."""
    size = exact.abs()
    return torch.where(size.isfinite(), size, torch.zeros_like(size))


def limits(
    torch: Any, comparison: Any, target: ComparedTensor, moved_tensors: List[Any]
) -> ErrorLimits:
    """The error allowed for each element, and which elements are not judged.

    Allowed are some roundoffs of the greatest element's size, plus some multiples of how far the
    exact answer moves if its arguments are moved by about a roundoff.
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
    # Near the end of the format the order of the steps decides whether they overflow.
    unsure |= size + allowed >= format.max
    if target.is_gradient:
        # So large a gradient changes by its whole upstream value if an argument is rounded.
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
    # Derivatives may be computed from the answer's cube, or from an argument's exponential. 1e30
    # keeps the cube within Python's floats, and is beyond every format's limit.
    output_size = min(comparison.output_size, 1e30)
    if output_size**3 * 4 >= greatest_number:
        return True
    return bool(comparison.argument_size >= 0.5 * log(greatest_number))


def greatest(x: Any) -> float:
    """The largest finite absolute value in a tensor; 0 for an empty or sparse one."""
    # By the layout's name, because this module does not import torch.
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
    """Whether a tensor is right.

    Answers to moved arguments cost several calls more, so they are computed only for a tensor that
    is farther off than by its own roundoff.
    """
    computed, exact = target.computed, target.exact
    # Nothing else can be compared then.
    if computed.shape != exact.shape:
        problem = f"shape {list(computed.shape)}, not {list(exact.shape)}"
        return holds(target.label, False, problem)
    if kind_of(computed) != kind_of(exact):
        problem = f"{computed.dtype}, for {exact.dtype} of the exact".replace("torch.", "")
        return holds(target.label, False, problem)
    if kind_of(computed) == "whole":
        return judged_whole(comparison, target)
    # First by the roundoff of the answer alone, without moved arguments.
    part = judged_close(comparison, target, [])
    # An operator such as `floor` jumps from one whole number to the next. Its argument is exact, so
    # a moved one would only excuse a wrong answer.
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
    """Add the exact answers for further moves of the arguments; once for all tensors of a call."""
    has_further_moves = len(comparison.answers_to_moves) > len(STEPS)
    if has_further_moves:
        return
    for apart, steps in ((False, FURTHER_STEPS), (True, OPPOSITE_STEPS)):
        for step in steps:
            # The operator may refuse a moved argument, for example one above 1.
            with contextlib.suppress(Exception):
                answer = comparison.moved(step, apart=apart)
                comparison.answers_to_moves.append(answer)


def same_numbers_at(torch: Any, x: Any, places: Any, other_places: Any) -> bool:
    """Whether a tensor holds the same numbers at two sets of indices along one of its axes.

    If numbers are equal, each device may name another place: `topk`, `median` and `mode` do.

    >>> import torch
    >>> x = torch.tensor([[3, 1, 3]])
    >>> same_numbers_at(torch, x, torch.tensor([[2]]), torch.tensor([[0]]))
    True
    >>> same_numbers_at(torch, x, torch.tensor([[1]]), torch.tensor([[0]]))
    False
    """
    if places.shape != other_places.shape or places.dtype != torch.int64 or x.dtype == torch.bool:
        return False
    # Reductions may have dropped the axis.
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
    """Whether the tensors can be indices into `x` along this axis, as `gather` takes them."""
    for places in tensors:
        # An empty tensor of places tells nothing.
        if not places.numel():
            return False
        for other_axis, length in enumerate(places.shape):
            # Along the axis itself there may be more places than elements.
            if other_axis != axis and length > x.shape[other_axis]:
                return False
        least, greatest_place = int(places.min()), int(places.max())
        if least < 0 or greatest_place >= x.shape[axis]:
            return False
    return True


def names_other_places(comparison: Any, computed: Any, exact: Any) -> bool:
    """Whether a GPU's answer consists of other indices than the CPU's, but for equal numbers."""
    # The exact answer is the CPU's own choice.
    if comparison.device == "cpu":
        return False
    torch = comparison.torch
    arguments = tensors_of_call(torch, comparison.call)
    searched = [x.detach() for x in arguments if x.layout == torch.strided and x.dim()]
    # The first argument is the one that such an operator searches.
    return any(same_numbers_at(torch, x, computed, exact) for x in searched[:1])


STEPS_OF_WHOLE = (1.3, -0.9)
"""Roundoffs by which the arguments are moved for an answer in whole numbers. Equal arguments stay
equal, because a comparison of them gives another answer otherwise."""


def judged_whole(comparison: Any, target: ComparedTensor) -> Part:
    """Whether whole numbers or booleans are exactly right; numbers that rounding could change are
    not judged."""
    torch = comparison.torch
    right_part = Part(target.label, 0.0, 0.0)
    computed, exact = target.computed.to(torch.int64), target.exact.to(torch.int64)
    is_wrong = computed != exact
    if not bool(is_wrong.any()):
        return right_part
    if names_other_places(comparison, target.computed, target.exact):
        return right_part
    if target.computed.dtype != torch.bool:
        # Numbers beyond the ends of a format may saturate or wrap around.
        format = torch.iinfo(target.computed.dtype)
        is_wrong &= (exact > format.min) & (exact < format.max)
    # Numbers that rounding cannot move are judged as they are.
    if not comparison.moved_answers():
        return part_of(target, is_wrong, worst=inf, allowed=0.0)
    # A number that changes with a roundoff of the arguments is not judged.
    for step in STEPS_OF_WHOLE:
        moved_answer = comparison.moved(step, alike=True)
        moved = target.in_answer(moved_answer)
        if moved is None or moved.shape != exact.shape:
            return right_part
        is_wrong &= moved.to(torch.int64) == exact
    return part_of(target, is_wrong, worst=inf, allowed=0.0)


def judged_close(comparison: Any, target: ComparedTensor, moved_tensors: List[Any]) -> Part:
    """Whether fractions are as close to the exact ones as the format and the arguments allow."""
    torch = comparison.torch
    exact = target.exact
    computed = target.computed.to(exact.dtype)
    is_equal = (computed == exact) | (computed.isnan() & exact.isnan())
    if bool(is_equal.all()):
        return Part(target.label, 0.0, 0.0)
    allowed, unsure = limits(torch, comparison, target, moved_tensors)
    error = (computed - exact).abs()
    # In products of infinities the order of the steps decides between infinity and NaN.
    if exact.is_complex() or target.is_gradient:
        is_equal |= ~computed.isfinite() & ~exact.isfinite()
    no_error = torch.zeros_like(error)
    share_of_limit = torch.where(is_equal | unsure, no_error, error / allowed)
    share_of_limit = torch.nan_to_num(share_of_limit, inf, inf, inf)
    is_wrong = ~(share_of_limit <= 1)
    # An empty tensor equals the exact one, so these have elements.
    worst = float(share_of_limit.max())
    most_allowed = float(allowed.max())
    return part_of(target, is_wrong, worst, most_allowed)


def part_of(target: ComparedTensor, is_wrong: Any, worst: float, allowed: float) -> Part:
    """The comparison of a tensor, with its worst error as a share of the limit and the largest
    limit."""
    if bool(is_wrong.any()):
        tensors = Wrong(target.computed, target.exact, is_wrong)
        return wrong_part(target.label, worst, allowed, tensors)
    # Without a limit, `worst` describes wrong elements, and there are none.
    return Part(target.label, worst if allowed else 0.0, allowed)
