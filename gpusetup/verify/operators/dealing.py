"""Options of a call one by one: a sample meets each value of each, most often beside the usual
values of the others.

What a kernel forgets is most often one option, or one edge, by itself.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .drawing import Draw, Given
from .table import FEW, Operator

Axes = Dict[str, Sequence[Any]]
SPREAD = ("as it is", "as it is", "as it is", "along the first", "along the last")
"""Whether the first tensor has one number for a whole axis (its stride is 0)."""
SPREAD_ALL = (*SPREAD, "the others along the first", "the others along the last")


class Made(NamedTuple):
    """One call."""

    tensors: List[Any]
    options: Dict[str, Any] = {}
    plain: Dict[str, Any] = {}
    """What the exact answer is asked with in their place: axes counted from the front, say."""
    places: Dict[int, Optional[int]] = {}
    """Which tensors hold places, and among how many: the exact answer counts them from the front.
    None: they stay as they are."""


def dealt(axes: Axes, chance: Any, least: int = 0) -> List[Dict[str, Any]]:
    """Calls that meet each value of each option, which the first of its values stands for most
    often.

    >>> import random
    >>> calls = dealt({"dim": (0, 1, -1), "keep": (False, True)}, random.Random(1))
    >>> len(calls), sorted(call["dim"] for call in calls)
    (3, [-1, 0, 1])
    """
    count = max(least, *map(len, axes.values()))
    decks = {name: _deck(values, count, chance) for name, values in axes.items()}
    return [{name: deck[turn] for name, deck in decks.items()} for turn in range(count)]


def _deck(values: Sequence[Any], count: int, chance: Any) -> List[Any]:
    more = [chance.choice((values[0], chance.choice(values))) for _ in range(count - len(values))]
    return list(chance.sample([*values, *more], count))


def by_options(
    name: str,
    axes: Axes,
    make: Callable[..., Made],
    run: Callable[..., Any],
    exact: Optional[Callable[..., Any]] = None,
    least: int = 0,
    **more: Any,
) -> Operator:
    """A row whose sample is a call for each value of each option. `make(d, **values)` gives one
    call, `run(t, tensors..., options...)` one answer or several. `exact`: the same by definition;
    without it `run` itself in float64 (whole numbers too), of dense tensors, with the call's plain
    options. An option `spread` is one of `SPREAD_ALL` and not handed on."""

    def all_made(d: Draw) -> Given:
        calls = [(values, make(d, **values)) for values in dealt(axes, d.chance, least)]
        tensors = [x for _, made in calls for x in made.tensors]
        given = [
            (len(made.tensors), made._replace(tensors=[]), values.get("spread", SPREAD[0]))
            for values, made in calls
        ]
        return Given(tensors, {"calls": given})

    def each(call: Callable[..., Any], exactly: bool) -> Callable[..., Any]:
        def run_all(t: Any, *tensors: Any, calls: List[Tuple[int, Made, str]]) -> List[Any]:
            found: List[Any] = []
            at = 0
            for count, made, spread in calls:
                some, options = list(tensors[at : at + count]), made.options
                at += count
                which = slice(1, None) if "others" in spread else slice(1)
                some[which] = [spread_out(x, spread) for x in some[which]]
                if exactly:
                    some = [_plain(x, i, made.places) for i, x in enumerate(some)]
                    options = {**options, **made.plain}
                one = call(t, *some, **options)
                found += one if isinstance(one, (list, tuple)) else [one]
            return found

        return run_all

    more = {"sizes": FEW, "weight": 0.3, **more}
    return Operator(
        f"{name} by each option", all_made, each(run, False), each(exact or run, True), **more
    )


def spread_out(x: Any, how: str) -> Any:
    """One number for all of an axis, without memory for the others."""
    if how == SPREAD[0] or not x.dim() or not x.numel():
        return x
    axis = 0 if how.endswith("first") else -1
    return x.narrow(axis, 0, 1).expand(x.shape)


def _plain(x: Any, turn: int, places: Dict[int, Optional[int]]) -> Any:
    if turn in places:
        count = places[turn]
        return x if count is None else x % count
    dense = x.contiguous()
    return dense if x.dtype.is_floating_point or str(x.dtype) == "torch.bool" else dense.double()


# --- shapes and axes -----------------------------------------------------------------------------

RANKS = (3, 2, 1, 4, 5, 6, 0)
LENGTHS = ("usual", "usual", "usual", "of one", "of nothing")
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
