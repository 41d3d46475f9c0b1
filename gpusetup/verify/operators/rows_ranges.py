"""Every shape, quadrant and range: wide factors, negative and far numbers, promoted formats."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

from .drawing import Draw, Given, given
from .table import FEW, Operator

# --- factors of wide, tall and square matrices ---------------------------------------------------


def _tall(d: Draw) -> Given:
    """Taller than wide, and no line of them nearly made of others; as many right sides."""
    n, count = d.choice((1, 2)), d.choice((4, 5, 8, 17))
    rows = count + d.choice((1, 3, 4, 16))
    x = d.normal(n, rows, count) / 4
    x[:, range(count), range(count)] += d.choice((3.0, -3.0))
    return given(x, d.normal(n, rows, 2))


def _each_shape(x: Any) -> Tuple[Any, Any, Any]:
    """Tall, wide, square."""
    return x, x.transpose(-1, -2), x[:, : x.shape[2]]


def _turned(x: Any) -> Any:
    return x.transpose(-1, -2)


def _put_together(t: Any, x: Any, y: Any) -> List[Any]:
    found = []
    for a in _each_shape(x):
        least, b = min(a.shape[1:]), y[:, : a.shape[1]]
        for whole in (False, True):
            u, s, v = t.linalg.svd(a, full_matrices=whole)
            found += [u[..., :least] * s.unsqueeze(-2) @ v[..., :least, :]]
            found += [_turned(u) @ u, v @ _turned(v), (s[:, 1:] <= s[:, :-1]).all(), (s >= 0).all()]
            q, r = t.linalg.qr(a, "complete" if whole else "reduced")
            found += [q @ r, _turned(q) @ q, r.tril(-1)]
        found += [t.linalg.pinv(a), t.linalg.lstsq(a, b)[0]]
    return found


def _put_together_exact(t: Any, x: Any, y: Any) -> List[Any]:
    found: List[Any] = []
    for a in _each_shape(x):
        rows, columns = a.shape[1:]
        least, b, yes = min(rows, columns), y[:, :rows], t.tensor(True)
        for whole in (False, True):
            high, wide = (rows, columns) if whole else (least, least)
            lines = [_identity(t, a, each) for each in (high, wide)]
            found += [1 * a, *lines, yes, yes]
            found += [1 * a, lines[0], t.zeros(len(a), high, columns, dtype=a.dtype)]
        other = _inverse(t, a)
        found += [other, other @ b]
    return found


def _identity(t: Any, a: Any, count: int) -> Any:
    return t.eye(count, dtype=a.dtype).expand(len(a), count, count).clone()


def _inverse(t: Any, a: Any) -> Any:
    """What Moore and Penrose ask for, of a matrix whose lesser lines are independent."""
    if a.shape[1] >= a.shape[2]:
        return t.linalg.solve(_turned(a) @ a, _turned(a))
    return _turned(t.linalg.solve(a @ _turned(a), a))


SHAPES = Operator(
    "factors of every shape",
    _tall,
    _put_together,
    _put_together_exact,
    dtypes=("float32",),
    learns=False,
    slack=512,
    arithmetic="product",
    steady=False,
    sizes=FEW,
)

# --- complex numbers in every quadrant -----------------------------------------------------------


def _every_quadrant(d: Draw) -> Given:
    """Two real and two imaginary parts of either sign; about each fifth number is on an axis."""
    shape = d.shape(d.choice((1, 2, 3)))
    parts = [d.uniform(0.3, 1.2, *shape) * (1 - 2 * d.flags(*shape).double()) for _ in "abce"]
    axis = d.whole(0, 10, *shape)
    parts[0][axis == 0] = 0.0
    parts[1][axis == 1] = 0.0
    return given(*parts)


def _of_complex(t: Any, a: Any, b: Any, c: Any, e: Any) -> List[Any]:
    x, y = t.complex(a, b), t.complex(c, e)
    found = (
        *(x.sqrt(), x.rsqrt(), x.log(), x**1.5, x**y, x.reciprocal(), y / x, x.square()),
        *(x.tanh(), x.exp(), x.sin(), x.cos(), x.sinh(), x.cosh(), x.sgn(), x.conj() * y),
    )
    return [x.angle(), x.abs(), *(t.view_as_real(each.resolve_conj()) for each in found)]


def _of_complex_exact(t: Any, a: Any, b: Any, c: Any, e: Any) -> List[Any]:
    far, angle = (a * a + b * b).sqrt(), t.atan2(b, a)
    log, square = far.log(), far * far

    def at(length: Any, turn: Any) -> Tuple[Any, Any]:
        return length * turn.cos(), length * turn.sin()

    def by_halves(x: Any) -> Tuple[Any, Any]:
        return (x.exp() + (-x).exp()) / 2, (x.exp() - (-x).exp()) / 2

    (wide, tall), (twice, doubled) = by_halves(a), by_halves(2 * a)
    (narrow, low), below = by_halves(b), twice + (2 * b).cos()
    found = (
        *(at(far.sqrt(), angle / 2), at(1 / far.sqrt(), -angle / 2), (log, angle)),
        *(at(far * far.sqrt(), 1.5 * angle), at((c * log - e * angle).exp(), e * log + c * angle)),
        *((a / square, -b / square), ((a * c + b * e) / square, (a * e - b * c) / square)),
        *((a * a - b * b, 2 * a * b), (doubled / below, (2 * b).sin() / below), at(a.exp(), b)),
        *((a.sin() * narrow, a.cos() * low), (a.cos() * narrow, -a.sin() * low)),
        *((tall * b.cos(), wide * b.sin()), (wide * b.cos(), tall * b.sin())),
        *((a / far, b / far), (a * c + b * e, a * e - b * c)),
    )
    return [angle, far, *(t.stack(each, -1) for each in found)]


QUADRANTS = Operator(
    "complex functions in every quadrant",
    _every_quadrant,
    _of_complex,
    _of_complex_exact,
    dtypes=("float32",),
    learns=False,
    slack=16,
    weight=2,
    sizes=FEW,
)

# --- far and tiny arguments ----------------------------------------------------------------------


def _far(bits: int, *powers: int) -> Callable[[Draw], Given]:
    """Whole numbers of `bits` bits and what they are multiplied by, so that the format holds their
    product: no rounding of an input widens a limit. The first tensor tells the format."""

    def make(d: Draw) -> Given:
        shape, most = d.shape(d.choice((1, 2))), 2**bits
        other = d.whole(1, min(most, 2**11), *shape) * (1 - 2 * d.whole(0, 2, *shape))
        return given(d.normal(1), d.whole(1 - most, most, *shape), other, power=d.choice(powers))

    return make


def _of_far(t: Any, like: Any, i: Any, j: Any, power: int) -> Any:
    x, y = (each.to(like.dtype) for each in (i, j))
    x = x * 2.0**power
    near, tiny = x.clamp(-8, 8), y * 2.0**-20
    return (
        *(x.sin(), x.cos(), t.atan2(x, y), t.atan2(y, x), x.atan(), x.abs().log1p(), x.tanh()),
        *(t.fmod(x, y), t.remainder(x, y), t.floor_divide(x, y), x.sign(), x.abs().sqrt()),
        *(near.exp(), near.expm1(), (-x.abs()).expm1(), (-x.abs()).clamp(-9, 0).exp()),
        *(tiny.sin(), tiny.expm1(), tiny.log1p(), tiny.tanh()),
    )


def _of_far_exact(t: Any, like: Any, i: Any, j: Any, power: int) -> Any:
    x, y = i.double() * 2.0**power, j.double()
    near, tiny, far = x.clamp(-8, 8), y * 2.0**-20, x.abs()
    quotient, cut = (x / y).floor(), (x / y).trunc()
    return (
        *(2 * (x / 2).sin() * (x / 2).cos(), 1 - 2 * (x / 2).sin() ** 2),
        *(t.atan2(x, y), t.atan2(y, x), t.atan2(x, 1 + 0 * x), (1 + far).log()),
        *(1 - 2 / (1 + (2 * x).exp()), x - y * cut, x - y * quotient, quotient),
        *((x > 0).double() - (x < 0).double(), far**0.5),
        *(near.exp(), 2 * (near / 2).sinh() * (near / 2).exp()),
        *((-far).exp() - 1, (-far).clamp(-9, 0).exp()),
        *(tiny - tiny**3 / 6, tiny + tiny**2 / 2 + tiny**3 / 6, tiny - tiny**2 / 2 + tiny**3 / 3),
        tiny - tiny**3 / 3,
    )


def _far_row(name: str, dtypes: Tuple[str, ...], make: Callable[[Draw], Given]) -> Operator:
    return Operator(
        name,
        make,
        _of_far,
        _of_far_exact,
        dtypes=dtypes,
        learns=False,
        slack=2,
        weight=2,
        sizes=FEW,
    )


ARGUMENTS = (
    _far_row("functions of far numbers", ("float32",), _far(24, 0, -3, -7)),
    _far_row("functions of far halves", ("bfloat16", "float16"), _far(7, 0, 3, 8)),
)

# --- whole numbers of either sign, and of their whole range --------------------------------------


def _all_bits(bits: int, least: int) -> Callable[[Draw], Given]:
    """The whole range, small numbers and both ends; divisors other than 0 and -1; shifts."""
    most = least + 2**bits - 1

    def make(d: Draw) -> Given:
        shape = d.shape(d.choice((1, 2, 3)))
        ends = d.torch.tensor([least, most, least + 1, most - 1, 0])[d.whole(0, 5, *shape)]
        kind = d.whole(0, 5, *shape)
        small = d.whole(max(-9, least), 10, *shape)
        x = d.torch.where(kind < 3, d.whole(least, most, *shape), small)
        x = d.torch.where(kind > 3, ends, x)
        y = d.torch.where(kind % 2 > 0, d.whole(least, most, *shape), small)
        y = y.masked_fill((y == 0) | (y == -1), 3)
        s = d.whole(0, bits - 1, *shape)
        tensors = (x, y, s) if bits == 64 else (x.double(), y.double(), s.double())
        return given(*tensors)

    return make


def _of_wholes(t: Any, x: Any, y: Any, s: Any) -> List[Any]:
    few = t.fmod(x, 7)
    means = few.double().mean(), t.mean(few, dtype=t.float64)
    kept = [
        *(x << s, x >> s, x >> 2, x << 1, x // y, x // 3, x % y, x % 7, t.fmod(x, y)),
        *(t.div(x, y, rounding_mode="trunc"), x.abs(), -x, ~x, x & y, x | y, x ^ y),
        *(x + y, x - y, x * y, x.clamp(2, 9), x.sign(), t.maximum(x, y), t.where(x < y, x, y)),
        *(x.sum(), x.sum(-1), x.cumsum(-1), x.amin(-1), x.max(), x.sort(-1)[0]),
        *(x.to(getattr(t, name)) for name in CAST),
        *((each * x.numel()).round() for each in means),
    ]
    return [x.bool(), x > y, x == y, x >= 2, x.float(), x.clamp(0, 99).half(), *_halved(t, kept)]


CAST = {"int8": (8, True), "uint8": (8, False), "int16": (16, True), "int32": (32, True)}


def _of_wholes_exact(bits: int, signed: bool) -> Callable[..., List[Any]]:
    def cut(x: Any) -> Any:
        return _wrapped(x, bits, signed)

    def exact(t: Any, x: Any, y: Any, s: Any) -> List[Any]:
        x, y, s = x.long(), y.long(), s.long()
        power = t.tensor([2**n for n in range(bits - 1)])[s]
        small, rest, three, seven = t.where(x < 2, 2 + 0 * x, x), t.fmod(x, y), 3 + 0 * x, 7 + 0 * x
        down, both = _floor(t, x, y), ~(~x | ~y)
        either = x - both + y
        kept = [
            *(cut(x * power), _floor(t, x, power), _floor(t, x, 4 + 0 * x), cut(2 * x)),
            *(down, _floor(t, x, three), x - y * down, x - 7 * _floor(t, x, seven), rest),
            *(t.div(x, y, rounding_mode="trunc"), cut(t.where(x < 0, -x, x)), cut(-x)),
            *(cut(-1 - x), both, either, either - both, cut(x + y), cut(x - y), cut(x * y)),
            *(t.where(small > 9, 9 + 0 * x, small), (x > 0).long() - (x < 0).long()),
            *(t.where(y > x, y, x), t.where(y < x, y, x), x.sum(), x.sum(-1), x.cumsum(-1)),
            *(x.amin(-1), x.max(), x.sort(-1)[0], *(_wrapped(x, *each) for each in CAST.values())),
            *[(x - 7 * t.div(x, 7, rounding_mode="trunc")).sum()] * 2,
        ]
        return [x != 0, y < x, ~(x != y), ~(x < 2), x, x.clamp(0, 99), *_halved(t, kept)]

    return exact


def _halved(t: Any, found: List[Any]) -> List[Any]:
    """The upper and the lower half of 64 bits, each of which float64 holds."""
    return [t.stack([x >> 32, x & 0xFFFFFFFF], -1) for x in (each.long() for each in found)]


def _wrapped(x: Any, bits: int, signed: bool) -> Any:
    """What is left of a whole number in so many bits."""
    half = 2 ** (bits - 1) if signed else 0
    return x if bits == 64 else (x + half).remainder(2**bits) - half


def _floor(t: Any, x: Any, y: Any) -> Any:
    """A quotient rounded down, by the one that is cut off."""
    rest = t.fmod(x, y)
    return t.div(x, y, rounding_mode="trunc") - ((rest != 0) & ((rest < 0) != (y < 0))).long()


def _whole_row(dtype: str, bits: int, signed: bool = True) -> Operator:
    return Operator(
        f"whole range of {dtype}",
        _all_bits(bits, -(2 ** (bits - 1)) if signed else 0),
        _of_wholes,
        _of_wholes_exact(bits, signed),
        dtypes=(dtype,),
        learns=False,
        kept=True,
        sizes=FEW,
    )


WHOLES = (*(_whole_row(name, *each) for name, each in CAST.items()), _whole_row("int64", 64))

# --- unlike formats together: the finer one first ------------------------------------------------


def _mixed(d: Draw) -> Given:
    """Numbers of the format, others that any half holds, and whole ones."""
    shape = d.shape(d.choice((1, 2, 3)))
    half = d.whole(1, 128, *shape).double() / 16
    return given(d.uniform(0.3, 9, *shape), half, d.whole(1, 128, *shape))


NEARLY = 1 + 2.0**-12
"""A half rounds it to 1."""


def _promoted(t: Any, x: Any, y: Any, i: Any) -> List[Any]:
    found: List[Any] = []
    for half in (y.to(t.bfloat16), y.to(t.float16)):
        other = t.float16 if half.dtype == t.bfloat16 else t.bfloat16
        found += [x * half, half * x, x + half, half - x, x / half, half / x, x * y.to(other)]
        found += [x.clone().mul_(half), x.clone().add_(half, alpha=2), t.maximum(x, half)]
        found += [t.where(i > 9, x, half), t.where(i > 9, half, x), t.cat([half, x])]
        found += [half * y.to(other), x.clone().copy_(half), t.atan2(half, x), x * half[..., :1]]
    found += [x * i, i / x, x * t.tensor(3), i * t.tensor(0.3), i / 3, i * 0.3]
    right = [t.tensor([each.dtype for each in found] == [x.dtype] * len(found))]
    half, single = y.to(t.bfloat16), t.tensor(NEARLY)
    below = [(y * NEARLY > half), (half == y * NEARLY), half < y * NEARLY]
    kinds = [half * i, half * single, i * half[:0].sum(), half + 1, (i.int() * t.tensor(3))]
    names = [t.bfloat16] * 2 + [t.bfloat16] * 2 + [t.int32]
    return [*found, *right, *below, t.tensor([each.dtype for each in kinds] == names)]


def _promoted_exact(t: Any, x: Any, y: Any, i: Any) -> List[Any]:
    whole, yes = i.double(), i > 0
    each = [
        *(x * y, x * y, x - -y, -(x - y), x * (1 / y), y * (1 / x), x * y, x * y, x + 2 * y),
        *(t.where(x > y, x, y), t.where(i > 9, x, y), t.where(i > 9, y, x), t.cat([y, x])),
        *(y * y, 1 * y, t.atan2(y, x), x * y[..., :1]),
    ]
    rest = [x * whole, whole / x, 3 * x, 0.3 * whole, whole * (1 / 3), 0.3 * whole]
    return [*each, *each, *rest, t.tensor(True), yes, ~yes, yes, t.tensor(True)]


PROMOTED = Operator(
    "formats promoted first",
    _mixed,
    _promoted,
    _promoted_exact,
    dtypes=("float32",),
    learns=False,
    slack=2,
    weight=2,
    sizes=FEW,
)

RANGES: Tuple[Operator, ...] = (QUADRANTS, *ARGUMENTS, *WHOLES, PROMOTED)
