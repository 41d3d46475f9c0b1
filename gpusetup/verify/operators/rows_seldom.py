"""Kernels of torch that few programs call by name, each by its definition: several share a row, as
far as the same devices and releases have them."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_quantized import HIGH, LOW, STEPS
from .table import FEW, FULL, Operator


def seldom(name: str, make: Any, run: Any, exact: Any, **more: Any) -> Operator:
    chosen: Dict[str, Any] = {"dtypes": ("float32",), "learns": False, "sizes": FEW, **more}
    return Operator(name, make, run, exact, **chosen)


# --- element by element --------------------------------------------------------------------------


def _pair(d: Draw) -> Given:
    """More columns than rows, and an even number of them."""
    n = d.length(33)
    return given(*(d.whole(-99, 100, n + 1, 2 * n + 2).double() / 8 for _ in "xy"))


def _steps(t: Any, x: Any, y: Any) -> List[Any]:
    """The next number towards another one."""
    bits = x.float().view(t.int32).long()
    away = (y.abs() > x.abs()) & (x * y >= 0) | (x == 0)
    found = t.where(away, bits + 1, bits - 1).int().view(t.float32).double()
    least = 2.0**-149 * ((y > 0).double() - (y < 0).double())
    return [t.where(x == y, x, t.where(x == 0, least, found))]


def _each(t: Any, x: Any, y: Any) -> List[Any]:
    n = x.shape[1] // 2
    both = t.complex(x[:, :n].contiguous(), x[:, n:].contiguous())
    low, high = t._aminmax(x)
    return [
        *(t.nextafter(x, y), t.clamp_max(x, 2.5), t.clamp_max(x, y), t.clamp_min(x, y)),
        *(t.view_as_real(t.conj_physical(both)), t._stack([x, y], 1), t.range(0, n).to(x)),
        *(t.tensor([both.is_set_to(both), x.is_set_to(y)]), low, high, *t._aminmax(x, 1)),
        *(t.ops.aten._add_relu(x, y, alpha=2), t._compute_linear_combination(x, y[:2, : len(x)])),
    ]


def _each_exact(t: Any, x: Any, y: Any) -> List[Any]:
    n = x.shape[1] // 2
    cut = 2.5 + 0 * x
    total = x + 2 * y
    rows = y[:2, : len(x)]
    return [
        *(*_steps(t, x, y), t.where(x < cut, x, cut), t.where(x < y, x, y), t.where(x > y, x, y)),
        *(t.stack([x[:, :n], -x[:, n:]], 2), t.cat([x, y], 1).reshape(len(x), 2, -1)),
        *(t.arange(n + 1).double(), t.tensor([True, False])),
        *(by.least(t, x.reshape(-1), 0), by.greatest(t, x.reshape(-1), 0)),
        *(by.least(t, x, 1), by.greatest(t, x, 1)),
        *(t.where(total > 0, total, 0 * x), by.product(t, rows, x)),
    ]


def _shifts(d: Draw) -> Given:
    shape = d.shape(d.choice((1, 2)))
    return given(d.whole(-9, 100, *shape), d.whole(0, 9, *shape))


def _shifted(t: Any, x: Any, s: Any) -> List[Any]:
    left, right = x.clone(), x.clone()
    left <<= s
    right >>= s
    found = (t.bitwise_left_shift(x, s), t.bitwise_right_shift(x, s), t.bitwise_left_shift(x, 2))
    return [left, right, *found, t.bitwise_right_shift(x, 2)]


def _shifted_exact(t: Any, x: Any, s: Any) -> List[Any]:
    up, down = x * 2**s, t.div(x, 2**s, rounding_mode="floor")
    return [up, down, up, down, 4 * x, t.div(x, 4, rounding_mode="floor")]


def _slopes(d: Draw) -> Given:
    """Halves to be multiplied by gates, and in which direction they move."""
    shape = [d.length(33), 2 * d.length(33)]
    return given(*(d.normal(*shape) for _ in "xe"), d.normal(shape[0], shape[1] // 2))


def _gated(t: Any, x: Any, e: Any, g: Any) -> Any:
    value = t.nn.functional.glu(x, 1)
    jvp = t.ops.aten.glu_jvp(value, x, e, 1)
    back = t.ops.aten.glu_backward(g, x, 1)
    return jvp, t.ops.aten.glu_backward_jvp(back, g, x, 0 * g, e, 1)


def _gated_exact(t: Any, x: Any, e: Any, g: Any) -> Any:
    (a, b), (da, db) = x.chunk(2, 1), e.chunk(2, 1)
    gate = 1 / (1 + (-b).exp())
    slope = gate * (1 - gate)
    bend = slope * (1 - 2 * gate)
    moved = t.cat([g * slope * db, g * da * slope + g * a * bend * db], 1)
    return da * gate + a * slope * db, moved


EACH: Tuple[Operator, ...] = (
    seldom("numbers seldom asked", _pair, _each, _each_exact, slack=2),
    seldom("shifts by name", _shifts, _shifted, _shifted_exact, dtypes=("int64",), kept=True),
    seldom("glu in its direction", _slopes, _gated, _gated_exact, dtypes=FULL, slack=4),
)

# --- numbers of few steps whose steps are learned ------------------------------------------------


def _learned(d: Draw) -> Given:
    """No zero below 0: torch 1.13 to 2.15 add a half to it and cut, so that -3 becomes -2."""
    shape = d.shape(2)
    whole = d.whole(LOW - 4, HIGH + 5, *shape).double() + d.whole(-1, 2, *shape).double() / 4
    step, zero = d.choice(STEPS), float(d.choice((0, 2, 3)))
    rows = d.torch.tensor([d.choice(STEPS) for _ in range(shape[0])], dtype=d.torch.float64)
    one = d.torch.tensor([[step], [zero]], dtype=d.torch.float64)
    return given(whole * step, *one, whole * rows.unsqueeze(1), rows, d.whole(-3, 3, shape[0]))


def _learning(t: Any, x: Any, step: Any, zero: Any, y: Any, rows: Any, zeros: Any) -> Any:
    one = t._fake_quantize_learnable_per_tensor_affine(x, step, zero, LOW, HIGH, 0.5)
    each = t._fake_quantize_learnable_per_channel_affine(y, rows, zeros.to(y), 0, LOW, HIGH, 2.0)
    fixed = (step.detach().reshape(1), zero.detach().reshape(1).int())
    return one, each, t.fake_quantize_per_tensor_affine(x, *fixed, LOW, HIGH)


def _stepped(t: Any, x: Any, step: Any, zero: Any, factor: float) -> Any:
    """Rounding has the slope 1, the ends have none; steps and zeros learn by `factor` as much."""
    step = step.detach() + factor * (step - step.detach())
    zero = zero.detach().round() + factor * (zero - zero.detach())
    at = x / step
    place = at.detach().round() + (at - at.detach()) + zero
    within = (place >= LOW) & (place <= HIGH)
    return (t.where(within, place, place.detach().clamp(LOW, HIGH)) - zero) * step


def _learning_exact(t: Any, x: Any, step: Any, zero: Any, y: Any, rows: Any, zeros: Any) -> Any:
    each = _stepped(t, y, rows.unsqueeze(1), zeros.double().unsqueeze(1), 2.0)
    return _stepped(t, x, step, zero, 0.5), each, _stepped(t, x, step.detach(), zero.detach(), 1.0)


def _observed(d: Draw) -> Given:
    """Whole numbers between -128 and 127, both of which there are: a step is 1."""
    x = d.whole(-128, 128, d.length(65), 2 * d.length(65)).double()
    x[0, 0], x[-1, -1] = -128, 127
    return given(x, step=d.choice(STEPS))


def _watched(t: Any, x: Any, step: float) -> Any:
    x = x.contiguous() * step
    seen = [t.tensor([float(n)], device=x.device) for n in ("inf", "-inf")]
    held = t.ones(1, device=x.device), t.zeros(1, dtype=t.int32, device=x.device)
    on = t.ones(1, dtype=t.int64, device=x.device)
    call = t.fused_moving_avg_obs_fake_quant
    found = call(x, on, on, *seen, *held, 0.01, -128, 127, -1, False, False)
    return found, *seen, held[0].clone(), held[1].clone()


def _watched_exact(t: Any, x: Any, step: float) -> Any:
    one = t.ones(1, dtype=x.dtype)
    return x * step, -128 * step * one, 127 * step * one, step * one, t.zeros(1)


def _bytes(t: Any, x: Any, step: float) -> Any:
    rows = t.full((len(x),), step, device=x.device, dtype=t.float64)
    held = x.contiguous().to(t.int8)
    one = t._make_per_tensor_quantized_tensor(held, step, 3)
    each = t._make_per_channel_quantized_tensor(held, rows, (0 * rows).long(), 0)
    found = t.quantize_per_tensor_dynamic(x.contiguous() * step, t.qint8, False)
    return one.dequantize(), each.dequantize(), found.dequantize()


STEPPED: Tuple[Operator, ...] = (
    seldom("fake quantize learned", _learned, _learning, _learning_exact, learns=True, slack=2),
    seldom("fake quantize observed", _observed, _watched, _watched_exact, slack=2),
    seldom(
        "held as bytes",
        _observed,
        _bytes,
        lambda t, x, step: ((x - 3) * step, x * step, x * step),
        slack=2,
    ),
)

# --- pieces of lines, and places -----------------------------------------------------------------

KINDS = ("sum", "mean", "max", "min", "prod")


def _segments(d: Draw) -> Given:
    lengths = d.whole(1, 9, d.choice((1, 3, 17)))
    count = int(lengths.sum())
    x = d.apart(count, d.choice((1, 3, 8))) / count + 0.3
    return given(x, lengths, kind=d.choice(KINDS))


def _by_segment(t: Any, x: Any, lengths: Any, kind: str) -> Any:
    return t.segment_reduce(x.contiguous(), kind, lengths=lengths, axis=0, unsafe=True)


def _by_segment_exact(t: Any, x: Any, lengths: Any, kind: str) -> Any:
    joins = {"max": by.greatest, "min": by.least, "prod": by.multiplied, "mean": by.mean}
    join = joins.get(kind, by.added)
    return t.stack([join(t, part, 0) for part in x.split(lengths.tolist())])


def _doubled(d: Draw) -> Given:
    """Lines of which neighbours are alike, and flags."""
    count = d.choice((1, 5, 33))
    words = d.whole(0, 3, count, d.choice((1, 3)))
    times = d.whole(1, 4, count)
    return given(words.repeat_interleave(times, 0).double(), d.flags(d.length(257)))


def _once(t: Any, x: Any, flags: Any) -> Any:
    lines, back, times = t.ops.aten.unique_dim_consecutive(x, 0, True, True)
    words, places = t._unique(x, True, True)
    return lines, back, times, words, words[places]


def _once_exact(t: Any, x: Any, flags: Any) -> Any:
    new = [True, *((one != other).any().item() for one, other in zip(x[1:], x[:-1]))]
    first = [place for place, begins in enumerate(new) if begins]
    ends = [*first[1:], len(new)]
    back = t.tensor([sum(new[: place + 1]) - 1 for place in range(len(new))])
    times = t.tensor([end - begin for begin, end in zip(first, ends)])
    words = t.tensor(sorted(set(x.reshape(-1).tolist())), dtype=x.dtype)
    return x[first], back, times, words, x


def _found(t: Any, x: Any, flags: Any) -> Any:
    count = flags.shape[0]
    return t.nonzero_static(flags, size=count, fill_value=-5), t.nonzero_static(flags, size=1)


def _found_exact(t: Any, x: Any, flags: Any) -> Any:
    places = [place for place, flag in enumerate(flags.tolist()) if flag]
    full = t.tensor([*places, *[-5] * (len(flags) - len(places))])
    return full.unsqueeze(1), t.tensor([[places[0] if places else -1]])


def _cells(d: Draw) -> Given:
    """Lines of numbers on both sides of zero, in two dimensions, and weights."""
    count = d.choice((1, 33, 257))
    return given(d.whole(-8, 8, count, 2).double() / 2 + 0.25, d.whole(1, 5, count).double())


def _counted(t: Any, x: Any, w: Any) -> Any:
    ends = [t.arange(-4.0, 4.5, 2, dtype=x.dtype), t.arange(-4.0, 5, 4, dtype=x.dtype)]
    reach = [-4.0, 4.0, -4.0, 4.0]
    given_ends, _ = t.histogramdd(x, ends, weight=w)
    by_count, edges = t.histogramdd(x, [4, 2], range=reach)
    return given_ends, by_count, *edges


def _counted_exact(t: Any, x: Any, w: Any) -> Any:
    found = []
    for times in (w, 0 * w + 1):
        table = t.zeros(4, 2, dtype=x.dtype)
        for (a, b), time in zip(x.tolist(), times.tolist()):
            table[int((a + 4) // 2), int((b + 4) // 4)] += time
        found.append(table)
    return *found, t.tensor([-4.0, -2, 0, 2, 4]).double(), t.tensor([-4.0, 0, 4]).double()


PLACES: Tuple[Operator, ...] = (
    seldom(
        "segments of lines",
        _segments,
        _by_segment,
        _by_segment_exact,
        dtypes=FULL,
        learns=True,
        slack=8,
    ),
    seldom("neighbours once", _doubled, _once, _once_exact, dtypes=("float32", "int64"), kept=True),
    seldom("so many places", _doubled, _found, _found_exact, kept=True),
    seldom("cells of two lines", _cells, _counted, _counted_exact, dtypes=FULL, kept=True),
)

# --- other numbers -------------------------------------------------------------------------------


def _complex_lines(d: Draw) -> Given:
    n, m = d.choice((3, 17, 33)), d.choice((1, 5, 16))
    line, k = d.length(4097), d.choice((2, 8))
    parts = [d.normal(line) for _ in "abce"]
    return given(*parts, d.normal(m), d.normal(n, k), d.normal(k, m))


def _mixed(t: Any, a: Any, b: Any, c: Any, e: Any, bias: Any, x: Any, y: Any) -> Any:
    found = t.vdot(t.complex(a, b), t.complex(c, e))
    return t.vdot(a, c), t.view_as_real(found), t._addmm_activation(bias, x, y, beta=2, alpha=3)


def _mixed_exact(t: Any, a: Any, b: Any, c: Any, e: Any, bias: Any, x: Any, y: Any) -> Any:
    real, other = by.added(t, a * c + b * e, 0), by.added(t, a * e - b * c, 0)
    total = 2 * bias + 3 * by.product(t, x, y)
    return by.added(t, a * c, 0), t.stack([real, other]), t.where(total > 0, total, 0 * total)


DOTS = seldom(
    "conjugates and activations",
    _complex_lines,
    _mixed,
    _mixed_exact,
    arithmetic="product",
    slack=4,
    serial=True,
)


def _shapes_of_chance(d: Draw) -> Given:
    shape = d.shape(d.choice((1, 2)))
    a, b, x = d.uniform(0.5, 4, *shape), d.uniform(0.5, 4, *shape), d.uniform(0.2, 0.8, *shape)
    return given(a, b, x, 4 * x)


GAMMA = seldom(
    "slopes of chance",
    _shapes_of_chance,
    lambda t, a, b, x, y: (t._standard_gamma_grad(a, y), t._dirichlet_grad(x, a, a + b)),
    None,
    dtypes=FULL,
    slack=512,
    split=True,
)
"""By its own in float64: both are approximations, good to some 0.05 %."""
