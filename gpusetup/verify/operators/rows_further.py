"""Further kernels that few programs call: factors and sparse forms by their older names, layers in
ways that other libraries' kernels take over, batch norm by its parts."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_convolutions import by_all, by_spreading, by_windows
from .rows_losses import classed
from .rows_margins import _margins, _multilabel, _multilabel_exact
from .rows_seldom import seldom
from .table import FULL, Operator

# --- factors and solvers by their older names ----------------------------------------------------


def _triangle(d: Draw) -> Given:
    """A matrix whose diagonal outweighs the rest, as do its triangles', and right sides."""
    n, count = d.choice((1, 2, 3)), d.choice((2, 5, 16, 33))
    x = d.normal(n, count, count) / (4 * count**0.5)
    x[:, range(count), range(count)] += d.choice((1.5, -1.5))
    return given(x, d.normal(n, count, 3))


WAYS = tuple((a, b, c) for a in (False, True) for b in (False, True) for c in (False, True))


def _factors(t: Any, x: Any, y: Any) -> List[Any]:
    found = [t.triangular_solve(y, x, *way)[0] for way in WAYS]
    p, lower, upper = t.lu_unpack(*t.linalg.lu_factor(x))
    values = t.linalg.eigvals(x)
    powers = [t.view_as_real((values**n).sum(1))[..., 0] for n in (1, 2)]
    return [*found, p @ lower @ upper, lower.triu(1), upper.tril(-1), *powers]


def _factors_exact(t: Any, x: Any, y: Any) -> List[Any]:
    found = []
    for upper, turned, ones in WAYS:
        side = x.triu() if upper else x.tril()
        if ones:
            side = side - t.diag_embed(side.diagonal(dim1=1, dim2=2)) + t.eye(x.shape[1]).double()
        found.append(t.linalg.inv(side.transpose(1, 2) if turned else side) @ y)
    none = t.zeros_like(x)
    powers = [each.diagonal(dim1=1, dim2=2).sum(1) for each in (x, by.product(t, x, x))]
    return [*found, 1 * x, none, none, *powers]


def _square_root(t: Any, x: Any, y: Any) -> List[Any]:
    square = by.product(t, x, x.transpose(1, 2))
    return [t.cholesky(square), t.cholesky(square, upper=True)]


def _square_root_exact(t: Any, x: Any, y: Any) -> List[Any]:
    low = t.linalg.cholesky(by.product(t, x, x.transpose(1, 2)))
    return [low, low.transpose(1, 2)]


OLDER = tuple(
    seldom(name, _triangle, run, exact, slack=16, arithmetic="product", steady=False)
    for name, run, exact in (
        ("factors by older names", _factors, _factors_exact),
        ("cholesky by its older name", _square_root, _square_root_exact),
    )
)

# --- sparse forms --------------------------------------------------------------------------------


def _blocks(d: Draw) -> Given:
    """A matrix of blocks of two by three, of which some hold nothing."""
    n, m = d.choice((1, 2, 5, 16)), d.choice((1, 3, 8))
    held = d.flags(n, m).double().repeat_interleave(2, 0).repeat_interleave(3, 1)
    return given(d.whole(1, 99, 2 * n, 3 * m).double() * held, d.normal(3, d.choice((4, 9))))


def _sparse_forms(t: Any, x: Any, diagonals: Any) -> List[Any]:
    x = x.contiguous()
    found = [x.to_sparse_csc(), x.to_sparse_bsr((2, 3)), x.to_sparse_bsc((2, 3))]
    found += [x.to_sparse_csr().to_sparse(), x.to_sparse().to_sparse_csr()]
    size = diagonals.shape[1]
    places = t.tensor([-1, 0, 2])
    band = t.sparse.spdiags(diagonals.cpu(), places, (size, size))
    return [*(each.to_dense() for each in found), band.to_dense()]


def _sparse_forms_exact(t: Any, x: Any, diagonals: Any) -> List[Any]:
    size = diagonals.shape[1]
    band = t.zeros(size, size, dtype=x.dtype)
    for line, place in zip(diagonals, (-1, 0, 2)):
        for column in range(max(0, place), min(size, size + place)):
            band[column - place, column] = line[column]
    return [*[1 * x] * 5, band]


FORMS = seldom("sparse forms", _blocks, _sparse_forms, _sparse_forms_exact, dtypes=FULL, kept=True)


def _added(t: Any, x: Any, diagonals: Any) -> Any:
    left, full = x.cpu().to_sparse(), x.cpu().t().contiguous()
    start = t.zeros(len(x), len(x), dtype=x.dtype).to_sparse()
    found = t.sspaddmm(start, left, full, alpha=2)
    return found.coalesce().to_dense()


ADDED = seldom(
    "sparse products added",
    _blocks,
    _added,
    lambda t, x, diagonals: 2 * by.product(t, x, x.t()),
    dtypes=FULL,
    steady=False,
)

