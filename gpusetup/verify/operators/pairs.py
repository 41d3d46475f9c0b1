"""Options of a call in pairs: each value of one together with each value of every other.

What a kernel forgets of an option, it often forgets beside one other option alone.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from .drawing import Draw, Given
from .table import FEW, Operator

Axes = Dict[str, Sequence[Any]]
Setting = Tuple[str, int]
"""An option, and which of its values."""


def covering(axes: Axes, chance: Any) -> List[Dict[str, Any]]:
    """Calls that meet every pair of values of two options, drawn anew for each sample.

    >>> import random
    >>> len(covering({"a": (1, 2, 3), "b": (1, 2), "c": (1, 2)}, random.Random(1))) < 12
    True
    """
    left = set(_pairs([(name, i) for name in axes for i in range(len(axes[name]))]))
    found = []
    while left:
        call = dict(chance.choice(sorted(left)))
        for name in chance.sample(sorted(axes), len(axes)):
            if name not in call:
                order = chance.sample(range(len(axes[name])), len(axes[name]))
                call[name] = max(order, key=lambda i: _new(left, call, (name, i)))
        left -= set(_pairs(sorted(call.items())))
        found.append({name: axes[name][i] for name, i in call.items()})
    return found


def _pairs(settings: Sequence[Setting]) -> Iterator[Tuple[Setting, Setting]]:
    for one, other in itertools.combinations(sorted(settings), 2):
        if one[0] != other[0]:
            yield one, other


def _new(left: Set[Tuple[Setting, Setting]], call: Dict[str, int], more: Setting) -> int:
    """How many pairs a setting would add to a call."""
    met = (tuple(sorted((each, more))) for each in call.items())
    return sum(pair in left for pair in met)


def in_pairs(
    name: str,
    axes: Axes,
    make: Callable[..., Tuple[List[Any], Dict[str, Any]]],
    run: Callable[..., Any],
    exact: Callable[..., Any],
    **more: Any,
) -> Operator:
    """A row whose sample is a call for each member of a covering. `make(d, **values)` gives the
    tensors and the options of one call, `run(t, tensors..., options...)` one answer or several."""
    name = f"{name} by pairs of options"
    return by_calls(name, lambda d: covering(axes, d.chance), make, run, exact, **more)


def by_calls(
    name: str,
    calls_of: Callable[[Draw], List[Dict[str, Any]]],
    make: Callable[..., Tuple[List[Any], Dict[str, Any]]],
    run: Callable[..., Any],
    exact: Optional[Callable[..., Any]],
    **more: Any,
) -> Operator:
    """A row whose sample is several calls, each of other values of its options."""

    def all_made(d: Draw) -> Given:
        tensors: List[Any] = []
        calls = []
        for values in calls_of(d):
            some, options = make(d, **values)
            calls.append((len(some), options))
            tensors += some
        return Given(tensors, {"calls": calls})

    def each(call: Callable[..., Any]) -> Callable[..., Any]:
        def run_all(t: Any, *tensors: Any, calls: List[Tuple[int, Dict[str, Any]]]) -> List[Any]:
            found: List[Any] = []
            at = 0
            for count, options in calls:
                one = call(t, *tensors[at : at + count], **options)
                found += one if isinstance(one, (list, tuple)) else [one]
                at += count
            return found

        return run_all

    more = {"sizes": FEW, "weight": 0.3, **more}
    return Operator(name, all_made, each(run), exact and each(exact), **more)
