"""Operators that move numbers without computing: every bit is known."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .drawing import Draw, Given, given
from .table import ANY, Operator

KEPT = ANY[:-1]


def shaped(dims: int, least: int = 1, **choices: Any) -> Callable[[Draw], Given]:
    """Whole numbers of a shape, and one draw of each choice."""

    def make(d: Draw) -> Given:
        shape = d.shape(dims, least)
        return given(
            d.whole(0, 100, *shape).double(), **{k: d.choice(v) for k, v in choices.items()}
        )

    return make


def moving(name: str, make: Any, run: Any, exact: Any = None, **more: Any) -> Operator:
    more.setdefault("dtypes", KEPT)
    more.setdefault("kept", True)
    return Operator(name, make, run, exact, **more)


def _flat(t: Any, x: Any, places: Any, shape: Any) -> Any:
    """The elements at places of the contiguous line, by one lookup."""
    return x.contiguous().reshape(-1)[places.reshape(-1)].reshape(shape)


def _numbered(t: Any, x: Any) -> Any:
    return t.arange(x.numel()).reshape(x.shape)


def _same_moves(run: Callable[..., Any]) -> Callable[..., Any]:
    """The move done with the places themselves (int64, contiguous), then one lookup."""

    def exact(t: Any, x: Any, **options: Any) -> Any:
        places = run(t, _numbered(t, x), **options)
        return _flat(t, x, places, places.shape)

    return exact


def moved(name: str, make: Any, run: Any, **more: Any) -> Operator:
    return moving(name, make, run, _same_moves(run), **more)


MOVES: Tuple[Operator, ...] = (
    moved("permute", shaped(3), lambda t, x: x.permute(2, 0, 1).contiguous(), weight=3),
    moved("transpose", shaped(2), lambda t, x: x.t().contiguous(), weight=3),
    moved("transpose of four", shaped(4), lambda t, x: x.transpose(1, 2).contiguous(), weight=3),
    moved("reshape", shaped(3), lambda t, x: x.transpose(0, 1).reshape(-1), weight=2),
    moved("expand", shaped(2), lambda t, x: x.unsqueeze(1).expand(-1, 3, -1).contiguous()),
    moved("repeat", shaped(2), lambda t, x: x.repeat(2, 3)),
    moved("repeat_interleave", shaped(2), lambda t, x: x.repeat_interleave(3, 1), weight=2),
    moved("roll", shaped(2, 2), lambda t, x: x.roll((1, -2), (0, 1))),
    moved("flip", shaped(3), lambda t, x: x.flip(0, 2)),
    moved("slices", shaped(2, 3), lambda t, x: x[1::2, :-1].contiguous(), weight=2),
    moving("tril", shaped(2), lambda t, x: x.tril(-1), lambda t, x: x * _below(t, x, -1), weight=2),
    moving("triu", shaped(3), lambda t, x: x.triu(1), lambda t, x: x * _above(t, x, 1), weight=2),
    moving(
        "cat",
        shaped(2),
        lambda t, x: t.cat([x, x + 1, x], 1),
        lambda t, x: _joined(t, x, 1),
        weight=3,
    ),
    moving(
        "cat of first",
        shaped(3),
        lambda t, x: t.cat([x, x + 1, x], 0),
        lambda t, x: _joined(t, x, 0),
        weight=2,
    ),
    moving(
        "stack",
        shaped(2),
        lambda t, x: t.stack([x, x + 1], 1),
        lambda t, x: _stacked(t, x),
        weight=2,
    ),
    moving(
        "pad",
        shaped(2),
        lambda t, x: t.nn.functional.pad(x, (1, 2, 3, 0), value=7),
        lambda t, x: _padded(t, x),
    ),
    moving(
        "copy_",
        shaped(3),
        lambda t, x: t.zeros_like(x).copy_(x),
        lambda t, x: 1 * x,
        learns=False,
        weight=2,
    ),
    moving(
        "copy to strided",
        shaped(2),
        lambda t, x: _copied_wide(t, x),
        lambda t, x: 1 * x,
        learns=False,
        weight=2,
    ),
)


def _below(t: Any, x: Any, by_how_many: int) -> Any:
    rows, columns = t.arange(x.shape[-2]).unsqueeze(1), t.arange(x.shape[-1])
    return columns - rows <= by_how_many


def _above(t: Any, x: Any, by_how_many: int) -> Any:
    rows, columns = t.arange(x.shape[-2]).unsqueeze(1), t.arange(x.shape[-1])
    return columns - rows >= by_how_many


def _joined(t: Any, x: Any, dim: int) -> Any:
    shape = list(x.shape)
    n, shape[dim] = shape[dim], 3 * shape[dim]
    out = (
        [x.select(dim, i % n) + (1 if n <= i < 2 * n else 0) for i in range(3 * n)]
        if n < 40
        else []
    )
    if out:
        return t.stack(out, dim)
    return x.repeat([3 if i == dim else 1 for i in range(x.dim())]) + _middle(t, x, dim, n)


def _middle(t: Any, x: Any, dim: int, n: int) -> Any:
    count = t.arange(3 * n).reshape([-1 if i == dim else 1 for i in range(x.dim())])
    return ((count >= n) & (count < 2 * n)).to(x.dtype)


def _stacked(t: Any, x: Any) -> Any:
    return x.unsqueeze(1) + t.arange(2).reshape(1, 2, 1)


def _padded(t: Any, x: Any) -> Any:
    rows, columns = t.arange(-3, x.shape[0]), t.arange(-1, x.shape[1] + 2)
    inside = (rows >= 0).unsqueeze(1) & ((columns >= 0) & (columns < x.shape[1]))
    found = x[rows.clamp(min=0)][:, columns.clamp(0, x.shape[1] - 1)]
    return t.where(inside, found, 0 * found + 7)


def _copied_wide(t: Any, x: Any) -> Any:
    wide = x.new_zeros(2 * x.shape[0], x.shape[1] + 5)
    wide[::2, 2:-3] = x
    return wide[::2, 2:-3]


MOVING = MOVES
