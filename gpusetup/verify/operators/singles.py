"""Options of a call one at a time: each value of each beside the defaults of all others.

A kernel that forgets an option forgets it where all else is as usual too; `pairs` looks for what is
forgotten beside one other option alone.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from .pairs import Axes, by_calls
from .table import Operator

SELDOM = 0.01
"""One sample has every value: `standard` has no need of a second one."""
MIXED = 2
"""Calls of a sample in which every option has any of its values."""


def one_at_a_time(axes: Axes, chance: Any) -> List[Dict[str, Any]]:
    """Each axis begins with its default.

    >>> import random
    >>> one_at_a_time({"a": (1, 2, 3), "b": (True, False)}, random.Random(1))[:3]
    [{'a': 1, 'b': True}, {'a': 2, 'b': True}, {'a': 3, 'b': True}]
    """
    usual = {name: values[0] for name, values in axes.items()}
    found = [usual]
    for name, values in axes.items():
        found += [{**usual, name: value} for value in values[1:]]
    for _ in range(MIXED):
        found.append({name: chance.choice(values) for name, values in axes.items()})
    return found


def singly(
    name: str,
    axes: Axes,
    make: Callable[..., Any],
    run: Callable[..., Any],
    exact: Optional[Callable[..., Any]] = None,
    **more: Any,
) -> Operator:
    """A row whose sample is a call for each value of each option. `make(d, **values)` gives the
    tensors and the options of one call, `run(t, tensors..., options...)` one answer or several."""
    name, more = f"{name} by single options", {"weight": SELDOM, **more}
    return by_calls(name, lambda d: one_at_a_time(axes, d.chance), make, run, exact, **more)
