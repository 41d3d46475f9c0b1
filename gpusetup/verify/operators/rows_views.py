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


def _as_strided(t: Any, x: Any) -> Any:
    n, m = x.shape
    line = x.contiguous()
    return line.as_strided((n, max(1, m // 2)), (m, 2), line.storage_offset()).contiguous()


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
    moved(
        "hstack and vstack", shaped(2), lambda t, x: t.vstack([t.hstack([x, x]), t.hstack([x, x])])
    ),
    moved("tile", shaped(2), lambda t, x: x.tile((2, 1, 3))),
    moved("unbind", shaped(3), lambda t, x: t.stack(x.unbind(1)[::-1])),
    moved("chunk", shaped(2, 2), lambda t, x: t.cat(x.chunk(3, 1)[::-1], 1), weight=2),
    moved("movedim", shaped(4), lambda t, x: x.movedim((0, 1), (2, 3)).contiguous(), weight=2),
    moved("flip of all", shaped(3), lambda t, x: x.flip(0, 1, 2)),
    moved("flip of one", shaped(3), lambda t, x: x.flip(1), weight=2),
    moved("roll of all", shaped(2, 2), lambda t, x: x.roll(3)),
    moved("turned about", shaped(3), lambda t, x: x.rot90(2, (0, 2)).contiguous()),
    moved("unflatten", shaped(2), lambda t, x: x.t().unflatten(1, (1, -1)).flatten(0, 1)),
    moved("as_strided", shaped(2, 2), _as_strided),
    moved("view as", shaped(2), lambda t, x: x.contiguous().view(-1).view_as(x.contiguous())),
    moved(
        "narrow_copy", shaped(2, 3), lambda t, x: t.narrow_copy(x, 1, 1, x.shape[1] - 2)
    )._replace(learns=False),
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
        "channels last 3d and back",
        _image(3),
        lambda t, x: x.contiguous(memory_format=t.channels_last_3d).permute(0, 2, 3, 4, 1).clone(),
    ),
    moved(
        "pixel_unshuffle",
        lambda d: given(d.whole(0, 100, 2, 3, 2 * d.length(65), 2 * d.length(33)).double()),
        lambda t, x: t.nn.functional.pixel_unshuffle(x, 2),
    ),
    moved(
        "channel_shuffle",
        lambda d: given(d.whole(0, 100, 2, 12, d.length(65), 3).double()),
        lambda t, x: t.nn.functional.channel_shuffle(x, 3),
    )._replace(learns=False, dtypes=FLOATS),
    moved(
        "windows",
        _image(2),
        lambda t, x: x.unfold(2, 3, 2).unfold(3, 2, 1).contiguous(),
    )._replace(steady=False),
    moved(
        "large copy by columns",
        lambda d: given(d.whole(0, 250, 2 * d.length(2049) + 1, d.choice((65, 129))).double()),
        lambda t, x: x.t().contiguous(),
        sizes=("block", "long"),
        weight=2,
    ),
)


def _written(run: Callable[..., Any]) -> Callable[..., Any]:
    """Over a tensor of nines."""
    return lambda t, x: run(t, t.full_like(x, 9), x)


def _slice_scatter(t: Any, x: Any) -> Any:
    return t.where((t.arange(x.shape[1]) % 2 == 1).unsqueeze(0), x, 0 * x + 9)


def _diagonal_scatter(t: Any, x: Any) -> Any:
    same = t.arange(x.shape[0]).unsqueeze(1) == t.arange(x.shape[1])
    return t.where(same, x, 0 * x + 9)


def _ranges(t: Any, x: Any) -> Any:
    n, kind = x.shape[0], {"dtype": x.dtype, "device": x.device}
    return (
        t.arange(n, **kind),
        t.arange(3, 3 + 2 * n, 2, **kind),
        t.eye(n, n + 1, **kind),
        t.full((n, 2), 7, **kind),
    )


def _ranges_exact(t: Any, x: Any) -> Any:
    count = x.cumsum(0)[:, 0] - 1
    rows, columns = count.unsqueeze(1), t.cat([count, count[-1:] + 1])
    return count, 3 + 2 * count, (rows == columns).double(), t.stack([0 * count + 7] * 2, 1)


WRITTEN: Tuple[Operator, ...] = (
    moving(
        "slice written",
        shaped(2, 2),
        _written(lambda t, y, x: t.slice_scatter(y, x[:, 1::2], 1, 1, None, 2)),
        _slice_scatter,
        dtypes=WIDE,
    ),
    moving(
        "select written",
        shaped(3),
        _written(lambda t, y, x: t.select_scatter(y, x[:, -1], 1, -1)),
        lambda t, x: t.cat([0 * x[:, :-1] + 9, x[:, -1:]], 1),
    ),
    moving(
        "diagonal written",
        shaped(2),
        _written(lambda t, y, x: t.diagonal_scatter(y, x.diagonal())),
        _diagonal_scatter,
    ),
    moving(
        "diagonal filled",
        shaped(2),
        lambda t, x: x.contiguous().clone().fill_diagonal_(5),
        lambda t, x: t.where(
            t.arange(x.shape[0]).unsqueeze(1) == t.arange(x.shape[1]), 0 * x + 5, x
        ),
        learns=False,
    ),
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
        "swap by slices",
        shaped(2, 2),
        lambda t, x: _swapped(x.clone()),
        lambda t, x: t.cat([x[:, -1:], x[:, 1:-1], x[:, :1]], 1),
        learns=False,
    ),
    moving(
        "ranges",
        lambda d: given(d.torch.ones(d.length(120), 1, dtype=d.torch.float64)),
        _ranges,
        _ranges_exact,
        learns=False,
        dtypes=("float32", "bfloat16", "float16", "float64", "int64", "int32"),
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
    moving(
        "places of triangles",
        lambda d: given(d.torch.ones(d.length(129), d.length(65), dtype=d.torch.float64)),
        lambda t, x: (
            t.tril_indices(*x.shape, device=x.device),
            t.triu_indices(*x.shape, device=x.device),
        ),
        lambda t, x: (
            (x * _side(t, x).le(0)).nonzero().t(),
            (x * _side(t, x).ge(0)).nonzero().t(),
        ),
        learns=False,
        dtypes=("float32",),
    ),
    moving(
        "meshgrid",
        lambda d: given(
            d.whole(0, 99, d.length(65)).double(), d.whole(0, 99, d.length(33)).double()
        ),
        lambda t, x, y: (*t.meshgrid(x, y, indexing="ij"), t.cartesian_prod(x, y)),
        lambda t, x, y: (
            x.unsqueeze(1) + 0 * y,
            y + 0 * x.unsqueeze(1),
            t.stack([(x.unsqueeze(1) + 0 * y).flatten(), (y + 0 * x.unsqueeze(1)).flatten()], 1),
        ),
        learns=False,
    ),
    moving(
        "block_diag",
        shaped(2),
        lambda t, x: t.block_diag(x, x + 1),
        lambda t, x: _blocks(t, x),
        learns=False,
        sizes=("tiny", "warp", "tile"),
    ),
    Operator(
        "lines between",
        lambda d: given(d.uniform(1, 2, d.length())),
        lambda t, x: (
            t.linspace(-1, 3, x.shape[0], device=x.device, dtype=x.dtype),
            t.logspace(0, 1, x.shape[0], device=x.device, dtype=x.dtype),
        ),
        lambda t, x: _between(t, x.shape[0]),
        dtypes=("float32", "float64"),
        learns=False,
        slack=16,
    ),
)


def _side(t: Any, x: Any) -> Any:
    return t.arange(x.shape[-1]) - t.arange(x.shape[-2]).unsqueeze(1)


def _swapped(x: Any) -> Any:
    first = x[:, 0].clone()
    x[:, 0] = x[:, -1]
    x[:, -1] = first
    return x


def _blocks(t: Any, x: Any) -> Any:
    n, m = x.shape
    found = t.zeros(2 * n, 2 * m, dtype=x.dtype)
    found[:n, :m] = x
    found[n:, m:] = x + 1
    return found


def _between(t: Any, n: int) -> Any:
    share = t.arange(n, dtype=t.float64) / max(1, n - 1)
    return -1 + 4 * share, 10**share


VIEWS = (*JOINS, *BORDERS, *WRITTEN)
