"""Each tensor of an answer, beside the exact one."""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple

from ..judging.tolerance import holds
from .calls import Answer, tensors_of


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
