"""Judges each tensor of an answer beside the exact one: how far each element may be off, and which
ones are."""

from __future__ import annotations

import contextlib
from math import inf, log
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

from ..judging.tolerance import Part, holds, pointed
from .calls import Answer, tensors_of
from .rules import STEEP

STEPS = (1.0, 1.3, 0.7)
"""Roundoffs by which arguments are moved, all of one call by one of them, each up or down."""
FURTHER = (2.0, 1.0, 3.0)
"""Moves that judge what misses the first limit."""
APART = (1.5, -1.5)
"""Then one argument is moved up and the next down: of many quotients each may jump."""


class Target(NamedTuple):
    """One tensor that is to be right."""

    label: str
    found: Any
    exact: Any
    of: Callable[[Answer], Any]
    """The same tensor of another answer; None where it has none."""


def kind_of(x: Any) -> str:
    """`whole` numbers and flags, `float` or `complex`."""
    if x.is_complex():
        return "complex"
    return "float" if x.is_floating_point() else "whole"


def targets(question: Any, label: str, found: Answer, exact: Answer) -> Iterator[Any]:
    """Each tensor of an answer beside the exact one; a Part where they cannot be paired."""
    yield from _paired(label, "outputs", found, exact)
    if found.gradients:
        yield from _paired(f"{label} gradient".strip(), "gradients", found, exact)
    yield from _written(question, label, found, exact)


def _paired(label: str, field: str, found: Answer, exact: Answer) -> Iterator[Any]:
    mine, right = getattr(found, field), getattr(exact, field)
    if len(mine) != len(right):
        yield holds(label, False, f"{len(mine)} of them, not {len(right)}")
        return
    for place, (x, y) in enumerate(zip(mine, right)):
        if x is None or y is None:
            given = x if y is None else y
            if given is not None and bool(given.ne(0).any()):
                yield holds(label, False, "one has no value" if x is None else "one has a value")
            continue
        yield Target(label, x, y, _at(field, place, len(right)))


def _at(field: str, place: int, count: int) -> Callable[[Answer], Any]:
    def of(answer: Answer) -> Any:
        found = getattr(answer, field)
        return found[place] if len(found) == count else None

    return of


def _written(question: Any, label: str, found: Answer, exact: Answer) -> Iterator[Any]:
    """What a call writes into its arguments; those that it only reads stay as they were."""
    torch = question.torch
    low = tensors_of(torch, (question.call.given, question.call.options))
    wide = tensors_of(torch, (question.wide.given, question.wide.options))
    for place, (x, y) in enumerate(zip(found.written, exact.written)):
        if x.layout != torch.strided:
            continue
        if not torch.equal(y, wide[place].detach()) and not _has_nan(y):
            words = f"{label} what it writes".strip()
            yield Target(words, x, y, _at("written", place, len(wide)))
        elif not question.as_before(x, low[place].detach()) and not _has_nan(x):
            yield holds(f"{label} leaves its arguments".strip(), False, "one was changed")


def _has_nan(x: Any) -> bool:
    return bool((x != x).any())


OWN = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0, "complex64": 32.0}
MOVED, SHARE, ALONG = 16.0, 0.05, 0.25
"""Factors: of a roundoff of the answer; of what it moves; of that of its other elements; of what a
gradient is taken along, as a derivative is often computed from a rounded answer."""
SMALLEST = {"float16": 2.0**-24}
"""Below this nothing is told apart; of other formats the least normal number, as kernels may take
what is below it for zero."""
CLEARLY = 8.0
"""A fault is farther off than its limit by so much: what is nearer may be a kernel's own way."""
ONCE = 2.0
"""Roundoffs by which an answer that is rounded once may be off."""


def limits(torch: Any, question: Any, target: Target, moves: List[Any]) -> Tuple[Any, Any]:
    """The error allowed of each element, and which are not judged."""
    exact = target.exact
    format = torch.finfo(target.found.dtype)
    is_gradient = "gradient" in target.label
    u = max(question.u, float(format.eps) / 2)
    size = exact.abs()
    size = torch.where(size.isfinite(), size, torch.zeros_like(size))
    change = torch.zeros_like(size)
    unsure = torch.zeros_like(size, dtype=torch.bool)
    for moved in moves:
        if moved is None or moved.shape != exact.shape:
            unsure = torch.ones_like(unsure)
            continue
        off = (moved - exact).abs()
        unsure |= ~off.isfinite() & exact.isfinite().logical_or(moved.isfinite())
        change = torch.maximum(change, torch.nan_to_num(off, 0.0, 0.0, 0.0))
    most = max(question.at_least, greatest(size))
    if is_gradient:
        most = max(most, ALONG * question.along, STEEP * question.at_least)
    spread = float(change.mean()) if change.numel() else 0.0
    least = SMALLEST.get(question.dtype, format.tiny)
    own = OWN.get(question.dtype, OWN["float32"])
    many = question.many
    if question.once and not is_gradient:
        allowed = ONCE * u * size + MOVED * many * (change + spread) + least
        return allowed, unsure | (size + allowed >= format.max)
    many *= CLEARLY
    allowed = question.room * many * own * (u * most + least)
    allowed += many * MOVED * (change + SHARE * spread)
    unsure |= size + allowed >= format.max
    may_overflow = question.dtype == "float16"
    if is_gradient:
        unsure |= size * u >= question.along  # a roundoff of an argument moves all of the answer
        may_overflow |= min(question.height, 1e30) ** 3 * 4 >= format.max
        may_overflow |= question.height_given >= 0.5 * log(format.max)
    if may_overflow:
        unsure |= ~target.found.isfinite()
    return allowed, unsure


