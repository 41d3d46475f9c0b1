"""Norms without weights and with running values, slopes of slopes, sparse matrices."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .releases import by_channel
from .rows_norms import _by_channel, _group_exact, _kept, _layer_norm_exact, grouped, normed
from .rows_products import plain
from .table import FULL, Operator


def _three_axes(d: Draw) -> Given:
    n, channels, length = d.choice((2, 3, 5)), d.choice((2, 8, 17, 33)), d.length(257)
    shape = d.choice(((n, channels, max(2, length)), (2 + length, channels)))
    return given(d.normal(*shape) + 1, d.normal(channels), d.normal(channels))


def _batch(t: Any, x: Any, w: Any, b: Any) -> Any:
    kept = _kept(t, x)
    w, b = by_channel(w.to(kept)), b.to(kept)
    return t.nn.functional.batch_norm(x, None, None, w, b, True, 0.1, 1e-3)


def _batch_exact(t: Any, x: Any, w: Any, b: Any) -> Any:
    lines = x.transpose(0, 1).reshape(x.shape[1], -1)
    back = by.standard(t, lines).reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)
    return back * _by_channel(x, w) + _by_channel(x, b)


def _around(t: Any, x: Any, w: Any, b: Any) -> Any:
    """Each channel with two neighbours on either side."""
    squares = x * x
    empty = t.zeros(x.shape[0], 2, *x.shape[2:], dtype=x.dtype)
    wide = t.cat([empty, squares, empty], 1)
    sums = by.added(t, wide.unfold(1, 5, 1), -1)
    return x / (1 + 1e-2 * sums / 5) ** 0.75


NORMED: Tuple[Operator, ...] = (
    Operator(
        "layer_norm plain",
        normed(5),
        lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[-1:], None, None, 1e-3),
        lambda t, x, w, b: by.standard(t, x),
        slack=8,
        weight=2,
        sizes=("warp", "tile", "block", "long"),
        roundings=1,
    ),
    Operator(
        "layer_norm without bias",
        normed(5),
        lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[-1:], w, None, 1e-3),
        lambda t, x, w, b: by.standard(t, x) * w,
        slack=8,
        sizes=("warp", "tile", "block", "long"),
        roundings=1,
    ),
    Operator(
        "rms_norm plain",
        normed(5),
        lambda t, x, w, b: t.nn.functional.rms_norm(x, x.shape[-1:], None, 1e-3),
        lambda t, x, w, b: x / (by.mean(t, x * x, 1) + 1e-3).sqrt().unsqueeze(1),
        slack=8,
        sizes=("warp", "tile", "block", "long"),
    ),
    Operator(
        "group_norm plain",
        grouped,
        lambda t, x, w, b: t.nn.functional.group_norm(x, 2, None, None, 1e-3),
        lambda t, x, w, b: _group_exact(2)(t, x, w * 0 + 1, b * 0),
        serial=True,
        slack=32,
        weight=2,
    ),
    Operator(
        "group_norm of each channel",
        grouped,
        lambda t, x, w, b: t.nn.functional.group_norm(x, x.shape[1], w, b, 1e-3),
        _group_exact(0),
        serial=True,
        slack=32,
    ),
    Operator(
        "batch_norm of lines",
        _three_axes,
        _batch,
        _batch_exact,
        serial=True,
        slack=8,
        weight=3,
    ),
    Operator(
        "local_response_norm",
        grouped,
        lambda t, x, w, b: t.nn.functional.local_response_norm(x, 5, alpha=1e-2),
        _around,
        dtypes=FULL,
        slack=16,
        serial=True,
    ),
)

# --- slopes of slopes ----------------------------------------------------------------------------


def _slope(run: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a sum of squares, in a graph of its own, of which gradients are taken."""

    def sloped(t: Any, *tensors: Any) -> Any:
        with t.inference_mode(False), t.enable_grad():
            leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in tensors]
            total = (run(t, *leaves) ** 2).sum()
            found = t.autograd.grad(total, leaves, create_graph=True)
        return [each if any(x.requires_grad for x in tensors) else each.detach() for each in found]

    return sloped


def _twice(name: str, make: Any, run: Any, exact: Any, **more: Any) -> Operator:
    return Operator(
        f"slope of {name}",
        make,
        _slope(run),
        _slope(exact),
        dtypes=FULL,
        slack=64,
        sizes=("tiny", "warp", "tile"),
        **more,
    )


def _one(low: float, high: float) -> Callable[[Draw], Given]:
    return lambda d: given(d.uniform(low, high, *d.shape(2, 2)))


