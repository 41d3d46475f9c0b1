"""Options of a call one by one: a sample meets each value of each option beside the usual values of
the others, and has some calls in which any option may be off its usual value.

What a kernel forgets is most often one option, or one edge, by itself; `pairs` looks for what is
forgotten beside one other option alone.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .drawing import Draw
from .pairs import Axes, by_calls
from .table import Operator

Menu = Mapping[str, Axes]
"""For each kind of call its options."""
MIXED = 1
"""Calls of a sample in which every option may have any of its values."""
SELDOM, OFTEN = 0.01, 0.3
"""One sample has every value: of long ones `standard` has no need of a second one."""
AS_IT_IS = "as it is"
SPREAD = (AS_IT_IS, "along the first", "along the last")
"""Whether the first tensor has one number for a whole axis (its stride is 0)."""
HELD: Axes = {"spread": SPREAD[:2]}
SPREAD_ALL = (*SPREAD, "the others along the first", "the others along the last")
BY_ITSELF: Dict[str, Any] = {"dtypes": ("float32",), "steady": False, "anew": False}
"""For rows whose exact answer is what the same operator gives in float64; plainer rows of each are
called again and with other numbers at the same place."""


class Made(NamedTuple):
    """One call."""

    tensors: List[Any]
    options: Dict[str, Any] = {}
    plain: Dict[str, Any] = {}
    """What the exact answer is asked with in their place: axes counted from the front, say."""
    places: Dict[int, int] = {}
    """Which tensors hold places that may count from the end, and among how many: the exact answer
    counts them from the front."""


def calls_of(menu: Menu, chance: Any, together: int = 1) -> List[Dict[str, Any]]:
    """For each kind the usual call, which has the first value of each option, and calls in which
    each other value comes once; then those of a kind and of values that are drawn.

    `together`: how many options may be off their usual value at once; which ones, is drawn.

    >>> import random
    >>> axes = {"a": (1, 2, 3), "b": (True, False)}
    >>> calls_of({"": axes}, random.Random(1))[0]
    {'a': 1, 'b': True}
    >>> {"a": 3, "b": True} in calls_of({"": axes}, random.Random(1))
    True
    >>> [len(calls_of({"mean": axes, "sum": axes}, random.Random(1), n)) - MIXED for n in (1, 2)]
    [8, 6]
    """
    found = []
    for kind, axes in menu.items():
        usual = _call(kind, {name: values[0] for name, values in axes.items()})
        found += [usual, *({**usual, **some} for some in _others(axes, chance, together))]
    for kind in chance.choices(list(menu), k=MIXED):
        drawn = {name: _any(values, chance) for name, values in menu[kind].items()}
        found.append(_call(kind, drawn))
    return found


def _others(axes: Axes, chance: Any, together: int) -> List[Dict[str, Any]]:
    """Each value but the usual one, dealt out by turns: no two of an option come together."""
    names = chance.sample(sorted(axes), len(axes))
    cards = [(name, value) for name in names for value in _shuffled(axes[name][1:], chance)]
    most = max((len(values) - 1 for values in axes.values()), default=0)
    count = max(most, -(-len(cards) // together))
    return [dict(cards[turn::count]) for turn in range(count)]


def _shuffled(values: Sequence[Any], chance: Any) -> List[Any]:
    return list(chance.sample(list(values), len(values)))


def _call(kind: str, values: Dict[str, Any]) -> Dict[str, Any]:
    return {"kind": kind, **values} if kind else values


def _any(values: Sequence[Any], chance: Any) -> Any:
    """The usual one half of the time: beside nothing but edges little is computed."""
    return chance.choice((values[0], chance.choice(values)))


def by_single_options(
    name: str,
    options: Mapping[str, Any],
    make: Callable[..., Made],
    run: Callable[..., Any],
    exact: Optional[Callable[..., Any]] = None,
    words: str = "by single options",
    together: int = 1,
    **more: Any,
) -> Operator:
    """A row whose sample has every value of every option, beside the usual values of the others.

    `options`: the values of each, the usual one first; or such a table for each kind of call, which
    `make` is then told as `kind`. `make(d, **values)` gives one call, `run(t, tensors...,
    options...)` one answer or several. `exact`: the same by definition; without it `run` itself in
    float64, of dense tensors (numbers alone: places and flags stay), with the call's plain options.
    An option `spread` is one of `SPREAD_ALL`; neither `make` nor `run` is told it.
    """
    menu: Menu = dict(options) if _is_menu(options) else {"": dict(options)}

    def made(d: Draw, spread: str = AS_IT_IS, **values: Any) -> Tuple[List[Any], Dict[str, Any]]:
        call = make(d, **values)
        numbers = [x.is_floating_point() for x in call.tensors]
        given = {"made": call._replace(tensors=[]), "numbers": numbers, "spread": spread}
        return call.tensors, given

    def dense(
        t: Any, *tensors: Any, made: Made, numbers: List[bool], spread: str = AS_IT_IS
    ) -> Any:
        some = _in_memory(spread_all(tensors, spread), made, numbers)
        return (exact or run)(t, *some, **{**made.options, **made.plain})

    def here(t: Any, *tensors: Any, made: Made, numbers: List[bool], spread: str) -> Any:
        return run(t, *spread_all(tensors, spread), **made.options)

    more = {"weight": SELDOM, **more}
    return by_calls(
        f"{name} {words}", lambda d: calls_of(menu, d.chance, together), made, here, dense, **more
    )


by_each_option = functools.partial(
    by_single_options, words="by each option", together=2, weight=OFTEN
)
"""The same of short calls with many options, of which `standard` draws more samples: two options at
once are off their usual values, in each sample another two."""


def _is_menu(options: Any) -> bool:
    return all(isinstance(each, dict) for each in options.values()) and bool(options)


def spread_all(tensors: Sequence[Any], how: str) -> List[Any]:
    """The first, or all others, with one number for a whole axis."""
    which = slice(1, None) if "others" in how else slice(1)
    some = list(tensors)
    some[which] = [spread_out(x, how) for x in some[which]]
    return some


def spread_out(x: Any, how: str) -> Any:
    """One number for all of an axis, without memory for the others."""
    if how == AS_IT_IS or not x.dim() or not x.numel():
        return x
    axis = 0 if how.endswith("first") else -1
    return x.narrow(axis, 0, 1).expand(x.shape)


def _in_memory(tensors: List[Any], made: Made, numbers: List[bool]) -> List[Any]:
    """Side by side, numbers in float64, whole ones too, and places counted from the front."""
    found = []
    for i, x in enumerate(tensors):
        x = x % made.places[i] if i in made.places else x.contiguous()
        found.append(x.double() if numbers[i] else x)
    return found


# --- shapes and axes -----------------------------------------------------------------------------

RANKS = (3, 2, 1, 4, 5, 6, 0)
LENGTHS = ("usual", "of one", "of nothing")
MOST = 240
"""Of the elements: so many whole numbers are unlike each other in bfloat16."""


def shape_of(d: Draw, rank: int, lengths: str = "usual", least: int = 1) -> Tuple[int, ...]:
    """`rank` lengths, at most one long, together at most `MOST` elements."""
    left, found = MOST, []
    for turn in range(rank):
        room = max(least, left // (max(2, least) ** (rank - turn - 1)))
        some = [n for n in ((d.length(),) if not turn else (2, 3, 4, 5)) if least <= n <= room]
        some = some or [n for n in (5, 4, 3, 2) if least <= n <= room] or [least]
        found.append(d.choice(some))
        left //= found[-1]
    d.chance.shuffle(found)
    if rank and lengths != "usual":
        found[d.choice(range(rank))] = int(lengths == "of one")
    return tuple(found)


SINGLE = ("last", "first", "middle", "last from the end", "middle from the end")
SEVERAL = (
    *SINGLE,
    *("several", "several from the end", "in another order", "of both kinds", "every", "all"),
)


def axes_of(d: Draw, kind: str, rank: int) -> Tuple[Any, List[int]]:
    """What is handed on as `dim`, and the axes that it names, from the front; for a number without
    axes its one axis by courtesy."""
    most = max(1, rank)
    if kind == "all":
        return None, list(range(rank))
    if kind in SINGLE or not rank:
        place = {"first": 0, "last": most - 1}.get(kind.split(" ")[0], d.choice(range(most)))
        return (place - most if "end" in kind else place), [place][:rank]
    count = rank if kind == "every" else d.choice(range(1, min(3, rank) + 1))
    some = sorted(d.chance.sample(range(rank), count))
    given = list(some)
    if kind == "in another order":
        given = d.chance.sample(some, len(some))
    if kind == "several from the end":
        given = [n - rank for n in some]
    if kind == "of both kinds":
        given = [d.choice((n, n - rank)) for n in d.chance.sample(some, len(some))]
    return tuple(given), some
