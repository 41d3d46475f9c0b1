"""Operators on lists of tensors with each option: multiples, numbers for each, powers; members of
every shape, of nothing, of another format, spread."""

from __future__ import annotations

from math import inf
from typing import Any, Callable, Dict, List, Tuple

from . import definitions as by
from .drawing import Draw
from .rows_running import norm
from .single_options import SPREAD_ALL, Made, by_each_option, shape_of
from .table import Operator

MEMBERS: Dict[str, Any] = {
    "count": (3, 1, 2, 7),
    "member": ("usual", "of nothing", "without axes", "of one"),
    "over": (False, True),
}
WHOLE = ("float32", "int64", "bfloat16", "float16", "int32", "float64")


def _shapes(d: Draw, count: int, member: str) -> List[Tuple[int, ...]]:
    """Of unlike ranks; one member, first, last or between, of a special kind."""
    found = [shape_of(d, d.choice((1, 2, 3))) for _ in range(count)]
    special = {"of nothing": ((0,), (2, 0)), "without axes": ((),), "of one": ((1,), (1, 1))}
    if member in special:
        found[d.choice((0, count // 2, count - 1))] = d.choice(special[member])
    return found


def _listed(lists: int, numbers: Callable[..., Any]) -> Callable[..., Made]:
    def make(d: Draw, count: int, member: str, **of: Any) -> Made:
        shapes = _shapes(d, count, member)
        tensors = [numbers(d, shape) for _ in range(lists) for shape in shapes]
        return Made(tensors, {"count": count, **of})

    return make


def on_lists(
    name: str,
    axes: Dict[str, Any],
    run: Callable[..., Any],
    exact: Callable[..., Any],
    lists: int = 2,
    numbers: Any = None,
    **more: Any,
) -> Operator:
    """`run(t, ending, lists..., options...)` gives a list, or where the ending is `_` writes over
    the first; `exact` is told the place and its members."""

    def call(t: Any, *tensors: Any, count: int, over: bool, **of: Any) -> Any:
        parts = [list(tensors[i * count : (i + 1) * count]) for i in range(lists)]
        if over:
            parts[0] = [x.clone(memory_format=t.contiguous_format) for x in parts[0]]
        found = run(t, "_" if over else "", *parts, **of)
        return parts[0] if over else list(found)

    def right(t: Any, *tensors: Any, count: int, over: bool, **of: Any) -> Any:
        return [exact(t, i, *tensors[i::count], **of) for i in range(count)]

    more = {"learns": False, "slack": 4, **more}
    made = _listed(lists, numbers or _whole)
    return by_each_option(f"list {name}", {**MEMBERS, **axes}, made, call, right, **more)


def _whole(d: Draw, shape: Any) -> Any:
    return d.whole(1, 20, *shape).double()


def _above(d: Draw, shape: Any) -> Any:
    return d.uniform(0.5, 2.5, *shape)


def _named(t: Any, name: str, ending: str) -> Any:
    return getattr(t, f"_foreach_{name}{ending}")


TWO: Dict[str, Callable[..., Any]] = {
    "add": lambda t, x, y: x + y,
    "sub": lambda t, x, y: x - y,
    "mul": lambda t, x, y: x * y,
    "maximum": lambda t, x, y: t.where(x > y, x, y),
    "minimum": lambda t, x, y: t.where(x < y, x, y),
    "clamp_max": lambda t, x, y: t.where(x < y, x, y),
    "clamp_min": lambda t, x, y: t.where(x > y, x, y),
}
REAL: Dict[str, Callable[..., Any]] = {
    **TWO,
    "div": lambda t, x, y: x / y,
    "pow": lambda t, x, y: (x.log() * y).exp(),
}


def _by(whole: bool) -> Tuple[Any, Any]:
    """With one number, with one for each, with a list."""

    def number(i: int) -> Any:
        return 2 + i if whole else 0.5 + i / 4

    def run(t: Any, ending: str, xs: Any, ys: Any, what: str, kind: str) -> Any:
        others = {"number": number(1), "numbers": [number(i) for i in range(len(xs))], "list": ys}
        return _named(t, what, ending)(xs, others[kind])

    def exact(t: Any, i: int, x: Any, y: Any, what: str, kind: str) -> Any:
        at = {"number": 1, "numbers": i}.get(kind)
        other = y if at is None else number(at) + 0 * t.ones_like(x)
        return REAL[what](t, x, other)

    return run, exact


KINDS = {"kind": ("list", "number", "numbers")}
SPREAD = {"spread": SPREAD_ALL}


def _multiple(t: Any, ending: str, xs: Any, ys: Any, what: str, alpha: Any, kind: str) -> Any:
    if kind == "tensor":
        return _named(t, "add", ending)(xs, t.full((), 3, dtype=xs[0].dtype), alpha=alpha)
    return _named(t, what, ending)(xs, ys, alpha=alpha)


def _multiple_exact(t: Any, i: int, x: Any, y: Any, what: str, alpha: Any, kind: str) -> Any:
    y = 3 + 0 * t.ones_like(x) if kind == "tensor" else y
    return x - alpha * y if what == "sub" and kind != "tensor" else x + alpha * y


def _third(value: str) -> Callable[[int], float]:
    return lambda i: 0.75 if value == "a number" else -0.5 + i / 4


def _values(t: Any, xs: Any, value: str) -> Any:
    numbers = [_third(value)(i) for i in range(len(xs))]
    return {"none": None, "a number": 0.75, "numbers": numbers}.get(value, t.tensor(numbers))


def _three(t: Any, ending: str, xs: Any, ys: Any, zs: Any, what: str, value: str) -> Any:
    call = _named(t, what, ending)
    return call(xs, ys, zs) if value == "none" else call(xs, ys, zs, _values(t, xs, value))


def _three_exact(t: Any, i: int, x: Any, y: Any, z: Any, what: str, value: str) -> Any:
    share = 1.0 if value == "none" else _third(value)(i)
    return x + share * (y * z if what == "addcmul" else y / z)


def _norms(t: Any, ending: str, xs: Any, p: Any, wide: bool) -> Any:
    return t._foreach_norm(xs, p, **({"dtype": t.float64} if wide else {}))


def _mixed(t: Any, ending: str, xs: Any, ys: Any, what: str) -> Any:
    """Every second member of the other list is of another format."""
    ys = [y.double() if i % 2 else y for i, y in enumerate(ys)]
    if what == "copy_":
        xs = [x.clone(memory_format=t.contiguous_format) for x in xs]
        t._foreach_copy_(xs, ys)
        return xs
    return _named(t, what, "")(xs, ys)


LISTED: Tuple[Operator, ...] = (
    on_lists(
        "of whole numbers",
        {"what": tuple(TWO), **KINDS, **SPREAD},
        *_by(True),
        dtypes=WHOLE,
        kept=True,
    ),
    on_lists("of two", {"what": tuple(REAL), **KINDS, **SPREAD}, *_by(False), numbers=_above),
    on_lists(
        "multiples",
        {"what": ("add", "sub"), "alpha": (1, 2, -3, 0), "kind": ("list", "tensor")},
        _multiple,
        _multiple_exact,
        dtypes=WHOLE,
        kept=True,
    ),
    on_lists(
        "of three",
        {
            "what": ("addcmul", "addcdiv"),
            "value": ("none", "a number", "numbers", "a tensor"),
            **SPREAD,
        },
        _three,
        _three_exact,
        lists=3,
        numbers=_above,
    ),
    on_lists(
        "lerp",
        {"weight": (0.3, 0.75, 0, 1, -1)},
        lambda t, ending, xs, ys, weight: _named(t, "lerp", ending)(xs, ys, weight),
        lambda t, i, x, y, weight: x + weight * (y - x),
        numbers=_above,
    ),
    on_lists(
        "norms by power",
        {"over": (False,), "p": (2, 1, 3, 0.5), "wide": (False, True)},
        _norms,
        lambda t, i, x, p, wide: norm(t, x.reshape(-1), p),
        lists=1,
        numbers=_above,
        slack=8,
        serial=True,
    ),
    on_lists(
        "greatest norms",
        {"over": (False,), "member": ("usual", "without axes", "of one")},
        lambda t, ending, xs: t._foreach_norm(xs, inf),
        lambda t, i, x: by.greatest(t, x.abs().reshape(-1), 0),
        lists=1,
    ),
    on_lists(
        "greatest",
        {"over": (False,), "member": ("usual", "without axes", "of one")},
        lambda t, ending, xs: t._foreach_max(xs),
        lambda t, i, x: by.greatest(t, x.reshape(-1), 0),
        lists=1,
        dtypes=WHOLE,
        kept=True,
    ),
    on_lists(
        "of two formats",
        {"over": (False,), "what": ("add", "mul", "maximum", "copy_")},
        _mixed,
        lambda t, i, x, y, what: 1 * y if what == "copy_" else TWO[what](t, x, y),
        dtypes=("float32", "float64"),
        kept=True,
    ),
)
