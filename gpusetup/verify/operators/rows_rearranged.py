"""Joining, cutting, turning and bordering with each option: axes from the end, parts of nothing,
steps, and every shape."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from .drawing import Draw
from .releases import NARROWED_COPY, release
from .single_options import LENGTHS, RANKS, SINGLE, SPREAD, Made, axes_of, by_each_option, shape_of
from .table import Operator

KEPT: Dict[str, Any] = {
    "kept": True,
    "dtypes": ("float32", "int64", "bfloat16", "float16", "uint8", "bool", "float64", "int32"),
}
TURNED: Dict[str, Any] = {
    "dims": SINGLE,
    "rank": RANKS[:-1],
    "lengths": LENGTHS,
    "spread": SPREAD,
}


def numbers(d: Draw, shape: Any) -> Any:
    return d.whole(0, 100, *shape).double()


def _one_axis(d: Draw, dims: str, rank: int, lengths: str, **of: Any) -> Made:
    given, names = axes_of(d, dims, rank)
    x = numbers(d, shape_of(d, rank, lengths))
    return Made([x], {"dim": given, **of}, {"dim": names[0]})


def axis_row(name: str, axes: Dict[str, Any], run: Any, exact: Any = None, **more: Any) -> Operator:
    return by_each_option(name, {**TURNED, **axes}, _one_axis, run, exact, **{**KEPT, **more})


def _bounded(x: Any, dim: int, first: int, length: int) -> Tuple[int, int]:
    """A start, from the end where it is negative, and a length that fit."""
    most = x.shape[dim]
    start = max(-most, min(most, first))
    return start, max(0, min(length, most - start % (most + 1) if start >= 0 else -start))


def _narrow_copy(t: Any) -> Any:
    return t.narrow_copy if release(t) >= NARROWED_COPY else t.narrow


def _slice(t: Any, x: Any, dim: int, first: Any, last: Any, step: int) -> Any:
    return t.ops.aten.slice(x, dim, first, last, step)


def picked(x: Any, dim: int, places: List[int], t: Any) -> Any:
    return x.index_select(dim, t.tensor(places, dtype=t.int64))


def _slice_exact(t: Any, x: Any, dim: int, first: Any, last: Any, step: int) -> Any:
    return picked(x, dim, list(range(x.shape[dim]))[first:last:step], t)


def _cut(kind: str) -> Callable[..., Any]:
    def run(t: Any, x: Any, dim: int, parts: Any) -> Any:
        count = x.shape[dim]
        if kind == "split" and isinstance(parts, tuple):
            some = [min(n, count) for n in parts[:1]]
            return t.split(x, [*some, 0, count - sum(some)], dim)
        if isinstance(parts, tuple):
            return t.tensor_split(x, parts, dim)
        return getattr(t, kind)(x, parts, dim)

    return run


def _rolled(d: Draw, rank: int, kind: str, lengths: str, **_: Any) -> Made:
    given, _names = axes_of(d, kind, rank)
    x = numbers(d, shape_of(d, rank, lengths))
    if isinstance(given, int) or given is None:
        return Made([x], {"shifts": d.choice((1, -1, 3, -70, 0)), "dims": given})
    shifts = tuple(d.choice((1, -1, 2, -3, 0)) for _ in given)
    return Made([x], {"shifts": shifts, "dims": given}, {"dims": tuple(n % rank for n in given)})


def _rolled_exact(t: Any, x: Any, shifts: Any, dims: Any) -> Any:
    if dims is None:
        line = x.reshape(-1)
        return _roll(t, line, 0, shifts).reshape(x.shape)
    pairs = [(dims, shifts)] if isinstance(dims, int) else zip(dims, shifts)
    for dim, shift in pairs:
        x = _roll(t, x, dim, shift)
    return x


def _roll(t: Any, x: Any, dim: int, shift: int) -> Any:
    count = x.shape[dim]
    return picked(x, dim, [(n - shift) % count for n in range(count)], t)


def _flipped(d: Draw, rank: int, kind: str, lengths: str, **_: Any) -> Made:
    given, names = axes_of(d, kind, rank)
    listed = [given] if isinstance(given, int) else list(given)
    listed = listed if rank else []
    return Made([numbers(d, shape_of(d, rank, lengths))], {"dims": listed}, {"dims": names})


def _flip_exact(t: Any, x: Any, dims: List[int]) -> Any:
    for dim in dims:
        x = picked(x, dim, list(range(x.shape[dim]))[::-1], t)
    return 1 * x


def _two_axes(least: int = 0) -> Callable[..., Made]:
    def make(d: Draw, rank: int, below: bool, lengths: str, **of: Any) -> Made:
        rank = max(2, rank)
        one, other = d.chance.sample(range(rank), 2)
        x = numbers(d, shape_of(d, rank, lengths))
        given = {"a": one - rank, "b": d.choice((other, other - rank))}
        plain = {"a": one, "b": other}
        return Made([x], {**(given if below else plain), **of}, plain)

    return make


TWO: Dict[str, Any] = {
    "rank": RANKS[:-1],
    "below": (False, True),
    "lengths": LENGTHS,
    "spread": SPREAD,
}
OFFSETS = (0, 1, -1, 2, -3, 90)


def _diagonal_exact(t: Any, x: Any, a: int, b: int, offset: int) -> Any:
    x = x.movedim((a, b), (-2, -1))
    rows, columns = x.shape[-2:]
    places = [n * columns + n + offset for n in range(rows) if 0 <= n + offset < columns]
    return picked(x.reshape([*x.shape[:-2], rows * columns]), -1, places, t)


def _embedded(d: Draw, rank: int, below: bool, offset: int, lengths: str, **_: Any) -> Made:
    x = numbers(d, shape_of(d, max(1, min(5, rank)), lengths))
    wide = x.dim() + 1
    one, other = d.chance.sample(range(wide), 2)
    given = {"a": one - wide, "b": other - wide} if below else {"a": one, "b": other}
    return Made([x], {**given, "offset": offset}, {"a": one, "b": other})


def _embed_exact(t: Any, x: Any, a: int, b: int, offset: int) -> Any:
    side = x.shape[-1] + abs(offset)
    found = t.zeros([*x.shape[:-1], side * side], dtype=x.dtype)
    first = offset if offset > 0 else -offset * side
    places = [first + n * (side + 1) for n in range(x.shape[-1])]
    found = found.index_add(-1, t.tensor(places, dtype=t.int64), x)
    found = found.reshape([*x.shape[:-1], side, side])
    return found.movedim((-2, -1), (a, b))


def _triangle(lower: bool) -> Callable[..., Any]:
    def exact(t: Any, x: Any, offset: int, **_: Any) -> Any:
        away = t.arange(x.shape[-1]) - t.arange(x.shape[-2]).unsqueeze(-1)
        return x * ((away <= offset) if lower else (away >= offset)).double()

    return exact


def _matrix(d: Draw, rank: int, lengths: str, offset: int, **_: Any) -> Made:
    return Made([numbers(d, shape_of(d, max(2, rank), lengths))], {"offset": offset})


def _repeated(d: Draw, dims: str, rank: int, kind: str, told: bool, **_: Any) -> Made:
    given, names = axes_of(d, dims, rank)
    x = numbers(d, shape_of(d, rank))
    length = x.shape[names[0]]
    counts = [d.choice((0, 1, 3)) for _ in range(length)]
    if kind == "a number":
        return Made([x], {"dim": given, "counts": 3, "told": told}, {"dim": names[0]})
    return Made([x], {"dim": given, "counts": counts, "told": told}, {"dim": names[0]})


def _repeat(t: Any, x: Any, dim: int, counts: Any, told: bool) -> Any:
    each = counts if isinstance(counts, int) else t.tensor(counts, device=x.device)
    size = counts * x.shape[dim] if isinstance(counts, int) else sum(counts)
    return t.repeat_interleave(x, each, dim, **({"output_size": size} if told else {}))


def _repeat_exact(t: Any, x: Any, dim: int, counts: Any, told: bool) -> Any:
    each = [counts] * x.shape[dim] if isinstance(counts, int) else counts
    return picked(x, dim, [n for n, count in enumerate(each) for _ in range(count)], t)


STARTS: Dict[str, Any] = {
    "first": (None, 0, 1, -2, 90),
    "last": (None, 3, -1, 1, -90, 2**60),
    "step": (1, 2, 3, 50),
}
PARTS: Tuple[Operator, ...] = (
    axis_row(
        "select",
        {"at": (0, 1, -1, -2, 40)},
        lambda t, x, dim, at: x.select(dim, _fit(at, x.shape[dim])) if x.shape[dim] else x,
        lambda t, x, dim, at: x.unbind(dim)[_fit(at, x.shape[dim])] if x.shape[dim] else x,
    ),
    # The gradient of 2.13.0's `narrow_copy` from a negative start to the end stands elsewhere.
    axis_row(
        "narrow",
        {"first": (0, 1, -1, -3, 2), "length": (2, 0, 1, 50)},
        lambda t, x, dim, first, length: (
            t.narrow(x, dim, *_bounded(x, dim, first, length)),
            _narrow_copy(t)(x.detach(), dim, *_bounded(x, dim, first, length)),
        ),
        lambda t, x, dim, first, length: [
            _slice_exact(t, y, dim, *_ends(x, dim, first, length), 1) for y in (x, x.detach())
        ],
    ),
    axis_row(
        "slice",
        {
            "first": (None, 0, 1, -2, 90),
            "last": (None, 3, -1, 1, -90, 2**60),
            "step": (1, 2, 3, 50),
        },
        _slice,
        _slice_exact,
    ),
    axis_row("split", {"parts": (2, 1, 5, 100, (1,), (2,))}, _cut("split")),
    axis_row("chunk", {"parts": (2, 1, 3, 7, 100)}, _cut("chunk")),
    axis_row("tensor_split", {"parts": (2, 3, 7, (1, 3), (2, 1), (-1,))}, _cut("tensor_split")),
    axis_row("unbind", {}, lambda t, x, dim: t.unbind(x, dim) if x.shape[dim] else x),
    axis_row(
        "unfold",
        {"length": (2, 1, 3), "step": (1, 2, 4)},
        lambda t, x, dim, length, step: x.unfold(dim, min(length, x.shape[dim]), step),
    ),
    by_each_option(
        "repeat_interleave",
        {
            **{k: TURNED[k] for k in ("dims", "rank", "spread")},
            "kind": ("each", "a number"),
            "told": (False, True),
        },
        _repeated,
        _repeat,
        _repeat_exact,
        **KEPT,
    ),
)
KINDS = (*SINGLE, "several", "several from the end", "in another order", "of both kinds", "every")
MOVED: Tuple[Operator, ...] = (
    by_each_option(
        "roll",
        {"rank": RANKS[:-1], "kind": (*KINDS, "all"), "lengths": LENGTHS, "spread": SPREAD},
        _rolled,
        lambda t, x, shifts, dims: (
            t.roll(x, shifts, dims) if dims is not None else t.roll(x, shifts)
        ),
        _rolled_exact,
        **KEPT,
    ),
    by_each_option(
        "flip",
        {"rank": RANKS, "kind": KINDS, "lengths": LENGTHS, "spread": SPREAD},
        _flipped,
        lambda t, x, dims: t.flip(x, dims),
        _flip_exact,
        **KEPT,
    ),
    by_each_option(
        "rot90",
        {**TWO, "k": (1, 0, 2, 3, -1, 5)},
        _two_axes(),
        lambda t, x, a, b, k: t.rot90(x, k, [a, b]),
        **KEPT,
    ),
    by_each_option(
        "transpose and movedim",
        TWO,
        _two_axes(),
        lambda t, x, a, b: (x.transpose(a, b) + 0 * x.sum(), x.movedim(a, b).contiguous()),
        **KEPT,
    ),
    by_each_option(
        "diagonal",
        {**TWO, "offset": OFFSETS},
        _two_axes(),
        lambda t, x, a, b, offset: t.diagonal(x, offset, a, b),
        _diagonal_exact,
        **KEPT,
    ),
    by_each_option(
        "diag_embed",
        {**TWO, "offset": OFFSETS[:-1]},
        _embedded,
        lambda t, x, a, b, offset: t.diag_embed(x, offset, a, b),
        _embed_exact,
        **KEPT,
    ),
    *(
        by_each_option(
            name,
            {"rank": RANKS[:-1], "offset": OFFSETS, "lengths": LENGTHS, "spread": SPREAD},
            _matrix,
            lambda t, x, offset, name=name: getattr(t, name)(x, offset),
            _triangle(name == "tril"),
            **KEPT,
        )
        for name in ("tril", "triu")
    ),
)


def _fit(at: int, length: int) -> int:
    return max(-length, min(length - 1, at))


def _ends(x: Any, dim: int, first: int, length: int) -> Tuple[int, int]:
    start, count = _bounded(x, dim, first, length)
    start = start % x.shape[dim] if start < 0 else start
    return start, start + count


REARRANGED: Tuple[Operator, ...] = (*PARTS, *MOVED)
