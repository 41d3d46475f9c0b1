"""Joining, bordering and patches with each option: axes from the end, parts of nothing, sides that
are unlike."""

from __future__ import annotations

from typing import Any, List, Tuple

from .drawing import Draw
from .rows_rearranged import KEPT, numbers, picked
from .single_options import LENGTHS, RANKS, SINGLE, Made, axes_of, by_each_option, shape_of
from .table import FULL, Operator


def _joined(d: Draw, dims: str, rank: int, lengths: str, count: int, empty: str) -> Made:
    """Of unlike lengths along the axis; one may have nothing there."""
    given, names = axes_of(d, dims, rank)
    shape = list(shape_of(d, rank, lengths))
    tensors = []
    for turn in range(count):
        some = list(shape)
        some[names[0]] = d.choice((1, 2, shape[names[0]]))
        if empty == "one" and turn == count // 2:
            some[names[0]] = 0
        tensors.append(numbers(d, some))
    if empty == "of old" and not any(0 in x.shape for x in tensors):
        tensors.insert(d.choice(range(count)), numbers(d, [0]))
    return Made(tensors, {"dim": given}, {"dim": names[0]})


def _cat_exact(t: Any, *xs: Any, dim: int) -> Any:
    xs = tuple(x for x in xs if x.dim() > 1 or x.numel() or all(y.dim() < 2 for y in xs))
    parts = [x.select(dim, n) for x in xs for n in range(x.shape[dim])]
    return t.stack(parts, dim) if parts else xs[0].narrow(dim, 0, 0)


def _stacked(d: Draw, dims: str, rank: int, lengths: str, count: int) -> Made:
    rank = min(5, rank)
    given, names = axes_of(d, dims, rank + 1)
    shape = shape_of(d, rank, lengths)
    tensors = [numbers(d, shape) for _ in range(count)]
    return Made(tensors, {"dim": given}, {"dim": names[0]})


MODES = ("constant", "reflect", "replicate", "circular")


def _bordered(d: Draw, mode: str, axes: int, sides: str, batch: bool, value: float) -> Made:
    shape = [*([2] if batch else []), 2, *(d.choice((3, 4, 6)) for _ in range(axes))]
    if mode == "circular" and not batch:
        shape = [1, *shape]
    most = 2
    by = [d.choice(range(most + 1)) for _ in range(2 * axes)]
    if sides == "cut" and mode != "circular":
        by[d.choice(range(2 * axes))] = -1
    if sides == "left":
        by[1::2] = [0] * axes
    if sides == "right":
        by[::2] = [0] * axes
    return Made([numbers(d, shape)], {"by": by, "mode": mode, "value": value})


def _border(t: Any, x: Any, by: List[int], mode: str, value: float) -> Any:
    if mode == "constant":
        return t.nn.functional.pad(x, by, mode, value)
    return t.nn.functional.pad(x, by, mode)


def _border_exact(t: Any, x: Any, by: List[int], mode: str, value: float) -> Any:
    for turn in range(len(by) // 2):
        dim, count = x.dim() - 1 - turn, x.shape[x.dim() - 1 - turn]
        at = list(range(-by[2 * turn], count + by[2 * turn + 1]))
        out = [n for n, place in enumerate(at) if not 0 <= place < count]
        if mode == "circular":
            at = [n % count for n in at]
        if mode == "reflect":
            at = [-n if n < 0 else 2 * (count - 1) - n if n >= count else n for n in at]
        x = picked(x, dim, [max(0, min(count - 1, n)) for n in at], t)
        if mode == "constant" and out:
            x = x.index_fill(dim, t.tensor(out), value)
    return x


def _folded(d: Draw, **of: Any) -> Made:
    """Patches of an image, sides and steps unlike; every option names both axes."""
    sides = (d.choice((5, 6, 9)), d.choice((6, 7, 8)))
    shape = ([2] if of.pop("batch") else []) + [3, *sides]
    return Made([numbers(d, shape)], {**of, "sides": sides})


def _fold(t: Any, x: Any, sides: Any, **of: Any) -> List[Any]:
    patches = t.nn.functional.unfold(x, (2, 3), **of)
    return [patches, t.nn.functional.fold(patches, sides, (2, 3), **of)]


JOINED: Tuple[Operator, ...] = (
    by_each_option(
        "cat",
        {
            "dims": SINGLE,
            "rank": RANKS[:-1],
            "lengths": LENGTHS,
            "count": (2, 1, 3, 9),
            "empty": ("none", "one", "of old"),
        },
        _joined,
        lambda t, *xs, dim: t.cat(xs, dim),
        _cat_exact,
        **KEPT,
    ),
    by_each_option(
        "stack",
        {"dims": SINGLE, "rank": RANKS, "lengths": LENGTHS, "count": (2, 1, 3, 9)},
        _stacked,
        lambda t, *xs, dim: t.stack(xs, dim),
        lambda t, *xs, dim: t.cat([x.unsqueeze(dim) for x in xs], dim),
        **KEPT,
    ),
    by_each_option(
        "borders",
        {
            "mode": MODES,
            "axes": (1, 2, 3),
            "sides": ("both", "left", "right", "cut"),
            "batch": (True, False),
            "value": (0.0, 3.0, -2.0),
        },
        _bordered,
        _border,
        _border_exact,
        kept=True,
        dtypes=FULL,
    ),
    by_each_option(
        "patches",
        {
            "dilation": (1, (2, 1), (1, 2)),
            "padding": (0, (1, 0), (0, 2), 1),
            "stride": (1, (2, 1), (1, 3)),
            "batch": (True, False),
        },
        _folded,
        _fold,
        slack=4,
        dtypes=("float32", "float64", "bfloat16"),
    ),
)
