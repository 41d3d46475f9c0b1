"""The entries written here: the operations that programs use most, in realistic sizes.

torch's database only has small samples, but for these kernels every length, layout and option
matters.
"""

from __future__ import annotations

import math
from math import inf, nan
from typing import Any, Dict, List, Tuple

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


def draw_axis(d: Draw, shape: List[int]) -> int:
    """Draw an axis of a shape. Mostly it is the longest one."""
    axes = range(len(shape))
    longest = shape.index(max(shape))
    any_axis = d.choice(axes)
    axis = d.choice((longest, longest, any_axis))
    return int(axis)


def draw_along(d: Draw) -> Any:
    """Draw a tensor with up to three axes, and an axis to compute along."""
    axis_count = d.choice((1, 2, 3))
    shape = d.shape(axis_count, 2**18)
    x = d.normal(*shape)
    axis = draw_axis(d, shape)
    return (x, axis), {}


def draw_ties(d: Draw) -> Any:
    """Draw whole numbers of which many are equal, an axis, and the direction of the sort."""
    axis_count = d.choice((1, 2, 2, 3))
    shape = d.shape(axis_count, 2**16)
    # With -2 as the limit, all numbers are negative; with 200, fewer numbers are equal.
    above_greatest = d.choice((-2, 9, 200))
    x = d.whole(-9, above_greatest, *shape).float()
    axis = draw_axis(d, shape)
    return (x, axis, d.flag()), {}