# --- layers without the libraries' kernels -------------------------------------------------------


def _plain(dims: int, turned: bool) -> Callable[[Draw], Given]:
    def make(d: Draw) -> Given:
        n, channels, outputs = d.choice((1, 2)), d.choice((1, 3, 8)), d.choice((1, 4, 9))
        lengths = [d.choice((5, 6, 8)) for _ in range(dims)]
        kernel = [d.choice((2, 3)) for _ in range(dims)]
        shape = (channels, outputs) if turned else (outputs, channels)
        return given(
            d.normal(n, channels, *lengths),
            d.normal(*shape, *kernel) / (channels * by_all(kernel)) ** 0.5,
            d.normal(outputs),
            stride=[d.choice((1, 2)) for _ in range(dims)],
            padding=[d.choice((0, 1)) for _ in range(dims)],
        )

    return make


def _called(name: str, *rest: Any) -> Callable[..., Any]:
    def run(t: Any, x: Any, w: Any, b: Any, stride: Any, padding: Any) -> Any:
        call = getattr(t._C._nn, name)
        return call(
            x.contiguous(),
            w.contiguous(),
            tuple(w.shape[2:]),
            b,
            tuple(stride),
            tuple(padding),
            *rest,
        )

    return run


def _unlibraried(name: str, dims: int, turned: bool = False, dilation: int = 1) -> Operator:
    exact = by_spreading if turned else by_windows
    rest: Tuple[Any, ...] = (dilation,) if dilation > 1 else ()

    def definition(t: Any, x: Any, w: Any, b: Any, stride: Any, padding: Any) -> Any:
        how: Dict[str, Any] = {"stride": stride, "padding": padding}
        how.update(groups=1, dilation=dilation, **({"output_padding": 0} if turned else {}))
        return exact(t, x, w, b, **how)

    return seldom(
        name.replace("_", " "),
        _plain(dims, turned),
        _called(name, *rest),
        definition,
        learns=True,
        slack=2,
        arithmetic="convolution",
    )


UNLIBRARIED: Tuple[Operator, ...] = (
    _unlibraried("thnn_conv2d", 2),
    _unlibraried("slow_conv3d", 3),
    _unlibraried("slow_conv_dilated2d", 2, dilation=2),
    _unlibraried("slow_conv_dilated3d", 3, dilation=2),
    _unlibraried("slow_conv_transpose2d", 2, True),
    _unlibraried("slow_conv_transpose3d", 3, True),
)
"""What is computed where neither oneDNN nor cuDNN takes a convolution over."""

# --- what is learned, and what is kept while learning --------------------------------------------


def _points(d: Draw) -> Given:
    n, m, width = d.choice((2, 5, 33)), d.choice((1, 7, 16)), d.choice((2, 3, 17))
    return given(d.normal(n, width), d.normal(m, width) + 3)


def _far_apart(t: Any, x: Any, y: Any) -> Any:
    mode = "donot_use_mm_for_euclid_dist"
    return t.cdist(x, y, compute_mode=mode), t.cdist(x, y, p=3.0), t.nn.functional.pdist(x)


def _far_apart_exact(t: Any, x: Any, y: Any) -> Any:
    away = (x.unsqueeze(1) - y.unsqueeze(0)).abs()
    two, three = (by.added(t, away**p, -1) ** (1 / p) for p in (2, 3))
    i, j = t.triu_indices(len(x), len(x), 1)
    return two, three, by.added(t, (x[i] - x[j]) ** 2, 1).sqrt()


def _weighed(d: Draw) -> Given:
    """Lines of several numbers: of a short one the slope is the difference of like numbers."""
    rows, columns = d.choice((5, 17, 33)), d.choice((9, 16, 65))
    return given(d.normal(rows, columns), d.normal(rows, 1), d.normal(1, columns))


def _by_direction(t: Any, v: Any, g: Any, h: Any) -> Any:
    """Each row, or each column, has a length of its own."""
    return t._weight_norm(v.contiguous(), g.contiguous(), 0), t._weight_norm(v, h.contiguous(), 1)


def _by_direction_exact(t: Any, v: Any, g: Any, h: Any) -> Any:
    rows, columns = (by.added(t, v * v, dim).sqrt().unsqueeze(dim) for dim in (1, 0))
    return v / rows * g, v / columns * h


def _distinct(dims: int) -> Callable[[Draw], Given]:
    def make(d: Draw) -> Given:
        lengths = [2 * d.choice((1, 2, 3)) for _ in range(dims)]
        return given(d.unlike(d.choice((1, 2)), d.choice((1, 3)), *lengths) / 16)

    return make


