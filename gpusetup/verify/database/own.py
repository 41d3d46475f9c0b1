"""Our own entries: what programs compute most, in the sizes of programs.

torch's database has small samples; of these kernels each length, each layout and each option
matters.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any, Dict, List

from .draw import Draw, Own
from .layers import (
    attended,
    back_convolved,
    convolved,
    draw_addmm,
    draw_attention,
    draw_batch_norm,
    draw_bmm,
    draw_convolution,
    draw_group_norm,
    draw_layer_norm,
    draw_linear,
    draw_mm,
    draw_recurrent,
    draw_transformer,
    run_net,
    transformed,
)

NO_NUMBERS = (nan, inf, -inf)


def _axis(d: Draw, shape: List[int]) -> int:
    """Of three questions, two along the longest."""
    return int(d.choice((shape.index(max(shape)),) * 2 + (d.choice(range(len(shape))),)))


def _along(d: Draw) -> Any:
    shape = d.shape(d.choice((1, 2, 3)), 2**18)
    return (d.normal(*shape), _axis(d, shape)), {}


def _tied(d: Draw) -> Any:
    """Whole numbers of which many are alike."""
    shape = d.shape(d.choice((1, 2, 2, 3)), 2**16)
    return (d.whole(-9, d.choice((-2, 9, 200)), *shape).float(), _axis(d, shape), d.flag()), {}


def _apart(d: Draw) -> Any:
    shape = d.shape(d.choice((1, 2, 2)), 2**16)
    count = 1
    for n in shape:
        count *= n
    x = d.torch.randperm(count, generator=d.made).float()
    if d.flag():
        x[d.whole(0, count, 3)] = d.torch.tensor(NO_NUMBERS)
    x, dim = x.reshape(shape), _axis(d, shape)
    return (x, d.choice((1, min(5, shape[dim]), (shape[dim] + 1) // 2)), dim, d.flag()), {}


def _sought(x: Any, k: int, dim: int, right: bool) -> List[Any]:
    """Values, and what is at the places that are told: of like numbers any place is right."""
    import torch as t

    line = x.nan_to_num().flatten().sort()[0]
    found = [
        t.topk(x, k, dim, right),
        t.sort(x, dim, right),
        t.kthvalue(x, k, dim, True),
        *(each(x, dim, True) for each in (t.median, t.max, t.min)),
        *(each(x, dim) for each in (t.cummax, t.cummin)),
    ]
    values = [y for each in found for y in (each[0], x.gather(dim, each[1]))]
    return [*values, t.searchsorted(line, x, right=right), t.bucketize(x, line, right=right)]


def _rows(d: Draw) -> Any:
    """A table and places in it, of which many or neighbours may be alike."""
    rows, width = d.choice((5, 1025, 40_009, 70_001, 70_001)), d.choice((1, 2, 3))
    places = d.whole(0, rows, d.length(2**15)) % d.choice((3, 5, rows, rows))
    places = places.sort()[0] if d.flag() else places
    places[-1] = rows - 1
    return d.normal(rows, width), places


def _looked_up(d: Draw) -> Any:
    table, places = _rows(d)
    return (places, table), {"padding_idx": d.choice((None, 0, 3)), "scale_grad_by_freq": d.flag()}


def _added(d: Draw) -> Any:
    table, places = _rows(d)
    return (table, places, d.normal(len(places), table.shape[1])), {}


def _met(d: Draw) -> Any:
    """Places along an axis, laid out in any way; many are alike."""
    shape = d.shape(d.choice((1, 2, 2)), 2**14)
    dim, wanted = d.choice(range(len(shape))), list(shape)
    if len(shape) == 2 and d.flag():  # a square does not tell which way it lies
        wanted = [min(shape)] * 2
    wanted[dim] = d.choice((wanted[dim], wanted[dim], 1, 33))
    places = d.whole(0, shape[dim], *wanted[::-1]) % d.choice((2, 3, shape[dim]))
    return (d.normal(*shape), dim, places.permute(*range(len(shape))[::-1]), d.normal(*wanted)), {}


def _sparse(d: Draw) -> Any:
    """Places that come more than once, as a gradient has them."""
    n, m = d.length(300), d.choice((1, 3, 17))
    places = d.whole(0, min(n, m), 2, d.length(2**10))
    return (places, d.normal(places.shape[1]), d.normal(m, 3)), {"rows": n}


def _spread(places: Any, x: Any, y: Any, rows: int) -> List[Any]:
    import torch

    found = torch.sparse_coo_tensor(places, x, (rows, len(y)))
    return [found.to_dense(), found @ y]


def _int8(d: Draw) -> Any:
    n, k, m = 17 + d.length(200), 8 * d.choice((1, 2, 9, 33, 65)), 8 * d.choice((1, 2, 5, 17))
    a, b = d.whole(-128, 128, n, k).to(d.torch.int8), d.whole(-128, 128, m, k).to(d.torch.int8).t()
    return (a, b), {}


def _int_product(a: Any, b: Any) -> Any:
    import torch

    return torch._int_mm(a, b) if a.dtype == torch.int8 else torch.mm(a.double(), b.double()).int()


def _waves(d: Draw) -> Any:
    n = d.length(2**14)
    return (d.normal(d.choice((1, 3)), n), n), {}


def _classes(d: Draw) -> Any:
    classes = d.length(8193) if d.flag() else d.choice((2, 10, 33))
    rows = d.choice((3, 8, 33))
    wanted = d.whole(0, classes, rows)
    wanted[0] = d.choice((-100, 0))
    return (d.normal(rows, max(classes, 2)), wanted), {
        "reduction": d.choice(("mean", "sum", "none")),
        "label_smoothing": d.choice((0.0, 0.1)),
    }


def own(torch: Any) -> Dict[str, Any]:
    """By name."""
    f, t = torch.nn.functional, torch
    full = ("float32",)
    rows = (
        Own("attention in use", draw_attention, attended),
        Own("attention decoding", lambda d: draw_attention(d, "decoding"), attended),
        Own("attention packed", lambda d: draw_attention(d, "packed"), attended),
        Own("lstm net", draw_recurrent(4), run_net("lstm")),
        Own("gru net", draw_recurrent(3), run_net("gru")),
        Own("transformer layer", draw_transformer, transformed),
        Own("product", draw_mm, t.mm, once=True),
        Own("products of a batch", draw_bmm, t.bmm, once=True),
        Own("product added", draw_addmm, t.addmm),
        Own("linear layer", draw_linear, f.linear),
        Own("convolution layer", draw_convolution(False), convolved),
        Own("convolution back", draw_convolution(True), back_convolved),
        Own("batch norm layer", draw_batch_norm, f.batch_norm),
        Own("group norm layer", draw_group_norm, f.group_norm),
        Own("layer norm layer", draw_layer_norm, f.layer_norm),
        Own("softmax in use", _along, t.softmax),
        Own("log softmax in use", _along, t.log_softmax),
        Own("sum along", _along, t.sum, once=True, by_threads=True),
        Own("running sum", _along, t.cumsum),
        Own(
            "sort of ties",
            _tied,
            lambda x, dim, down: t.sort(x, dim=dim, descending=down, stable=True),
            learns=False,
        ),
        Own("searches", _apart, _sought, learns=False),
        Own("lookup", _looked_up, f.embedding),
        Own(
            "added at places",
            _added,
            lambda x, i, y: (
                x.index_add(0, i, y),
                x.index_put((i,), y, True),
                x.scatter_add(0, i[:, None].expand_as(y), y),
            ),
        ),
        Own(
            "gathered",
            _met,
            lambda x, dim, i, y: (x.gather(dim, i), x.scatter_add(dim, i, y)),
        ),
        Own("sparse numbers", _sparse, _spread, full, learns=False),
        Own("product of bytes", _int8, _int_product, ("int8",), learns=False),
        Own("waves", _waves, lambda x, n: (t.fft.rfft(x), t.fft.irfft(t.fft.rfft(x), n)), full),
        Own("classes", _classes, f.cross_entropy),
    )
    return {
        row.name.replace(" ", "-"): row._replace(name=row.name.replace(" ", "-")) for row in rows
    }
