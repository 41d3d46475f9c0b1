"""Options one at a time of several kinds of calls that are made alike; `singles` has one kind."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from .pairs import Axes, by_calls
from .singles import SELDOM
from .table import Operator

Menu = Dict[str, Axes]
"""For each kind of call its options; the first value of each is the usual one."""
SINGLE = ("float32",)
"""The format of rows whose answer the same operator in float64 gives."""


def of_each_kind(menu: Menu) -> List[Dict[str, Any]]:
    """For each kind the usual call, and one for each other value of an option.

    >>> len(of_each_kind({"mean": {"reduce": (True, False), "weight": (None, 2, 3)}}))
    4
    """
    found = []
    for kind, axes in menu.items():
        usual = {"kind": kind, **{name: values[0] for name, values in axes.items()}}
        found += [usual, *({**usual, name: value} for name in axes for value in axes[name][1:])]
    return found


def one_by_one(
    name: str,
    menu: Menu,
    make: Callable[..., Any],
    run: Callable[..., Any],
    exact: Optional[Callable[..., Any]] = None,
    **more: Any,
) -> Operator:
    """A row whose sample has every value of every option; `make(d, kind, **values)`."""
    more = {"dtypes": SINGLE, "steady": False, "anew": False, "weight": SELDOM, **more}
    words = f"{name} by single options"
    return by_calls(words, lambda d: of_each_kind(menu), make, run, exact, **more)


def spread(x: Any, way: str) -> Any:
    """What is made of a tensor that is handed over `expanded`: its first member alone, which
    `again` repeats with a stride of 0."""
    return x[:1] if way == "expanded" else x


def again(x: Any, way: str, times: int) -> Any:
    return x.expand(times, *x.shape[1:]) if way == "expanded" else x
