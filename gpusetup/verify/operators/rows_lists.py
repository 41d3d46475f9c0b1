"""Operators on lists of tensors (`_foreach_`), as optimizers and clipping use them."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

from .drawing import Draw, Given, given
from .table import Operator

COUNTS = (1, 3, 5, 9)


SMALLEST: Tuple[Tuple[int, ...], ...] = ((0,), (0, 3), ())
"""Parameters without a number, and of a single one."""


def _list(low: float, high: float, lists: int = 1) -> Callable[[Draw], Given]:
    """Lists of tensors of unlike sizes, one behind the other; three of four lists have one without
    a number or of a single one: as the first, in the middle, at the end."""

    def make(d: Draw) -> Given:
        count = d.choice(COUNTS)
        shapes: List[Tuple[int, ...]] = [
            d.shape(d.choice((1, 2)), share=count) for _ in range(count)
        ]
        place = d.choice((None, 0, count // 2, count, count))
        if place is not None:
            shapes.insert(place, d.choice(SMALLEST))
        return given(*(d.uniform(low, high, *shape) for _ in range(lists) for shape in shapes))

    return make


def _cut(tensors: Tuple[Any, ...], lists: int) -> List[List[Any]]:
    count = len(tensors) // lists
    return [list(tensors[i * count : (i + 1) * count]) for i in range(lists)]


def _on_lists(
    name: str,
    run: Callable[..., Any],
    exact: Callable[..., Any],
    low: float = 0.5,
    high: float = 4,
    lists: int = 1,
    **more: Any,
) -> Operator:
    """`run(t, list, ...)` answers a list, or writes over the first (then it answers None);
    `exact` is told the elements at one place, and its number."""

    def made(t: Any, *tensors: Any) -> Any:
        parts = _cut(tensors, lists)
        parts[0] = [x.clone() for x in parts[0]]
        found = run(t, *parts)
        return list(found) if found is not None else parts[0]

    def right(t: Any, *tensors: Any) -> Any:
        parts = _cut(tensors, lists)
        return [exact(t, *each, i) for i, each in enumerate(zip(*parts))]

    more = {"slack": 4.0, **more}
    return Operator(f"list {name}", _list(low, high, lists), made, right, learns=False, **more)


def _simple(name: str, exact: Any, low: float = 0.5, high: float = 4, **more: Any) -> Operator:
    """The one that answers a list, and the one that writes over it."""

    def run(t: Any, xs: Any) -> Any:
        found = getattr(t, f"_foreach_{name}")(xs)
        getattr(t, f"_foreach_{name}_")(xs)
        return [*found, *xs]

    row = _on_lists(name, run, lambda t, x, i: exact(t, x), low, high, **more)
    once = row.exact
    assert once is not None
    return row._replace(exact=lambda t, *xs: once(t, *xs) * 2)


SIMPLE: Tuple[Operator, ...] = (
    _simple("sqrt", lambda t, x: x**0.5, weight=2),
    _simple("exp", lambda t, x: x.exp()),
    _simple("neg", lambda t, x: 0 - x, -4, weight=2),
    _simple("abs", lambda t, x: t.where(x < 0, -x, x), -4, weight=2),
    _simple("reciprocal", lambda t, x: 1 / x, weight=2),
    _on_lists("zero", lambda t, xs: t._foreach_zero_(xs) and None, lambda t, x, i: 0 * x),
    _on_lists("clone", lambda t, xs: [x.clone() for x in xs], lambda t, x, i: 1 * x),
)


def _numbers(xs: Any) -> List[float]:
    return [0.5 + i / 4 for i in range(len(xs))]


def _binary(name: str, exact: Any, **more: Any) -> Tuple[Operator, ...]:
    """With one number, with a number for each, with a list; answering and writing over."""
    weight = more.pop("weight", 2.0)

    def call(over: bool, what: Callable[..., Any]) -> Callable[..., Any]:
        def run(t: Any, xs: Any, *others: Any) -> Any:
            found = getattr(t, f"_foreach_{name}{'_' if over else ''}")(xs, what(xs, *others))
            return None if over else found

        return run

    def number(t: Any, x: Any, i: int) -> Any:
        return exact(t, x, t.full_like(x, 2.5))

    def each(t: Any, x: Any, i: int) -> Any:
        return exact(t, x, t.full_like(x, 0.5 + i / 4))

    def pair(t: Any, x: Any, y: Any, i: int) -> Any:
        return exact(t, x, y)

    more = {"weight": weight, **more}
    return tuple(
        _on_lists(
            f"{name} {kind}{' over' if over else ''}", call(over, what), right, **{**more, **of}
        )
        for over in (False, True)
        for kind, what, right, of in (
            ("by a number", lambda xs: 2.5, number, {}),
            ("by numbers", _numbers, each, {}),
            ("by a list", lambda xs, ys: ys, pair, {"lists": 2}),
        )
    )


BINARY: Tuple[Operator, ...] = (
    *_binary("add", lambda t, x, y: x - -y),
    *_binary("mul", lambda t, x, y: x / (1 / y)),
    *_binary("div", lambda t, x, y: x * (1 / y)),
    *_binary("maximum", lambda t, x, y: t.where(x > y, x, y), weight=1.0),
)


def _of_three(name: str, exact: Any) -> Tuple[Operator, ...]:
    """addcmul and addcdiv, with their three kinds of values."""

    def call(over: bool, value: Callable[..., Any]) -> Callable[..., Any]:
        def run(t: Any, xs: Any, ys: Any, zs: Any) -> Any:
            call = getattr(t, f"_foreach_{name}{'_' if over else ''}")
            found = call(xs, ys, zs, value(t, xs))
            return None if over else found

        return run

    def number(t: Any, x: Any, y: Any, z: Any, i: int) -> Any:
        return exact(x, y, z, 0.75)

    def each(t: Any, x: Any, y: Any, z: Any, i: int) -> Any:
        return exact(x, y, z, 0.5 + i / 4)

    return tuple(
        _on_lists(
            f"{name} by {kind}{' over' if over else ''}",
            call(over, value),
            right,
            lists=3,
            weight=2.0,
        )
        for over in (False, True)
        for kind, value, right in (
            ("a number", lambda t, xs: 0.75, number),
            ("numbers", lambda t, xs: _numbers(xs), each),
            ("a tensor", lambda t, xs: t.tensor(_numbers(xs)), each),
        )
    )


THREE: Tuple[Operator, ...] = (
    *_of_three("addcmul", lambda x, y, z, value: x + value * y * z),
    *_of_three("addcdiv", lambda x, y, z, value: x + value * y / z),
    *(
        _on_lists(
            f"lerp {kind}{'_' if over else ''}",
            lambda t, xs, ys, zs, over=over, value=value: (
                t._foreach_lerp_(xs, ys, value(xs, zs)) and None
                if over
                else t._foreach_lerp(xs, ys, value(xs, zs))
            ),
            right,
            lists=3,
        )
        for over in (False, True)
        for kind, value, right in (
            ("by a number", lambda xs, zs: 0.3, lambda t, x, y, z, i: x + 0.3 * (y - x)),
            ("by a list", lambda xs, zs: zs, lambda t, x, y, z, i: x + z * (y - x)),
        )
    ),
    _on_lists(
        "copy",
        lambda t, xs, ys: t._foreach_copy_(xs, ys) and None,
        lambda t, x, y, i: 1 * y,
        lists=2,
        weight=2.0,
    ),
    _on_lists(
        "add of a multiple",
        lambda t, xs, ys: t._foreach_add_(xs, ys, alpha=-0.25) and None,
        lambda t, x, y, i: x - y / 4,
        lists=2,
        weight=3.0,
    ),
    _on_lists(
        "norms",
        lambda t, xs: [*t._foreach_norm(xs), *t._foreach_norm(xs, 1)],
        lambda t, x, i: x,
        slack=32,
        serial=True,
        weight=3.0,
    )._replace(
        exact=lambda t, *xs: [
            *((x * x).sum().sqrt() for x in xs),
            *(x.abs().sum() for x in xs),
        ]
    ),
    _on_lists(
        "unscaled",
        lambda t, xs: _unscaled(t, xs),
        lambda t, x, i: x / 4,
        weight=3.0,
    )._replace(exact=lambda t, *xs: [*(x / 4 for x in xs), t.zeros(1)]),
    _on_lists(
        "unscaled with infinity",
        lambda t, xs: _unscaled(t, [*xs[:-1], xs[-1] / 0]),
        lambda t, x, i: x / 4,
        dtypes=("float32", "float16"),
        weight=2.0,
    )._replace(
        exact=lambda t, *xs: [
            *(x / 4 for x in xs[:-1]),
            xs[-1] / 0,
            t.full((1,), float(xs[-1].numel() > 0)),
        ]
    ),
)


def _unscaled(t: Any, xs: Any) -> Any:
    """What the gradient scaler does: all gradients times a number, and whether one is infinite."""
    xs = [x.clone() for x in xs]
    wrong = t.zeros(1, device=xs[0].device)
    t._amp_foreach_non_finite_check_and_unscale_(xs, wrong, t.full((1,), 0.25, device=wrong.device))
    return [*xs, wrong]


def _fitting(row: Operator) -> Operator:
    """In the sizes in which several tensors are together no larger than one of another row."""
    return row._replace(sizes=("tiny", "warp", "tile", "block"))


LISTS: Tuple[Operator, ...] = tuple(map(_fitting, (*SIMPLE, *BINARY, *THREE)))
