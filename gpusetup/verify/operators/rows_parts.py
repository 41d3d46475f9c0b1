"""Places counted from the end that meet, and places for a part of a source only."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .rows_indexing import SAME_SUMS, _lookup, _meeting, _met, _met_greatest, _scattered
from .rows_moving import moving
from .table import Operator


def spread(i: Any, s: Any) -> Any:
    """A place of a row for each of its elements."""
    return i.unsqueeze(1).expand_as(s)


def _part(i: Any, s: Any) -> Any:
    """Places for half of the rows of a source and, where it has more, not for its last column."""
    return spread(i, s)[: len(i) // 2 + 1, : max(1, s.shape[1] - 1)]


def _of_part(join: Callable[..., Any], t: Any, x: Any, i: Any, s: Any) -> Any:
    rows, width = _part(i, s).shape
    return t.cat([join(t, x[:, :width], i[:rows], s[:rows, :width]), x[:, width:]], 1)


def _joined(t: Any, x: Any, i: Any, s: Any) -> Any:
    sums, tops = _of_part(_met, t, x, i, s), _of_part(_met_greatest, t, x, i, s)
    return sums, sums.t(), sums, tops


def _quarter(i: Any) -> Any:
    return i[: i.shape[0] // 2 + 1, : i.shape[1] // 2 + 1]


def _put(t: Any, x: Any, i: Any, s: Any, dim: int) -> Any:
    found, some = x.clone(), _quarter(i)
    rows, columns = (t.arange(n) for n in some.shape)
    at = (some, columns.unsqueeze(0)) if dim == 0 else (rows.unsqueeze(1), some)
    found[at] = s[: len(rows), : len(columns)]
    return found


PARTS: Tuple[Operator, ...] = (
    moving(
        "lookup from the end",
        _lookup,
        lambda t, x, i: x[i - x.shape[0] * (i % 2)],
        lambda t, x, i: t.stack([x[j] for j in i.tolist()]),
        weight=2,
        steady=False,
        sizes=("tiny", "warp", "tile"),
    ),
    moving(
        "index_put accumulated from the end",
        _meeting,
        lambda t, x, i, s: x.index_put((i - x.shape[0],), s, accumulate=True),
        _met,
        dtypes=SAME_SUMS,
        steady=False,
    ),
    moving(
        "sums from a part of a source",
        _meeting,
        lambda t, x, i, s: (
            x.scatter_add(0, _part(i, s), s),
            x.t().scatter_add(1, _part(i, s).t(), s.t()),
            x.scatter_reduce(0, _part(i, s), s, "sum"),
            x.scatter_reduce(0, _part(i, s), s, "amax"),
        ),
        _joined,
        dtypes=SAME_SUMS,
        learns=False,
        weight=2,
        sizes=("tiny", "warp", "tile"),
        steady=False,
    ),
    moving(
        "scatter of a part of a source",
        _scattered,
        lambda t, x, i, s, dim: x.scatter(dim, _quarter(i), s),
        _put,
        learns=False,
    ),
)
