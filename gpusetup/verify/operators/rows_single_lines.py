"""Segments, steps along a line and lines of unlike lengths, with each of their options alone."""

from __future__ import annotations

from typing import Any, List, Tuple

from .drawing import Draw
from .single_options import HELD, Made, by_single_options
from .table import FULL, Operator

# --- steps and areas -----------------------------------------------------------------------------

SHAPES = ((5, 6), (2, 7, 3), (4, 1), (9,), (2, 65))


def _along(d: Draw, shape: Any, dim: int, **of: Any) -> Made:
    dim = max(min(dim, len(shape) - 1), -len(shape))
    n = shape[dim]
    line = d.uniform(0.5, 1.5, n).cumsum(0)
    many = [*shape]
    many[dim] = of.pop("more")
    return Made([d.normal(*shape), line, d.normal(*many)], {"dim": dim, **of})


def _steps(
    t: Any, x: Any, line: Any, more: Any, dim: int, n: int, beside: str, dx: float
) -> List[Any]:
    ends = {"prepend": more if beside in ("before", "both") else None}
    ends["append"] = more if beside in ("after", "both") else None
    found = [t.diff(x, n, dim, **ends)]
    if x.shape[dim] > 1:
        found += [t.trapezoid(x, dx=dx, dim=dim), t.cumulative_trapezoid(x, dx=dx, dim=dim)]
        lines = _turned(t, line, x, dim)
        found += [t.trapezoid(x, lines, dim=dim), t.cumulative_trapezoid(x, lines, dim=dim)]
    return found


def _turned(t: Any, line: Any, x: Any, dim: int) -> Any:
    """A line beside its axis."""
    shape = [1] * x.dim()
    shape[dim] = len(line)
    return line.reshape(shape).expand_as(x)


def _steps_exact(
    t: Any, x: Any, line: Any, more: Any, dim: int, n: int, beside: str, dx: float
) -> List[Any]:
    parts = [*([more] if beside in ("before", "both") else []), x]
    y = t.cat([*parts, *([more] if beside in ("after", "both") else [])], dim).movedim(dim, 0)
    y = y if n else x.movedim(dim, 0)  # nothing is put beside it where it stays
    for _ in range(min(n, y.shape[0])):
        y = y[1:] - y[:-1]
    found = [y.movedim(0, dim)]
    if x.shape[dim] > 1:
        z = x.movedim(dim, 0)
        middle = (z[1:] + z[:-1]) / 2
        wide = (line[1:] - line[:-1]).reshape(-1, *[1] * (z.dim() - 1))
        for each in (middle * dx, middle * wide):
            found += [each.sum(0), each.cumsum(0).movedim(0, dim)]
    return found


STEPS = by_single_options(
    "steps and areas",
    {
        "shape": SHAPES,
        "dim": (-1, 0, 1, -2),
        "n": (1, 2, 3, 0),
        "more": (1, 2, 0),
        "beside": ("none", "before", "after", "both"),
        "dx": (1.0, 0.5, -2.0),
        **HELD,
    },
    _along,
    _steps,
    _steps_exact,
    slack=16,
    dtypes=FULL,
)

# --- segments ------------------------------------------------------------------------------------

KINDS = ("sum", "mean", "max", "min", "prod")
CUTS = {"plain": (3, 1, 4), "with an empty one": (3, 0, 5), "one": (8,), "each": (1,) * 8}


def _segments(d: Draw, kind: str, cut: str, by: str, axis: int, initial: Any, wide: int) -> Made:
    """Segments along the first or the second axis; an empty one has a number to begin with."""
    lengths = d.torch.tensor(CUTS[cut])
    if cut == "with an empty one" and initial is None:
        initial = 2.0
    if axis:
        lengths = d.torch.stack([lengths, lengths.flip(0)])
    shape = (2, 8, wide) if axis else (8, wide)
    x = d.uniform(0.5, 1.5, *shape) * (1 - 2 * d.flags(*shape).double())
    return Made([x, lengths], {"kind": kind, "by": by, "axis": axis, "initial": initial})


def _reduced(
    t: Any, x: Any, lengths: Any, kind: str, by: str, axis: int, initial: Any
) -> List[Any]:
    places = {"lengths": lengths}
    if by == "offsets":
        none = t.zeros_like(lengths[..., :1])
        places = {"offsets": t.cat([none, lengths.cumsum(-1)], -1)}
    safe = {"unsafe": by == "unsafe"}
    return [
        t.segment_reduce(x.contiguous(), kind, **places, axis=axis, initial=initial, **safe),
    ]


