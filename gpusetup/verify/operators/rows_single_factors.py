"""Factors of tall, wide and singular matrices, with each of their options alone."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .drawing import Draw
from .rows_single_algebra import BATCHES, _beside, _turned
from .single_options import Made, by_single_options
from .table import FULL, Operator

SHAPES = {
    "tall": (7, 4),
    "wide": (3, 6),
    "square": (5, 5),
    "a column": (5, 1),
    "a row": (1, 5),
    "one": (1, 1),
    "no rows": (0, 3),
    "no columns": (3, 0),
    "tiles": (40, 33),
}
SIZES = (4.0, 2.5, 1.6, 0.9)
"""Singular values that a cut at 0.3 of the greatest tells apart, as one at 1.2 does."""


def _of_rank(d: Draw, batch: Tuple[int, ...], shape: str, rank: str, **of: Any) -> Made:
    """Put together from orthogonal vectors and known values, the last of which may be 0."""
    n, m = SHAPES[shape]
    least = min(n, m)
    qr = d.torch.linalg.qr
    left, right = qr(d.normal(*batch, n, least))[0], qr(d.normal(*batch, m, least))[0]
    values = d.torch.tensor([SIZES[i * len(SIZES) // max(least, 1)] for i in range(least)])
    if rank == "less":
        values[1:] *= (d.torch.arange(1, least) < least / 2).double() if least else 1.0
    x = (left * values.double()) @ _turned(right)
    return Made([x, d.normal(*batch, n, 2)], {"full": rank == "full", **of})


def _singular(
    t: Any, x: Any, y: Any, full: bool, whole: bool, mode: str, driver: Any, cut: str, **of: Any
) -> List[Any]:
    kind = {"driver": driver} if driver and x.is_cuda else {}
    least = min(x.shape[-2:])
    u, s, v = t.linalg.svd(x, full_matrices=whole, **kind)
    q, r = t.linalg.qr(x, "complete" if mode == "complete" else "reduced")
    found = [
        *(
            (u[..., :least] * s.unsqueeze(-2)) @ v[..., :least, :],
            _turned(u) @ u,
            v @ _turned(v),
            s,
        ),
        *(t.linalg.svdvals(x, **kind), q @ r, _turned(q) @ q, r.tril(-1)),
    ]
    if mode == "r":
        found += [t.linalg.qr(x, "r")[1].abs() - t.linalg.qr(x)[1].abs()]
    if not least:
        return found
    limits: Dict[str, Any] = {"rtol": {"rtol": 0.3}, "atol": {"atol": 1.2}}
    limits["both"] = {"rtol": 0.1, "atol": 1.2}
    limits["tensors"] = {"atol": t.tensor(1.2, device=x.device).to(x.dtype)}
    chosen = limits.get(cut, {"rtol": 1e-3})
    return [*found, t.linalg.pinv(x, **chosen), t.linalg.matrix_rank(x, **chosen)]


def _singular_exact(
    t: Any, x: Any, y: Any, full: bool, whole: bool, mode: str, driver: Any, cut: str, **of: Any
) -> List[Any]:
    rows, columns = x.shape[-2:]
    least, batch = min(rows, columns), x.shape[:-2]

    def eye(n: int) -> Any:
        return t.eye(n, dtype=x.dtype).expand(*batch, n, n).clone()

    u, s, v = t.linalg.svd(x, full_matrices=False)
    tall = rows if mode == "complete" else least
    found = [1 * x, eye(rows if whole else least), eye(columns if whole else least), s, s, 1 * x]
    found += [eye(tall), t.zeros(*batch, tall, columns, dtype=x.dtype)]
    found += [t.zeros(*batch, least, columns, dtype=x.dtype)] * (mode == "r")
    if not least:
        return found
    bar = {"rtol": 0.3 * s[..., :1], "atol": 1.2, "both": 1.2, "tensors": 1.2}
    kept = (s > bar.get(cut, 1e-3 * s[..., :1])).to(x.dtype)
    inverse = (_turned(v) * (kept / s.clamp(min=1e-9)).unsqueeze(-2)) @ _turned(u)
    return [*found, inverse, kept.sum(-1).long()]


SINGULAR = by_single_options(
    "tall, wide and singular",
    {
        "batch": BATCHES,
        "shape": tuple(SHAPES),
        "rank": ("full", "less"),
        "whole": (True, False),
        "mode": ("reduced", "complete", "r"),
        "driver": (None, "gesvd", "gesvdj", "gesvda"),
        "cut": ("none", "rtol", "atol", "both", "tensors"),
    },
    _of_rank,
    _singular,
    _singular_exact,
    arithmetic="product",
    slack=512,
    dtypes=FULL,
    learns=False,
    steady=False,
)


def _fitted(t: Any, x: Any, y: Any, full: bool, driver: Any, rcond: Any) -> List[Any]:
    """Not by `gelsy`, the usual one, where columns are more than the rank: it was seen to count a
    rank too few (1 of 1,200 wide matrices of full rank, in 2.5.1 to 2.13.0; the same numbers give
    the right answer the next time). `gels` knows no other rank."""
    options = {"rcond": rcond, "driver": driver}
    alone = full and (driver == "gels" or x.shape[-2] >= x.shape[-1])
    if x.is_cuda or not (alone or driver in ("gelsd", "gelss")):
        return [t.linalg.lstsq(x, y)[0] if full else t.linalg.pinv(x, rtol=1e-3) @ y]
    return [t.linalg.lstsq(x, y, **options)[0]]


def _fitted_exact(t: Any, x: Any, y: Any, full: bool, driver: Any, rcond: Any) -> List[Any]:
    return [t.linalg.pinv(x, rtol=rcond or 1e-5) @ y]


FITTED = by_single_options(
    "least squares",
    {
        "batch": BATCHES[:-1],
        "shape": tuple(SHAPES)[:6],
        "rank": ("full", "less"),
        "driver": ("gelsd", "gelsy", None, "gels", "gelss"),
        "rcond": (1e-3, 1e-2),
    },
    _of_rank,
    _fitted,
    _fitted_exact,
    arithmetic="product",
    slack=256,
    dtypes=FULL,
    learns=False,
    steady=False,
)


def _turning(d: Draw, shape: str, batch: Tuple[int, ...], **of: Any) -> Made:
    n, m = SHAPES[shape]
    n, m = max(n, m), min(n, m)
    return Made([d.normal(*batch, n, m), d.normal(*batch, n, 3)], of)


def _reflected(t: Any, x: Any, y: Any, left: bool, transpose: bool, unpacked: str) -> List[Any]:
    packed, tau = t.geqrf(x)
    other = y if left else _turned(y).contiguous()
    found = [t.ormqr(packed, tau, other, left, transpose)]
    square = x[..., : x.shape[-1], :]
    flags = {"unpack_data": unpacked != "pivots", "unpack_pivots": unpacked != "data"}
    p, low, high = t.lu_unpack(*t.linalg.lu_factor(square), **flags)
    if unpacked == "pivots":
        return [*found, p, low, high]
    return [*found, p, low.triu(1), high.tril(-1), low @ high]


def _reflected_exact(
    t: Any, x: Any, y: Any, left: bool, transpose: bool, unpacked: str
) -> List[Any]:
    packed, tau = t.geqrf(x)
    one = t.eye(x.shape[-2], dtype=x.dtype)
    q = one.expand(*x.shape[:-2], -1, -1)
    for k in range(x.shape[-1]):
        line = _below(t, packed[..., k], k)
        q = q - tau[..., k, None, None] * (q @ line.unsqueeze(-1)) @ line.unsqueeze(-2)
    q = _turned(q) if transpose else q
    square = x[..., : x.shape[-1], :]
    p, low, high = t.linalg.lu(square)
    none, zeros = t.zeros(0, dtype=x.dtype), t.zeros_like(square)
    if unpacked == "pivots":
        return [_beside(q, y, left), p, none, none]
    return [_beside(q, y, left), none if unpacked == "data" else p, zeros, zeros, low @ high]


def _below(t: Any, line: Any, k: int) -> Any:
    """The numbers below a place, and 1 there."""
    at = t.arange(line.shape[-1])
    return line * (at > k) + (at == k)


REFLECTED = by_single_options(
    "reflections and parts of lu",
    {
        "shape": ("tall", "square", "a column", "one", "tiles"),
        "batch": ((), (2,), (3, 2)),
        "left": (True, False),
        "transpose": (False, True),
        "unpacked": ("both", "data", "pivots"),
    },
    _turning,
    _reflected,
    _reflected_exact,
    arithmetic="product",
    slack=1024,
    dtypes=FULL,
    learns=False,
    steady=False,
)

SINGLE_FACTORS: Tuple[Operator, ...] = (SINGULAR, FITTED, REFLECTED)
