"""Compares each tensor of an answer with the exact one: how far each element may be off, and which
elements are not judged."""

from __future__ import annotations

import contextlib
from math import inf, log
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

from ..judging.tolerance import Part, holds, pointed
from .calls import Answer, tensors_of_call
from .rules import STEEP

STEPS = (1.0, 1.3, 0.7)
"""Roundoffs by which arguments are moved, all of one call by one of them, each up or down."""
FURTHER = (2.0, 1.0, 3.0)
"""Moves that judge what misses the first limit."""
APART = (1.5, -1.5)
"""Then one argument is moved up and the next down: of many quotients each may jump."""


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
    """Pair each tensor of an answer with the exact one; a Part if they cannot be paired."""
    yield from paired(label, "outputs", answer, exact)
    if answer.gradients:
        yield from paired(f"{label} gradient".strip(), "gradients", answer, exact)
    yield from written_targets(comparison, label, answer, exact)


def paired(label: str, field: str, answer: Answer, exact: Answer) -> Iterator[Any]:
    """Pair the tensors in one field of an answer with the exact ones; a Part if counts or missing
    values differ."""
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
        # A gradient that is missing means zeros: only numbers besides 0 contradict it.
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
    """Pair the arguments that a call writes to with the exact ones; a Part if an argument that it
    only reads has changed."""
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
"""How many roundoffs of its own size an answer may be off, by format."""
MOVED = 16.0
"""How many times what the answer moves when its arguments are moved by a roundoff."""
SHARE = 0.05
"""The part of what the other elements move, on average, that counts for each element."""
ALONG = 0.25
"""The part of what a gradient is taken along that counts as its size: a derivative is often
computed from a rounded answer."""
SMALLEST = {"float16": 2.0**-24}
"""Below this nothing is told apart; of other formats the least normal number, as kernels may take
what is below it for zero."""
CLEARLY = 8.0
"""A fault is farther off than its limit by so much: what is nearer may be a kernel's own way."""
ONCE = 2.0
"""Roundoffs by which an answer that is rounded once may be off."""


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
        # An answer of another shape says that the operator decides by its arguments' bits.
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
    """The error allowed for each element, and which elements are not judged."""
    # Of a complex format, that of its parts.
    format = torch.finfo(target.computed.dtype)
    roundoff = max(comparison.u, float(format.eps) / 2)
    size = finite_sizes(torch, target.exact)
    moves = moves_of(torch, target.exact, moved_tensors)
    mean_change = moves.mean_change
    # Numbers below it are as good as zero.
    least = SMALLEST.get(comparison.dtype, format.tiny)
    # What is added up may be rounded more often.
    roundings = comparison.many
    if comparison.once and not target.is_gradient:
        allowed_move = MOVED * roundings * (moves.change + mean_change)
        allowed = ONCE * roundoff * size + allowed_move + least
        return ErrorLimits(allowed, moves.unsure | (size + allowed >= format.max))
    greatest_size = max(comparison.at_least, greatest(size))
    if target.is_gradient:
        size_along = ALONG * comparison.along
        size_where_flat = STEEP * comparison.at_least
        greatest_size = max(greatest_size, size_along, size_where_flat)
    roundings *= CLEARLY
    roundoffs = ROUNDOFFS_OF_ANSWER.get(comparison.dtype, ROUNDOFFS_OF_ANSWER["float32"])
    allowed = comparison.room * roundings * roundoffs * (roundoff * greatest_size + least)
    allowed += roundings * MOVED * (moves.change + SHARE * mean_change)
    unsure = moves.unsure
    # Beside the end of the format the order of the steps decides whether they overflow.
    unsure |= size + allowed >= format.max
    if target.is_gradient:
        # A roundoff of an argument moves all of such an element.
        unsure |= size * roundoff >= comparison.along
    if may_overflow(comparison, target, float(format.max)):
        unsure |= ~target.computed.isfinite()
    return ErrorLimits(allowed, unsure)


def may_overflow(comparison: Any, target: ComparedTensor, greatest_number: float) -> bool:
    """Whether an intermediate step may exceed the range of the format."""
    if comparison.dtype == "float16":
        return True
    if not target.is_gradient:
        return False
    # Derivatives may be computed by way of the answer's cube, or of an argument's exponential.
    height = min(comparison.height, 1e30)
    if height**3 * 4 >= greatest_number:
        return True
    return bool(comparison.height_of_arguments >= 0.5 * log(greatest_number))


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
    # First by the roundoff of the answer alone.
    part = judged_close(comparison, target, [])
    # Such an operator jumps from one whole number to the next, and its argument is given exactly.
    if comparison.steps and kind_of(exact) == "float" and bool((exact == exact.round()).all()):
        return part
    if part.worst > 1:
        moved_tensors = [target.in_answer(answer) for answer in comparison.moved_answers()]
        part = judged_close(comparison, target, moved_tensors)
    if part.worst > 1 and comparison.moves:
        add_further_moves(comparison)
        moved_tensors = [target.in_answer(answer) for answer in comparison.moves]
        part = judged_close(comparison, target, moved_tensors)
    return part


def add_further_moves(comparison: Any) -> None:
    """Add the answers for arguments that are moved further; once for all tensors of a call."""
    if len(comparison.moves) > len(STEPS):
        return
    for apart, steps in ((False, FURTHER), (True, APART)):
        for step in steps:
            # A moved argument may be outside of what the operator takes.
            with contextlib.suppress(Exception):
                answer = comparison.moved(step, apart=apart)
                comparison.moves.append(answer)


def same_numbers_at(torch: Any, x: Any, places: Any, other_places: Any) -> bool:
    """Whether a tensor holds the same numbers at two sets of indices along one of its axes.

    Of like numbers each device may name another place: `topk`, `median` and `mode` do.

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
        # Without places nothing tells what they name.
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
        # At its ends a format may saturate or wrap around.
        format = torch.iinfo(target.computed.dtype)
        is_wrong &= (exact > format.min) & (exact < format.max)
    # A number that changes with a roundoff of the arguments is not judged.
    for step in (1.3, -0.9):
        if not comparison.moved_answers():
            continue
        near = target.in_answer(comparison.moved(step, alike=True))
        if near is None or near.shape != exact.shape:
            return right_part
        is_wrong &= near.to(torch.int64) == exact
    return part_of(torch, target, is_wrong, (inf, 0.0))


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
    # Of products of infinities the order decides whether they become infinite or NaN.
    if exact.is_complex() or target.is_gradient:
        is_equal |= ~computed.isfinite() & ~exact.isfinite()
    no_error = torch.zeros_like(error)
    share_of_limit = torch.where(is_equal | unsure, no_error, error / allowed)
    share_of_limit = torch.nan_to_num(share_of_limit, inf, inf, inf)
    is_wrong = ~(share_of_limit <= 1)
    # An empty tensor equals the exact one, so these have elements.
    worst = float(share_of_limit.max())
    most_allowed = float(allowed.max())
    return part_of(torch, target, is_wrong, (worst, most_allowed))


def part_of(torch: Any, target: ComparedTensor, is_wrong: Any, sizes: Tuple[float, float]) -> Part:
    """The comparison of a tensor. `sizes` are its worst error as a share of the limit, and the
    largest limit."""
    worst, most_allowed = sizes
    if bool(is_wrong.any()):
        return pointed(torch, target.label, target.computed, target.exact, is_wrong, sizes)
    return Part(target.label, worst if most_allowed else 0.0, most_allowed)