def draw_distinct(d: Draw) -> Any:
    """Draw distinct numbers (in half of the calls with NaN and infinities), a count `k`, an axis,
    and a direction."""
    axis_count = d.choice((1, 2, 2))
    shape = d.shape(axis_count, 2**16)
    count = math.prod(shape)
    x = d.torch.randperm(count, generator=d.generator).float()
    # Half of the questions also test how NaN and infinities are sorted.
    if d.flag():
        three_places = d.whole(0, count, 3)
        x[three_places] = d.torch.tensor(NO_NUMBERS)
    x = x.reshape(shape)
    axis = draw_axis(d, shape)
    length = shape[axis]
    k = d.choice((1, min(5, length), (length + 1) // 2))
    return (x, k, axis, d.flag()), {}


def search(x: Any, k: int, dim: int, flag: bool) -> List[Any]:
    """Run several searches along an axis. For each, return its values, and the numbers at its
    indices.

    The indices are not compared, because any of them is right if several numbers are equal. `flag`
    is the direction of the searches.
    """
    import torch as t

    searches = [
        t.topk(x, k, dim, flag),
        t.sort(x, dim, flag),
        t.kthvalue(x, k, dim, True),
        t.median(x, dim, True),
        t.max(x, dim, True),
        t.min(x, dim, True),
        t.cummax(x, dim),
        t.cummin(x, dim),
    ]
    answers: List[Any] = []
    for values, indices in searches:
        answers.append(values)
        answers.append(x.gather(dim, indices))
    # `searchsorted` is only defined for sorted numbers, so replace NaN first.
    line, _ = x.nan_to_num().flatten().sort()
    answers.append(t.searchsorted(line, x, right=flag))
    answers.append(t.bucketize(x, line, right=flag))
    return answers


def draw_table(d: Draw) -> Any:
    """Draw a table and indices of its rows, which are often repeated or sorted."""
    # 70,001 rows need more than 16-bit indices.
    rows = d.choice((5, 1025, 40_009, 70_001, 70_001))
    width = d.choice((1, 2, 3))
    count = d.length(2**15)
    indices = d.whole(0, rows, count)
    different_indices = d.choice((3, 5, rows, rows))
    indices = indices % different_indices
    if d.flag():
        indices = indices.sort()[0]
    # Always include the last row, which a kernel that ends early leaves out.
    indices[-1] = rows - 1
    return d.normal(rows, width), indices


def draw_embedding(d: Draw) -> Any:
    """Draw row indices and a table, with options of `embedding`."""
    table, indices = draw_table(d)
    options = {
        "padding_idx": d.choice((None, 0, 3)),
        "scale_grad_by_freq": d.flag(),
    }
    return (indices, table), options


def draw_added_rows(d: Draw) -> Any:
    """Draw a table, indices of its rows, and numbers to add to each of these rows."""
    table, indices = draw_table(d)
    width = table.shape[1]
    values = d.normal(len(indices), width)
    return (table, indices, values), {}


def draw_gather(d: Draw) -> Any:
    """Draw a tensor, an axis, a transposed tensor of indices along it, and values to add at these
    indices.

    Many of the indices are equal.
    """
    axis_count = d.choice((1, 2, 2))
    shape = d.shape(axis_count, 2**14)
    dim = d.choice(range(axis_count))
    index_shape = list(shape)
    # If the indices have as many rows as columns, a kernel that swaps the two axes returns a wrong
    # result. Otherwise it would only raise an error.
    if axis_count == 2 and d.flag():
        index_shape = [min(shape)] * 2
    length = index_shape[dim]
    index_shape[dim] = d.choice((length, length, 1, 33))
    drawn = d.whole(0, shape[dim], *reversed(index_shape))
    different_indices = d.choice((2, 3, shape[dim]))
    indices = drawn % different_indices
    axes = reversed(range(axis_count))
    transposed = indices.permute(*axes)
    x = d.normal(*shape)
    values = d.normal(*index_shape)
    return (x, dim, transposed, values), {}


def draw_sparse(d: Draw) -> Any:
    """Draw the indices and values of a sparse matrix, and a factor. Like a sparse gradient, the
    matrix has repeated entries."""
    rows = d.length(300)
    columns = d.choice((1, 3, 17))
    count = d.length(2**10)
    # Indices below the smaller length are valid along both axes.
    indices = d.whole(0, min(rows, columns), 2, count)
    values = d.normal(count)
    factor = d.normal(columns, 3)
    return (indices, values, factor), {"rows": rows}


def sparse_product(indices: Any, values: Any, factor: Any, rows: int) -> List[Any]:
    """Returns a sparse matrix in dense form, and its product with the factor."""
    import torch

    shape = (rows, len(factor))
    matrix = torch.sparse_coo_tensor(indices, values, shape)
    return [matrix.to_dense(), matrix @ factor]


def draw_int8_product(d: Draw) -> Any:
    """Draw two int8 matrices in shapes that `_int_mm` accepts."""
    # On a GPU, `_int_mm` needs more than 16 rows, and multiples of 8 for the two other lengths.
    rows = 17 + d.length(200)
    inner = 8 * d.choice((1, 2, 9, 33, 65))
    columns = 8 * d.choice((1, 2, 5, 17))
    int8 = d.torch.int8
    a = d.whole(-128, 128, rows, inner).to(int8)
    b = d.whole(-128, 128, columns, inner).to(int8)
    return (a, b.t()), {}


def int8_product(a: Any, b: Any) -> Any:
    """Returns the int8 product in int32. For the exact result, whose arguments are int64, it is
    computed in float64, which holds every such sum exactly."""
    import torch

    if a.dtype == torch.int8:
        return torch._int_mm(a, b)
    return torch.mm(a.double(), b.double()).int()


def draw_waves(d: Draw) -> Any:
    """Draw one or three rows of numbers, and their length."""
    length = d.length(2**14)
    lines = d.choice((1, 3))
    waves = d.normal(lines, length)
    return (waves, length), {}


def draw_classes(d: Draw) -> Any:
    """Draw logits and target classes, with options of `cross_entropy`."""
    class_count = d.length(8193) if d.flag() else d.choice((2, 10, 33))
    rows = d.choice((3, 8, 33))
    classes = d.whole(0, class_count, rows)
    # `cross_entropy` ignores the target -100 by default.
    classes[0] = d.choice((-100, 0))
    # Use at least two classes, because with a single class every loss is 0.
    logits = d.normal(rows, max(class_count, 2))
    options = {
        "reduction": d.choice(("mean", "sum", "none")),
        "label_smoothing": d.choice((0.0, 0.1)),
    }
    return (logits, classes), options


def sort_of_ties(x: Any, axis: int, downwards: bool) -> Any:
    """Returns the sorted numbers and their positions. Equal numbers keep their order."""
    import torch

    return torch.sort(x, dim=axis, descending=downwards, stable=True)


def add_rows(x: Any, indices: Any, values: Any) -> Tuple[Any, ...]:
    """Returns the table after rows are added to it, once for each of the three functions that can
    add rows."""
    index_of_each_value = indices[:, None].expand_as(values)
    return (
        x.index_add(0, indices, values),
        x.index_put((indices,), values, True),
        x.scatter_add(0, index_of_each_value, values),
    )


def gather_and_scatter(x: Any, axis: int, indices: Any, values: Any) -> Tuple[Any, Any]:
    """Returns the numbers at these indices along an axis, and the tensor after values are added
    there."""
    gathered = x.gather(axis, indices)
    scattered = x.scatter_add(axis, indices, values)
    return gathered, scattered


def transform_waves(x: Any, length: int) -> Tuple[Any, Any]:
    """Returns the Fourier transform of real numbers, and the numbers that its inverse restores."""
    import torch

    spectrum = torch.fft.rfft(x)
    # Transform again, because the inverse may overwrite its argument.
    returned = torch.fft.irfft(torch.fft.rfft(x), length)
    return spectrum, returned


def own(torch: Any) -> Dict[str, Any]:
    """Returns the entries written here, by name."""
    f, t = torch.nn.functional, torch
    float32 = ("float32",)
    rows = (
        Own("attention-in-use", draw_attention, attended),
        Own("attention-decoding", lambda d: draw_attention(d, "decoding"), attended),
        Own("attention-packed", lambda d: draw_attention(d, "packed"), attended),
        Own("lstm-net", draw_recurrent(4), run_net("lstm")),
        Own("gru-net", draw_recurrent(3), run_net("gru")),
        Own("transformer-layer", draw_transformer, transformed),
        Own("product", draw_mm, t.mm, once=True),
        Own("products-of-a-batch", draw_bmm, t.bmm, once=True),
        Own("product-added", draw_addmm, t.addmm),
        Own("linear-layer", draw_linear, f.linear),
        Own("convolution-layer", draw_convolution(False), convolved),
        Own("convolution-back", draw_convolution(True), back_convolved),
        Own("batch-norm-layer", draw_batch_norm, f.batch_norm),
        Own("group-norm-layer", draw_group_norm, f.group_norm),
        Own("layer-norm-layer", draw_layer_norm, f.layer_norm),
        Own("softmax-in-use", draw_along, t.softmax),
        Own("log-softmax-in-use", draw_along, t.log_softmax),
        Own("sum-along", draw_along, t.sum, once=True, by_threads=True),
        Own("running-sum", draw_along, t.cumsum),
        Own("sort-of-ties", draw_ties, sort_of_ties, learns=False),
        Own("searches", draw_distinct, search, learns=False),
        Own("lookup", draw_embedding, f.embedding),
        Own("added-at-places", draw_added_rows, add_rows),
        Own("gathered", draw_gather, gather_and_scatter),
        Own("sparse-numbers", draw_sparse, sparse_product, float32, learns=False),
        Own("product-of-bytes", draw_int8_product, int8_product, ("int8",), learns=False),
        Own("waves", draw_waves, transform_waves, float32),
        Own("classes", draw_classes, f.cross_entropy),
    )
    return {row.name: row for row in rows}
