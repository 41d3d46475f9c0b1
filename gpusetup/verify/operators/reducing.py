"""Rows of reductions: which axes go, whether they are kept as ones, in which format is added up."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from .drawing import Draw
from .single_options import (
    LENGTHS,
    RANKS,
    SEVERAL,
    SINGLE,
    SPREAD,
    Made,
    axes_of,
    by_each_option,
    shape_of,
)
from .table import Operator

OVER: Dict[str, Any] = {
    "dims": SEVERAL,
    "keep": (False, True),
    "rank": RANKS,
    "lengths": LENGTHS,
    "spread": SPREAD,
}
ALONG: Dict[str, Any] = {**OVER, "dims": (*SINGLE, "all")}
ONE = {**OVER, "dims": SINGLE}
NUMBERED = ("float32", "bfloat16", "float16", "float64", "int64", "int32")


def lines(x: Any, dims: List[int]) -> Any:
    """The axes that go, as one behind all others."""
    if not x.dim():
        return x.reshape(1)
    kept = [i for i in range(x.dim()) if i not in dims]
    count = 1
    for i in dims:
        count *= x.shape[i]
    return x.permute(*kept, *dims).reshape([x.shape[i] for i in kept] + [count])


def _in_shape(found: Any, shape: Any, dims: List[int], keep: bool) -> Any:
    if not keep:
        return found
    return found.reshape([1 if i in dims else n for i, n in enumerate(shape)])


def wider(t: Any, x: Any) -> Any:
    """A format that holds more than that of x."""
    halves = {t.bfloat16: t.float32, t.float16: t.float32, t.bool: t.int32, t.uint8: t.int32}
    return halves.get(x.dtype, t.int64 if x.dtype == t.int32 else t.float64)


def _called(t: Any, x: Any, dims: Any, keep: bool, wide: bool) -> Dict[str, Any]:
    options: Dict[str, Any] = {} if dims is None else {"dim": dims}
    if keep:
        options["keepdim"] = True
    if wide:
        options["dtype"] = wider(t, x)
    return options


def made_over(
    numbers: Callable[..., Any], fills: bool = True, least: int = 1, ranks: int = 0
) -> Callable[..., Made]:
    """`numbers(d, shape)` gives the tensor. Without `fills` no axis that goes is empty."""

    def make(d: Draw, dims: str, rank: int, lengths: str, **of: Any) -> Made:
        rank = max(rank, ranks)
        given, names = axes_of(d, dims, rank)
        shape = list(shape_of(d, rank, "usual" if not fills else lengths, least))
        kept = [i for i in range(rank) if i not in names]
        if not fills and kept and lengths != "usual":
            shape[d.choice(kept)] = int(lengths == "of one")
        for i in names if least > 1 else ():
            shape[i] = max(least, shape[i])
        if given is None:
            of["keep"] = False
        return Made([numbers(d, shape)], {"dims": given, **of}, {"dims": names})

    return make


def over(
    name: str,
    run: Callable[..., Any],
    exact: Callable[..., Any],
    numbers: Callable[..., Any],
    axes: Dict[str, Any] = OVER,
    fills: bool = True,
    least: int = 1,
    ranks: int = 0,
    **more: Any,
) -> Operator:
    """`run(t, x, options, rest...)`, `exact(t, lines, rest...)` of numbers in float64 along the
    last axis; either gives a tensor or several."""

    def call(t: Any, x: Any, dims: Any, keep: bool = False, wide: bool = False, **of: Any) -> Any:
        return run(t, x, _called(t, x, dims, keep, wide), **of)

    def right(t: Any, x: Any, dims: Any, keep: bool = False, wide: bool = False, **of: Any) -> Any:
        found = exact(t, lines(x, dims), **of)
        listed = list(found) if isinstance(found, (list, tuple)) else [found]
        return [_in_shape(each, x.shape, dims, keep) for each in listed]

    return by_each_option(name, axes, made_over(numbers, fills, least, ranks), call, right, **more)
