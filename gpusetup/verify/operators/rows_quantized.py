"""Numbers rounded to a few whole steps, as quantized models hold them.

Steps are powers of two, and no number lies near the middle between two of them: so every answer is
exact.
"""

from __future__ import annotations

from typing import Any, Tuple

from .drawing import Draw, Given, given
from .table import Operator

LOW, HIGH = -16, 15
STEPS = (0.125, 0.25, 0.5, 1.0, 2.0)


def _tensor(d: Draw) -> Given:
    """Numbers inside and outside of what sixteen steps on either side reach."""
    shape = d.shape(2)
    whole = d.whole(LOW - 4, HIGH + 5, *shape).double()
    between = d.whole(-1, 2, *shape).double() / 4
    step, zero = d.choice(STEPS), d.choice((0, -3, 2))
    return given((whole + between) * step, step=step, zero=zero)


def _channels(d: Draw) -> Given:
    made = _tensor(d)
    x = made.tensors[0] / made.options["step"]
    axis = d.choice((0, 1))
    count = x.shape[axis]
    steps = d.torch.tensor([d.choice(STEPS) for _ in range(count)], dtype=d.torch.float64)
    shape = [count if i == axis else 1 for i in range(2)]
    return given(x * steps.reshape(shape), steps, d.whole(-3, 3, count), axis=axis)


def _along(x: Any, line: Any, axis: int) -> Any:
    return line.reshape([-1 if i == axis else 1 for i in range(x.dim())])


def _places(x: Any, step: Any, zero: Any) -> Any:
    return (x.detach() / step).round() + zero


def _rounded(t: Any, x: Any, step: Any, zero: Any) -> Any:
    """Rounded to the nearest step that there is; the gradient passes where x was in their reach."""
    places = _places(x, step, zero)
    within = (places >= LOW) & (places <= HIGH)
    found = (places.clamp(LOW, HIGH) - zero) * step
    return found + t.where(within, x - x.detach(), 0 * x.detach())


def _channel_run(t: Any, x: Any, steps: Any, zeros: Any, axis: int) -> Any:
    call = t.fake_quantize_per_channel_affine
    return call(x, steps.detach().float(), zeros.int(), axis, LOW, HIGH)


def _held(t: Any, x: Any, step: float, zero: int) -> Any:
    """As bytes, and back."""
    held = t.quantize_per_tensor(x.contiguous(), step, zero, t.qint8)
    return held.int_repr(), held.dequantize()


def _held_exact(t: Any, x: Any, step: float, zero: int) -> Any:
    places = _places(x, step, zero).clamp(-128, 127)
    return places.to(t.int8), (places - zero) * step


def _lines(t: Any, x: Any, steps: Any, zeros: Any, axis: int) -> Any:
    held = t.quantize_per_channel(x.contiguous(), steps.double(), zeros, axis, t.qint8)
    return held.int_repr(), held.dequantize()


def _lines_exact(t: Any, x: Any, steps: Any, zeros: Any, axis: int) -> Any:
    steps, zeros = _along(x, steps, axis), _along(x, zeros, axis)
    places = _places(x, steps, zeros).clamp(-128, 127)
    return places.to(t.int8), (places - zeros) * steps


QUANTIZED: Tuple[Operator, ...] = (
    Operator(
        "fake quantize",
        _tensor,
        lambda t, x, step, zero: t.fake_quantize_per_tensor_affine(x, step, zero, LOW, HIGH),
        _rounded,
        kept=True,
        weight=2,
    ),
    Operator(
        "fake quantize by channel",
        _channels,
        _channel_run,
        lambda t, x, steps, zeros, axis: _rounded(
            t, x, _along(x, steps.detach(), axis), _along(x, zeros, axis)
        ),
        dtypes=("float32",),
        kept=True,
        weight=2,
    ),
    Operator(
        "quantized and back",
        _tensor,
        _held,
        _held_exact,
        dtypes=("float32",),
        learns=False,
        kept=True,
    ),
    Operator(
        "quantized by channel and back",
        _channels,
        _lines,
        _lines_exact,
        dtypes=("float32",),
        learns=False,
        kept=True,
    ),
)
