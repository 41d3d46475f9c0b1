"""Further moves: joins of many, views, copies between layouts and formats, borders of images."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .drawing import Draw, Given, given
from .rows_moving import KEPT, moved, moving, shaped
from .table import FLOATS, Operator

WIDE = (*KEPT, "int16")


def _image(dims: int) -> Callable[[Draw], Given]:
    """Whole numbers with `dims` axes behind two others; each at least four long."""

    def make(d: Draw) -> Given:
        lengths = [4 + d.length(60) if i == 0 else d.choice((4, 5, 7, 9)) for i in range(dims)]
        d.chance.shuffle(lengths)
        return given(d.whole(0, 100, d.choice((1, 2)), d.choice((1, 3, 8, 9)), *lengths).double())

    return make


def _bordered(name: str, dims: int, mode: str) -> Operator:
    """Each side has a border of its own: 1 and 2, 3 and 0, 2 and 1."""
    borders = ((1, 2), (3, 0), (2, 1))[:dims]

    def run(t: Any, x: Any) -> Any:
        return t.nn.functional.pad(x, [n for pair in borders for n in pair], mode=mode)

    def exact(t: Any, x: Any) -> Any:
        for place, (before, after) in enumerate(borders):
            dim = x.dim() - 1 - place
            n = x.shape[dim]
            at = t.arange(-before, n + after)
            if mode == "reflect":
                at = at.abs()
                at = t.where(at >= n, 2 * (n - 1) - at, at)
            elif mode == "replicate":
                at = at.clamp(0, n - 1)
            else:
                at = at % n
            x = x.index_select(dim, at)
        return x

    # What a border takes twice has two gradients: they are added up, and rounded.
    return Operator(name, _image(dims), run, exact, dtypes=FLOATS, slack=4, weight=2, steady=False)


BORDERS: Tuple[Operator, ...] = tuple(
    _bordered(f"{dims}d border by {word}", dims, mode)
    for word, mode in (
        ("reflection", "reflect"),
        ("repetition", "replicate"),
        ("turns", "circular"),
    )
    for dims in (1, 2, 3)
)


def _many(d: Draw) -> Given:
    count = d.choice((7, 33, 64, 65, 129, 257))
    return given(d.whole(0, 100, count, d.length(33), 3).double(), dim=d.choice((0, 1)))


def _uneven(d: Draw) -> Given:
    n, m = d.shape(2, 3)
    return given(d.whole(0, 100, n, m).double(), cut=1 + d.choice((0, 1)) * (m - 2))


def _uneven_run(t: Any, x: Any, cut: int) -> Any:
    last = x.shape[1] - 1
    parts = [x[:, :cut], x[:, cut:]] if last <= cut else [x[:, :cut], x[:, cut:last], x[:, last:]]
    return t.cat([*parts[::-1], x[:, :0]], 1)


JOINS: Tuple[Operator, ...] = (
    moved("cat of many", _many, lambda t, x, dim: t.cat(list(x.unbind(0)), dim), weight=3),
    moved("stack of many", _many, lambda t, x, dim: t.stack(list(x.unbind(0)), dim), weight=2),
    moved("cat of uneven", _uneven, _uneven_run, weight=3),
    moved(
        "cat of channels last",
        _image(2),
        lambda t, x: t.cat([x, x.contiguous(memory_format=t.channels_last)], 1),
        weight=2,
    ),
    moved("chunk", shaped(2, 2), lambda t, x: t.cat(x.chunk(3, 1)[::-1], 1), weight=2),
    moved("flip of one", shaped(3), lambda t, x: x.flip(1), weight=2),
    moved(
        "repeats of each",
        shaped(2),
        lambda t, x: x.repeat_interleave(t.arange(x.shape[0], device=x.device) % 3, 0),
        weight=2,
    ),
    moved(
        "channels last and back",
        _image(2),
        lambda t, x: x.to(memory_format=t.channels_last).permute(0, 2, 3, 1).contiguous(),
        weight=3,
    ),
    moved(
        "large copy by columns",
        lambda d: given(d.whole(0, 250, 2 * d.length(2049) + 1, d.choice((65, 129))).double()),
        lambda t, x: x.t().contiguous(),
        sizes=("block", "long"),
        weight=2,
    ),
)


WRITTEN: Tuple[Operator, ...] = (
    moving(
        "copy of a row to all",
        shaped(2),
        lambda t, x: t.full_like(x, 9).copy_(x[:1]),
        lambda t, x: x[:1] + 0 * x,
        learns=False,
        weight=2,
    ),
    moving(
        "copy between layouts",
        shaped(3),
        lambda t, x: x.new_zeros(x.shape[2], x.shape[0], x.shape[1]).permute(1, 2, 0).copy_(x),
        lambda t, x: 1 * x,
        learns=False,
        weight=2,
    ),
    moving(
        "copy between formats",
        shaped(2),
        lambda t, x: (
            t.zeros(x.shape, dtype=t.float32, device=x.device).copy_(x),
            t.zeros(x.shape[::-1], dtype=t.bfloat16, device=x.device).t().copy_(x),
            t.zeros(x.shape, dtype=t.int32, device=x.device).copy_(x),
        ),
        lambda t, x: (x * 1.0, x * 1.0, (x * 1).int()),
        learns=False,
        weight=2,
    ),
    moving(
        "triangles of batches",
        lambda d: given(
            d.whole(0, 100, 3, d.length(65), d.length(65)).double(), k=d.choice((-1, 2))
        ),
        lambda t, x, k: (x.tril(k), x.triu(k)),
        lambda t, x, k: (x * _side(t, x).le(k), x * _side(t, x).ge(k)),
        dtypes=WIDE,
        weight=2,
    ),
)


def _side(t: Any, x: Any) -> Any:
    return t.arange(x.shape[-1]) - t.arange(x.shape[-2]).unsqueeze(1)


VIEWS = (*JOINS, *BORDERS, *WRITTEN)
