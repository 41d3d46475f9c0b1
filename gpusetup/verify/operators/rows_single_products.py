"""Products with each of their options alone: factors, what is added, empty and expanded sides."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Tuple

from .drawing import Draw
from .releases import BETA_OF_NONE, release
from .single_options import AS_IT_IS, HELD, Made, by_single_options
from .table import FLOATS, FULL, Operator

# --- something is added --------------------------------------------------------------------------

SIDES = {
    "plain": (2, 5, 7, 4),
    "one row": (3, 1, 8, 9),
    "one column": (2, 9, 6, 1),
    "one number inside": (2, 7, 1, 3),
    "tiles": (3, 33, 65, 17),
    "long": (2, 3, 1025, 2),
    "no rows": (2, 0, 5, 3),
    "nothing inside": (2, 4, 0, 3),
    "no columns": (2, 4, 5, 0),
    "no batch": (0, 3, 4, 5),
}
"""Members of the batch, rows, inner length, columns."""
NONE = float("nan")


def _added(d: Draw, sides: str, bias: str, **of: Any) -> Made:
    """What counts nothing may be no number."""
    b, n, k, m = SIDES[sides]
    shape = {"a line": (m,), "a column": (n, 1), "one row for all": (1, m), "one": (1, 1)}
    added, line = d.normal(*shape.get(bias, (n, m))), d.normal(1 if bias == "one" and n * k else n)
    if of["beta"] == 0:
        added, line = added * NONE, line * NONE
    factors = [d.normal(n, k), d.normal(k, m), d.normal(b, n, k), d.normal(b, k, m)]
    lines = [d.normal(k), d.normal(n), d.normal(m)]
    return Made([added, line, *factors, *lines], {"wide": bias == "one row for all", **of})


def _held(held: str, *factors: Any) -> Any:
    """A row, a column or a matrix that stands for all of them, by a stride of 0."""
    x, y, rows, columns = factors
    if held == "a row for all":
        return x[:1].expand_as(x), y, rows[:, :1].expand_as(rows), columns
    if held == "a column for all":
        return x, y[:, :1].expand_as(y), rows, columns[..., :1].expand_as(columns)
    if held == "left for all":
        return x, y, rows[:1].expand_as(rows), columns
    if held == "right for all":
        return x, y, rows, columns[:1].expand_as(columns)
    if held == "other strides":
        return (x.t().contiguous().t(), y, rows, columns.mT.contiguous().mT)
    return factors


def _sums(
    t: Any, c: Any, e: Any, *rest: Any, held: str, wide: bool, beta: float, alpha: float
) -> List[Any]:
    x, y, rows, columns = _held(held, *rest[:4])
    v, a, b = rest[4:]
    c = c.expand(x.shape[0], y.shape[1]) if wide else c
    by = {"beta": beta, "alpha": alpha}
    sound = beta or release(t) >= BETA_OF_NONE
    return [
        t.addmm(c, x, y, **by),
        t.baddbmm(c, rows, columns, **by) if sound else alpha * t.bmm(rows, columns),
        t.addbmm(c, rows, columns, **by),
        t.addmv(e, x, v, **by),
        t.addr(c, a, b, **by),
    ]


def _sums_exact(
    t: Any, c: Any, e: Any, *rest: Any, held: str, wide: bool, beta: float, alpha: float
) -> List[Any]:
    x, y, rows, columns = _held(held, *rest[:4])
    v, a, b = rest[4:]
    c, e = (beta * c, beta * e) if beta else (0.0, 0.0)
    both = rows @ columns
    found = [x @ y, both, both.sum(0), (x * v).sum(1), a.unsqueeze(1) * b]
    return [alpha * each + (e if i == 3 else c) for i, each in enumerate(found)]


ADDED = by_single_options(
    "products and a sum",
    {
        "beta": (1, 0, -0.5, 2),
        "alpha": (1, 2, -0.5, 0),
        "bias": ("all", "a line", "a column", "one row for all", "one"),
        "sides": tuple(SIDES),
        "held": (
            *("own", "a row for all", "a column for all", "left for all", "right for all"),
            "other strides",
        ),
    },
    _added,
    _sums,
    _sums_exact,
    arithmetic="product",
    slack=4,
    dtypes=FLOATS,
)

# --- parts that are greater than the answer ------------------------------------------------------


def _turns(t: Any, count: int, step: int) -> Any:
    """Where the first and the second half of a line stand: by turns of `step`."""
    first = t.arange(count // 2).reshape(-1, step)
    return t.cat([first, first + count // 2], 1).reshape(-1)


def _great(d: Draw, step: int, half: int, turned: bool, **of: Any) -> Made:
    """Whole numbers whose products add up to more than 65504 half way, and to little at the end."""
    n, m = d.choice((1, 3, 17)), d.choice((1, 4, 33))
    x, y = d.whole(40, 65, 2, n, half), d.whole(40, 65, 2, half, m)
    less = d.whole(-1, 2, 2, half, m) - y
    order = _turns(d.torch, 2 * half, min(step, half))
    left = d.torch.cat([x, x], 2)[..., order]
    right = d.torch.cat([y, less], 1)[:, order] * (-1 if turned else 1)
    return Made([left.double(), right.double(), d.whole(-9, 9, m).double()])


def _long(d: Draw, inner: int, high: int, **of: Any) -> Made:
    """Whole numbers of one sign whose sum each format nearly holds."""
    n, m = d.choice((1, 3)), d.choice((1, 4))
    x, y = d.whole(1, high, 2, n, inner), d.whole(1, 4, 2, inner, m)
    return Made([x.double(), y.double(), d.whole(-9, 9, m).double()])


def _unlessened(run: Callable[..., Any]) -> Callable[..., Any]:
    """Added up in float32, also where the settings let a GPU add up in half precision."""

    def all_run(t: Any, x: Any, y: Any, c: Any) -> List[Any]:
        settings = t.backends.cuda.matmul
        names = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
        before = {name: getattr(settings, name) for name in names if x.is_cuda}
        for name in before:
            setattr(settings, name, False)
        try:
            return list(run(t, x, y, c))
        finally:
            for name, value in before.items():
                setattr(settings, name, value)

    return all_run


def _whole_sums(t: Any, x: Any, y: Any, c: Any) -> Iterator[Any]:
    a, b = x[0], y[0]
    yield a @ b
    yield t.bmm(x, y)
    yield t.nn.functional.linear(a, b.t().contiguous(), c)
    yield t.addmm(c, a, b)
    yield t.baddbmm(c, x, y)
    yield t.mv(a, b[:, 0])
    yield a[0] @ b
    yield t.dot(a[0], b[:, 0])
    yield t.einsum("bik,bkj->bij", x, y)
    yield x @ b
    yield t.addmv(c[:1], a, b[:, 0])


def _whole_sums_exact(t: Any, x: Any, y: Any, c: Any) -> List[Any]:
    both = x @ y
    one = both[0]
    line = one[:, 0]
    found = [one, both, one + c, one + c, both + c, line, one[0], line[0], both, x @ y[0]]
    return [*found, line + c[:1]]


def _whole(name: str, axes: Any, make: Any, dtypes: Tuple[str, ...]) -> Operator:
    return by_single_options(
        name,
        axes,
        make,
        _unlessened(_whole_sums),
        _whole_sums_exact,
        learns=False,
        arithmetic="product",
        slack=2,
        roundings=2,
        dtypes=dtypes,
    )


GREAT_PARTS = (
    _whole(
        "great parts",
        {"step": (256, 32, 16, 8, 4, 2, 1), "half": (64, 128, 256), "turned": (False, True)},
        _great,
        ("float16",),
    ),
    _whole(
        "long sums",
        {"inner": (2048, 1025, 4097), "high": (4, 2)},
        _long,
        ("float16", "bfloat16"),
    ),
)

# --- the axes of a product -----------------------------------------------------------------------

EQUATIONS = (
    *("ij,jk->ik", "ij,kj->ik", "ji,jk->ki", "bij,bjk->bik", "bij,jk->bik", "bi,bj->bij"),
    *("ij,ij->ij", "ij,ij->", "ij,ij->i", "i,j->ij", "ii->i", "ii->", "ij->ji", "ij->j", "ij->"),
    *("...ij,...jk->...ik", "...i,i...->...", "bi,ij,bj->b", "ij,jk,kl->il", "bhqd,bhkd->bhqk"),
    *("abc,cd,bd->a", "i,ij,j->", "iij,jk->ik", "ij,jk", "aij,bjk->abik"),
)


def _axes(d: Draw, equation: str, **of: Any) -> Made:
    longs = {name: d.choice((2, 3, 5, 8)) for name in sorted(set(equation)) if name.isalpha()}
    if of["length"] != "plain":
        longs[d.choice(sorted(longs))] = {"one": 1, "none": 0, "long": 65}[of["length"]]
    tensors = []
    for words in equation.partition("->")[0].split(","):
        known = [longs[name] for name in words if name.isalpha()]
        at = words.find("...")
        tensors.append(d.normal(*([*known[:at], 3, *known[at:]] if at >= 0 else known)))
    return Made(tensors, {"equation": equation, **of})


def _einsum(t: Any, *tensors: Any, equation: str, length: str) -> Any:
    return t.einsum(equation, *tensors)


SUMMED = by_single_options(
    "sums over named axes",
    {
        "equation": EQUATIONS,
        "length": ("plain", "one", "none", "long"),
        **HELD,
    },
    _axes,
    _einsum,
    arithmetic="product",
    slack=4,
    dtypes=("float32", "float64", "bfloat16"),
)

RANKS = (
    *(((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((5,), (2, 5, 3)), ((2, 4, 5), (5,))),
    *(((4, 5), (2, 5, 3)), ((2, 4, 5), (5, 3)), ((2, 1, 4, 5), (3, 5, 6)), ((1, 4, 5), (3, 5, 2))),
    *(((2, 3, 4, 5), (3, 5, 2)), ((2, 0, 5), (5, 3)), ((3, 4, 0), (0, 2)), ((0, 4, 5), (1, 5, 2))),
    *(((1, 1, 1), (1, 1, 1)), ((4, 1, 1, 3), (2, 3, 4))),
)


FIRST_AXES = (AS_IT_IS, "along the first", "the others along the first")


def _ranked(d: Draw, ranks: Any, **of: Any) -> Made:
    return Made([d.normal(*shape) for shape in ranks], of)


def _spread_product(t: Any, x: Any, y: Any, turned: bool) -> List[Any]:
    if turned and y.dim() > 1 and x.dim() > 1:
        return [x @ y, y.mT @ x.mT]
    return [x @ y, t.matmul(x, y)]


SPREAD = by_single_options(
    "products of every rank",
    {"ranks": RANKS, "turned": (False, True), "spread": FIRST_AXES},
    _ranked,
    _spread_product,
    arithmetic="product",
    slack=4,
)


def _tensors(d: Draw, dims: Any, **of: Any) -> Made:
    long = {"plain": 4, "one": 1, "none": 0}[of["length"]]
    return Made([d.normal(2, 3, long, 5), d.normal(long, 5, 2, 3)], {"dims": dims})


def _tensordot(t: Any, x: Any, y: Any, dims: Any) -> List[Any]:
    if isinstance(dims, int):
        one = (x, y) if dims == 2 else (x[0, 0], y[..., 0, 0].t())
        return [t.tensordot(*one, dims)]
    return [t.tensordot(x, y, dims), t.inner(x[0, 0], y[..., 0, 0])]


CONTRACTED = by_single_options(
    "contractions",
    {
        "dims": (2, 1, 0, ([2, 3], [0, 1]), ([-1], [1]), ([0, 1], [2, 3]), ([3, 0, 2], [1, 2, 0])),
        "length": ("plain", "one", "none"),
    },
    _tensors,
    _tensordot,
    arithmetic="product",
    slack=4,
    dtypes=FULL,
)


def _two_sided(d: Draw, bias: bool, long: int, **of: Any) -> Made:
    n, a, b = long, d.choice((1, 3, 17)), d.choice((2, 5))
    return Made([d.normal(n, a), d.normal(n, b), d.normal(4, a, b), d.normal(4)], {"bias": bias})


def _bilinear(t: Any, x: Any, y: Any, w: Any, c: Any, bias: bool) -> List[Any]:
    return [
        t.nn.functional.bilinear(x, y, w, c if bias else None),
        t.kron(x.contiguous(), y[:1].contiguous()),
    ]


BILINEAR = by_single_options(
    "bilinear and bias",
    {"bias": (True, False), "long": (3, 1, 0, 33)},
    _two_sided,
    _bilinear,
    lambda t, x, y, w, c, bias: [
        t.einsum("na,oab,nb->no", x, w, y) + (c if bias else 0.0),
        (x[:, None, :, None] * y[None, :1, None, :]).reshape(
            len(x) * len(y[:1]), x.shape[1] * y.shape[1]
        ),
    ],
    arithmetic="product",
    slack=8,
    dtypes=FULL,
)

SINGLE_PRODUCTS: Tuple[Operator, ...] = (
    *(ADDED, *GREAT_PARTS, SUMMED, SPREAD, CONTRACTED, BILINEAR),
)