def _reduced_exact(
    t: Any, x: Any, lengths: Any, kind: str, by: str, axis: int, initial: Any
) -> List[Any]:
    if axis:
        rows = [
            _reduced_exact(t, one, each, kind, by, 0, initial)[0] for one, each in zip(x, lengths)
        ]
        return [t.stack(rows)]
    found, at = [], 0
    for n in lengths.tolist():
        some = x[at : at + n]
        if initial is not None:
            some = t.cat([t.full_like(x[:1], initial), some])
        if kind == "mean":
            found.append(some.sum(0) / n if n else some.sum(0))
        elif kind in ("max", "min"):
            found.append(some.amax(0) if kind == "max" else some.amin(0))
        else:
            found.append(some.sum(0) if kind == "sum" else some.prod(0))
        at += n
    return [t.stack(found)]


SEGMENTS = by_single_options(
    "segments",
    {
        "kind": KINDS,
        "cut": tuple(CUTS),
        "by": ("lengths", "offsets", "unsafe"),
        "axis": (0, 1),
        "initial": (None, 2.0, -3.0),
        "wide": (3, 1, 17),
    },
    _segments,
    _reduced,
    _reduced_exact,
    slack=16,
    dtypes=FULL,
)

# --- lines of unlike lengths ---------------------------------------------------------------------

RAGGED = {"plain": (3, 5, 2), "one": (4,), "with an empty one": (2, 0, 3), "alike": (3, 3)}


def _ragged(d: Draw, lengths: str, wide: int, **of: Any) -> Made:
    counts = RAGGED[lengths]
    return Made([d.normal(sum(counts), wide), d.normal(1)], {"counts": counts, **of})


def _padded(t: Any, x: Any, like: Any, counts: Any, first: bool, value: float, side: str) -> Any:
    parts = list(x.split(list(counts)))
    more = {} if side == "right" else {"padding_side": side}
    return [t.nn.utils.rnn.pad_sequence(parts, first, value, **more)]


def _padded_exact(
    t: Any, x: Any, like: Any, counts: Any, first: bool, value: float, side: str
) -> List[Any]:
    rows, most = [], max(counts)
    for part in x.split(list(counts)):
        rest = t.full((most - len(part), x.shape[1]), value, dtype=x.dtype)
        rows.append(t.cat([rest, part] if side == "left" else [part, rest]))
    return [t.stack(rows, 0 if first else 1)]


PADDED = by_single_options(
    "lines filled up",
    {
        "lengths": ("plain", "one", "with an empty one", "alike"),
        "wide": (3, 1, 17),
        "first": (True, False),
        "value": (0.0, -1.5),
        "side": ("right", "left"),
    },
    _ragged,
    _padded,
    _padded_exact,
    kept=True,
    dtypes=("float32", "float64", "bfloat16"),
)


def _nested(t: Any, x: Any, like: Any, counts: Any, value: float, room: Any) -> List[Any]:
    parts = [each.contiguous() for each in x.split(list(counts))]
    both = t.nested.as_nested_tensor(parts)
    size = None if room is None else (len(counts), max(counts) + room, x.shape[1])
    return [t.nested.to_padded_tensor(both, value, size)]


def _nested_exact(t: Any, x: Any, like: Any, counts: Any, value: float, room: Any) -> List[Any]:
    found = _padded_exact(t, x, like, counts, True, value, "right")[0]
    if room:
        shape = (len(counts), room, x.shape[1])
        found = t.cat([found, t.full(shape, value, dtype=x.dtype)], 1)
    return [found]


NESTED = by_single_options(
    "nested filled up",
    {
        "lengths": ("plain", "one", "with an empty one", "alike"),
        "wide": (3, 1, 17),
        "value": (0.0, -1.5),
        "room": (None, 0, 2),
    },
    _ragged,
    _nested,
    _nested_exact,
    kept=True,
    learns=False,
    dtypes=FULL,
)


def _jagged(t: Any, x: Any, like: Any, counts: Any, value: float, room: Any, told: bool) -> Any:
    ends = t.tensor([0, *counts], device=x.device).cumsum(0)
    most = max(counts) + room
    full = t.ops.aten._jagged_to_padded_dense_forward(x.contiguous(), [ends], [most], value)
    back = t.ops.aten._padded_dense_to_jagged_forward(full, [ends], sum(counts) if told else None)
    return [full, back]


def _jagged_exact(
    t: Any, x: Any, like: Any, counts: Any, value: float, room: Any, told: bool
) -> List[Any]:
    return [_nested_exact(t, x, like, counts, value, room)[0], 1 * x]


JAGGED = by_single_options(
    "jagged filled up",
    {
        "lengths": ("plain", "one", "with an empty one", "alike"),
        "wide": (3, 1, 17),
        "value": (0.0, -1.5),
        "room": (0, 2),
        "told": (True, False),
    },
    _ragged,
    _jagged,
    _jagged_exact,
    kept=True,
    learns=False,
    dtypes=FULL,
)

SINGLE_LINES: Tuple[Operator, ...] = (STEPS, SEGMENTS)
SINGLE_RAGGED: Tuple[Operator, ...] = (PADDED, NESTED, JAGGED)