SLOPES: Tuple[Operator, ...] = (
    _twice("tanh", _one(-2, 2), lambda t, x: x.tanh(), lambda t, x: 1 - 2 / ((2 * x).exp() + 1)),
    _twice("sigmoid", _one(-2, 2), lambda t, x: x.sigmoid(), lambda t, x: 1 / (1 + (-x).exp())),
    _twice(
        "gelu",
        _one(-2, 2),
        lambda t, x: t.nn.functional.gelu(x),
        lambda t, x: x / 2 * (1 + t.erf(x * 0.7071067811865476)),
    ),
    _twice(
        "silu",
        _one(-2, 2),
        lambda t, x: t.nn.functional.silu(x),
        lambda t, x: x / (1 + (-x).exp()),
    ),
    _twice("softmax", _one(-2, 2), lambda t, x: x.softmax(1), lambda t, x: by.softmax(t, x, 1)),
    _twice("product", plain, lambda t, x, y: x @ y, by.product, arithmetic="product"),
    _twice(
        "layer_norm",
        normed(5),
        lambda t, x, w, b: t.nn.functional.layer_norm(x, x.shape[-1:], w, b, 1e-3),
        _layer_norm_exact,
        serial=True,
    )._replace(sizes=("warp", "tile")),
)

# --- sparse matrices -----------------------------------------------------------------------------


def _thinned(d: Draw) -> Given:
    """A matrix of which most is 0, another one, and a full one."""
    n, m, k = d.length(129), d.length(65), d.choice((1, 3, 17))
    kept = d.flags(n, m) & d.flags(n, m)
    other = d.flags(n, m) & d.flags(n, m)
    return given(d.normal(n, m) * kept, d.normal(n, m) * other, d.normal(m, k))


def _sparse(name: str, run: Any, exact: Any, **more: Any) -> Operator:
    return Operator(
        f"sparse {name}",
        _thinned,
        run,
        exact,
        dtypes=FULL,
        learns=False,
        slack=4,
        arithmetic="product",
        sizes=("tiny", "warp", "tile"),
        steady=False,
        **more,
    )


def _sparse_softmax(t: Any, x: Any, y: Any, z: Any) -> Any:
    hidden = t.where(x == 0, float("-inf") + 0 * x, x)
    hidden = t.where((x != 0).any(1, keepdim=True), hidden, 0 * x)
    return by.softmax(t, hidden, 1) * (x != 0)


SPARSE: Tuple[Operator, ...] = (
    _sparse("and back", lambda t, x, y, z: x.to_sparse().to_dense(), lambda t, x, y, z: 1 * x),
    _sparse(
        "by full",
        lambda t, x, y, z: t.sparse.mm(x.to_sparse(), z),
        lambda t, x, y, z: by.product(t, x, z),
        weight=2,
    ),
    _sparse(
        "rows by full",
        lambda t, x, y, z: x.to_sparse_csr() @ z,
        lambda t, x, y, z: by.product(t, x, z),
        weight=2,
    ),
    _sparse(
        "added",
        lambda t, x, y, z: ((x.to_sparse() + y.to_sparse()).to_dense(), y + x.to_sparse()),
        lambda t, x, y, z: (x + y, x + y),
    ),
    _sparse(
        "times",
        lambda t, x, y, z: (
            (x.to_sparse() * y.to_sparse()).to_dense(),
            (x.to_sparse() * 3).to_dense(),
        ),
        lambda t, x, y, z: (x * y, 3 * x),
    ),
    _sparse(
        "sum",
        lambda t, x, y, z: (
            t.sparse.sum(x.to_sparse()),
            t.sparse.sum(x.to_sparse(), 0).to_dense(),
            t.sparse.sum(x.to_sparse(), 1).to_dense(),
        ),
        lambda t, x, y, z: (x.sum(), by.added(t, x, 0), by.added(t, x, 1)),
    ),
    _sparse(
        "coalesced",
        lambda t, x, y, z: _stacked(t, x, y).coalesce().to_dense(),
        lambda t, x, y, z: x + y,
    ),
    _sparse(
        "softmax",
        lambda t, x, y, z: t.sparse.softmax(x.to_sparse(), 1).to_dense(),
        _sparse_softmax,
    ),
    _sparse(
        "addmm",
        lambda t, x, y, z: t.sparse.addmm(z[:1] + 0 * x[:, :1], x.to_sparse(), z, beta=2),
        lambda t, x, y, z: 2 * (z[:1] + 0 * x[:, :1]) + by.product(t, x, z),
    ),
    _sparse(
        "transposed",
        lambda t, x, y, z: x.to_sparse().t().coalesce().to_dense(),
        lambda t, x, y, z: x.t() * 1,
    ),
)


def _stacked(t: Any, x: Any, y: Any) -> Any:
    """One sparse matrix that has some places twice."""
    one, other = x.to_sparse(), y.to_sparse()
    places = t.cat([one.indices(), other.indices()], 1)
    return t.sparse_coo_tensor(places, t.cat([one.values(), other.values()]), x.shape)