def greatest(x: Any) -> float:
    """The greatest finite size of an element."""
    if not x.numel() or x.layout.__repr__() != "torch.strided":
        return 0.0
    x = x.detach()
    most = float((x if x.is_complex() or x.is_floating_point() else x.double()).abs().max())
    if most < inf:
        return most
    sizes = x.abs()
    sizes = sizes[sizes.isfinite()]
    return float(sizes.max()) if sizes.numel() else 0.0


def judged(question: Any, target: Target) -> Part:
    """Moved arguments are asked for where the answer is farther off than by its own roundoff."""
    found, right = target.found, target.exact
    if found.shape != right.shape:
        told = f"shape {list(found.shape)}, not {list(right.shape)}"
        return holds(target.label, False, told)
    if kind_of(found) != kind_of(right):
        told = f"{found.dtype}, for {right.dtype} of the exact".replace("torch.", "")
        return holds(target.label, False, told)
    if kind_of(found) == "whole":
        return _whole(question, target)
    part = _close(question, target, [])
    if question.steps and kind_of(right) == "float" and bool((right == right.round()).all()):
        return part  # the numbers are given exactly, and it jumps there
    if part.worst > 1:
        part = _close(question, target, [target.of(each) for each in question.moved_answers()])
    if part.worst > 1 and question.moves:
        for place, step in enumerate((FURTHER + APART) * (len(question.moves) <= len(STEPS))):
            with contextlib.suppress(Exception):
                question.moves.append(question.moved(step, apart=place >= len(FURTHER)))
        part = _close(question, target, [target.of(each) for each in question.moves])
    return part


def same_numbers_at(torch: Any, x: Any, places: Any, others: Any) -> bool:
    """Whether a tensor holds the same numbers at two tensors of places, along one of its axes.

    Of like numbers each device may name another place: `topk`, `median` and `mode` do.

    >>> import torch
    >>> x = torch.tensor([[3, 1, 3]])
    >>> same_numbers_at(torch, x, torch.tensor([[2]]), torch.tensor([[0]]))
    True
    >>> same_numbers_at(torch, x, torch.tensor([[1]]), torch.tensor([[0]]))
    False
    """
    if places.shape != others.shape or places.dtype != torch.int64 or x.dtype == torch.bool:
        return False
    for axis in range(x.dim()):
        # Reductions may have dropped the axis.
        dropped = places.dim() == x.dim() - 1
        pair = [each.unsqueeze(axis) if dropped else each for each in (places, others)]
        if pair[0].dim() != x.dim() or not _fits(x, pair, axis):
            continue
        here, there = (x.gather(axis, each) for each in pair)
        if bool(((here == there) | ((here != here) & (there != there))).all()):
            return True
    return False


def _fits(x: Any, places: List[Any], axis: int) -> bool:
    """Whether places along an axis are places of a tensor."""
    for each in places:
        within = all(
            n <= most for at, (n, most) in enumerate(zip(each.shape, x.shape)) if at != axis
        )
        if not within or not each.numel():
            return False
        if int(each.min()) < 0 or int(each.max()) >= x.shape[axis]:
            return False
    return True


def names_other_places(question: Any, found: Any, right: Any) -> bool:
    """Whether a GPU's answer names other places of the same numbers than the CPU's."""
    if question.device == "cpu":
        return False
    torch = question.torch
    given = tensors_of(torch, (question.call.given, question.call.options))
    plain = [x.detach() for x in given if x.layout == torch.strided and x.dim()]
    return any(same_numbers_at(torch, x, found, right) for x in plain[:1])


def _whole(question: Any, target: Target) -> Part:
    torch = question.torch
    found, right = target.found.to(torch.int64), target.exact.to(torch.int64)
    bad = found != right
    if not bool(bad.any()) or names_other_places(question, target.found, target.exact):
        return Part(target.label, 0.0, 0.0)
    if target.found.dtype != torch.bool:
        reach = torch.iinfo(target.found.dtype)
        bad &= (right > reach.min) & (right < reach.max)
    for step in (1.3, -0.9):
        for moved in question.moved_answers() and [question.moved(step, alike=True)]:
            near = target.of(moved)
            if near is None or near.shape != right.shape:
                return Part(target.label, 0.0, 0.0)
            bad &= near.to(torch.int64) == right
    return _told(torch, target, bad, inf, 0.0)


def _close(question: Any, target: Target, moves: List[Any]) -> Part:
    torch = question.torch
    found = target.found.to(target.exact.dtype)
    exact = target.exact
    alike = (found == exact) | (found.isnan() & exact.isnan())
    if bool(alike.all()):
        return Part(target.label, 0.0, 0.0)
    allowed, unsure = limits(torch, question, target, moves)
    off = (found - exact).abs()
    if exact.is_complex() or "gradient" in target.label:  # the order of products decides which
        alike |= ~found.isfinite() & ~exact.isfinite()
    parts = torch.where(alike | unsure, torch.zeros_like(off), off / allowed)
    parts = torch.nan_to_num(parts, inf, inf, inf)
    bad = ~(parts <= 1)
    worst = float(parts.max()) if parts.numel() else 0.0
    most = float(allowed.max()) if allowed.numel() else 0.0
    return _told(torch, target, bad, worst, most)


def _told(torch: Any, target: Target, bad: Any, worst: float, most: float) -> Part:
    if not bool(bad.any()):
        return Part(target.label, worst if most else 0.0, most)
    return pointed(torch, target.label, target.found, target.exact, bad, (worst, most))