def _halved(dims: int) -> Callable[..., Any]:
    """To half the lengths, by the greatest and the mean; and the greatest back to their places."""

    def run(t: Any, x: Any) -> Any:
        call, sizes = t.nn.functional, [n // 2 for n in x.shape[2:]]
        most, places = getattr(call, f"adaptive_max_pool{dims}d")(x, sizes, True)
        mean = getattr(call, f"adaptive_avg_pool{dims}d")(x, sizes)
        back = getattr(call, f"max_unpool{dims}d")(most, places, 2)
        return most, mean, back

    return run


def _halved_exact(dims: int) -> Callable[..., Any]:
    def exact(t: Any, x: Any) -> Any:
        seen = x
        for dim in range(dims):
            seen = seen.unfold(2 + dim, 2, 2)
        most = by.greatest(t, seen.flatten(2 + dims), -1)
        wide = most
        for dim in range(dims):
            wide = wide.repeat_interleave(2, 2 + dim)
        return most, by.mean(t, seen.flatten(2 + dims), -1), t.where(x == wide, x, 0 * x)

    return exact


LEARNED: Tuple[Operator, ...] = (
    seldom("distances learned", _points, _far_apart, _far_apart_exact, learns=True, slack=8),
    seldom(
        "weights by direction",
        _weighed,
        _by_direction,
        _by_direction_exact,
        dtypes=FULL,
        learns=True,
        slack=8,
        weight=2,
    ),
)
HALVED: Tuple[Operator, ...] = tuple(
    seldom(
        f"halved in {dims} dimensions",
        _distinct(dims),
        _halved(dims),
        _halved_exact(dims),
        dtypes=FULL,
        learns=True,
        slack=4,
    )
    for dims in (2, 3)
)
OF_MARGINS: Tuple[Operator, ...] = (
    seldom(
        "multi_margin_loss learned",
        classed,
        lambda t, x, labels, w: t.nn.functional.multi_margin_loss(x, labels),
        _margins,
        dtypes=FULL,
        learns=True,
        slack=16,
        serial=True,
    ),
    seldom(
        "multilabel_margin_loss learned",
        _multilabel,
        lambda t, x, labels: t.nn.functional.multilabel_margin_loss(x, labels),
        _multilabel_exact,
        dtypes=FULL,
        learns=True,
        slack=32,
        serial=True,
    ),
)

# --- batch norm by its parts ---------------------------------------------------------------------

EPS, SHARE = 1e-3, 0.25


def _channels(d: Draw) -> Given:
    n, channels, length = d.choice((2, 5)), d.choice((1, 3, 16)), d.choice((4, 33, 129))
    x = d.normal(n, channels, length) + 1
    return given(x, *(d.uniform(0.5, 2, channels) for _ in "wbmv"), d.normal(n, channels, length))


def _updated(t: Any, x: Any, w: Any, b: Any, m: Any, v: Any, g: Any) -> List[Any]:
    ops = t.ops.aten
    mean, var = m.clone(), v.clone()
    found = ops._batch_norm_with_update(x, w, b, mean, var, SHARE, EPS)
    back = ops.batch_norm_backward(
        g, x, w, mean, var, *found[1:3], True, EPS, [True, True, True], found[3]
    )
    own = ops._native_batch_norm_legit(x, w, b, True, SHARE, EPS)[0]
    seen = t.batch_norm_update_stats(x, m.clone(), v.clone(), SHARE)
    return [*found[:3], mean, var, *back, own, seen[0]]


def _updated_exact(t: Any, x: Any, w: Any, b: Any, m: Any, v: Any, g: Any) -> List[Any]:
    lines, up = (each.transpose(0, 1).reshape(x.shape[1], -1) for each in (x, g))
    mean, count = by.mean(t, lines, 1), lines.shape[1]
    spread = by.variance(t, lines, 1, 0)
    small = 1 / (spread + EPS).sqrt()
    plain = (lines - mean.unsqueeze(1)) * small.unsqueeze(1)
    down = by.added(t, up * plain, 1)
    away = up - (by.mean(t, up, 1).unsqueeze(1) + plain * (down / count).unsqueeze(1))

    def put(each: Any) -> Any:
        return each.reshape(x.shape[1], x.shape[0], -1).transpose(0, 1)

    full = put(plain * w.unsqueeze(1) + b.unsqueeze(1))
    now = m + SHARE * (mean - m), v + SHARE * (spread * count / (count - 1) - v)
    back = put(away * (w * small).unsqueeze(1)), down, by.added(t, up, 1)
    return [full, mean, small, *now, *back, full, mean]


NORM = seldom("batch norm by its parts", _channels, _updated, _updated_exact, slack=8, serial=True)

# --- resized -------------------------------------------------------------------------------------


def _smaller(d: Draw) -> Given:
    n, channels, side = d.choice((1, 2)), d.choice((1, 3)), d.choice((9, 16, 33))
    return given(d.normal(n, channels, side, side + 2), size=(d.choice((4, 7)), d.choice((5, 20))))


LANCZOS = seldom(
    "resized by lanczos",
    _smaller,
    lambda t, x, size: t.ops.aten._upsample_lanczos2d_aa(x, size, False),
    None,
    learns=True,
    slack=4,
)
"""By its own in float64."""
