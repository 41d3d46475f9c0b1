"""Fourier transforms with each of their options alone: lengths cut and filled, axes, factors."""

from __future__ import annotations

from math import pi, prod
from typing import Any, List, Sequence, Tuple

from .drawing import Draw
from .releases import STRIDES_OF_NOTHING, release
from .rows_spectral import SCALES
from .single_options import Made, by_single_options
from .table import FULL, Operator


def _apart(t: Any, found: Sequence[Any]) -> List[Any]:
    return [t.stack([x.real, x.imag], -1) if x.is_complex() else x for x in found]


# --- by definition -------------------------------------------------------------------------------


def _fitting(t: Any, x: Any, n: int, dim: int) -> Any:
    """Cut to a length, or filled with zeros."""
    x = x.movedim(dim, -1)[..., :n]
    if x.shape[-1] < n:
        x = t.cat([x, t.zeros(*x.shape[:-1], n - x.shape[-1], dtype=x.dtype)], -1)
    return x.movedim(-1, dim)


def _along(t: Any, x: Any, n: int, dim: int, back: bool) -> Any:
    """The transform of complex numbers along one axis, without a factor."""
    count = t.arange(n)
    angle = (2 if back else -2) * pi / n * ((count.unsqueeze(1) * count) % n).double()
    waves = t.complex(angle.cos(), angle.sin())
    return (_fitting(t, x, n, dim).movedim(dim, -1) @ waves).movedim(-1, dim)


def _factor(norm: Any, n: int, back: bool) -> float:
    scale = SCALES[norm or "backward"](n)
    return 1 / (n * scale) if back else scale


def _all_along(
    t: Any, x: Any, lengths: Sequence[int], dims: Sequence[int], norm: Any, back: bool
) -> Any:
    for n, dim in zip(lengths, dims):
        x = _along(t, x, n, dim, back)
    return x * _factor(norm, prod(lengths), back)


def _mirrored(t: Any, x: Any, n: int, dim: int) -> Any:
    """All bins of a real signal of `n` numbers from its first half."""
    x = _fitting(t, x, n // 2 + 1, dim).movedim(dim, -1)
    ends = t.ones(n // 2 + 1, dtype=t.float64)
    ends[0] = 0
    if n % 2 == 0:
        ends[-1] = 0
    x = t.complex(x.real, x.imag * ends)
    rest = x[..., t.arange(n - n // 2 - 1, 0, -1)]
    return t.cat([x, rest.conj().resolve_conj()], -1).movedim(-1, dim)


# --- one axis ------------------------------------------------------------------------------------

LENGTHS = {"plain": (4, 15), "tiles": (2, 64), "prime": (3, 31), "one": (3, 1), "two": (1, 2)}


def _line(d: Draw, length: str, n: str, dim: str, **of: Any) -> Made:
    """Two axes on both sides where the axis is neither the first nor the last."""
    lines, count = LENGTHS[length]
    shape = {"first": (count, lines), "inner": (lines, count, 2)}.get(dim, (lines, count))
    place = {"last": -1, "first": 0, "inner": 1, "first from the end": -2}[dim]
    if dim == "first from the end":
        shape = (count, lines)
    used = {"as it is": None, "shorter": max(1, count - 3), "longer": count + 4, "one": 1}[n]
    a = d.normal(*shape)
    return Made([a, d.normal(*shape)], {"n": used, "dim": place, "count": count, **of})


def _repeated(t: Any, x: Any) -> Any:
    """The first number of each line in all its places, in memory once."""
    same = x.narrow(-1, 0, 1).expand_as(x)
    return same if release(t) >= STRIDES_OF_NOTHING else same.contiguous()


def _one_axis(t: Any, a: Any, b: Any, n: Any, dim: int, count: int, norm: Any, held: str) -> Any:
    if held == "expanded":
        a, b = _repeated(t, a), _repeated(t, b)
    x = t.complex(a, b) if held != "negative" else -t.complex(a, b).conj()
    each = {"n": n, "dim": dim, "norm": norm}
    found = [t.fft.fft(x, **each), t.fft.ifft(x, **each), t.fft.rfft(a, **each)]
    found += [t.fft.ihfft(a, **each), t.fft.fft(a, **each)]
    if n != 1 and count > 1:
        found += [t.fft.irfft(x, **each), t.fft.hfft(x, **each)]
    return _apart(t, found)


def _one_axis_exact(
    t: Any, a: Any, b: Any, n: Any, dim: int, count: int, norm: Any, held: str
) -> List[Any]:
    if held == "expanded":
        a, b = _repeated(t, a), _repeated(t, b)
    x = t.complex(a, b) if held != "negative" else t.complex(-a, b)
    m = n or count
    real = t.complex(a, 0 * a)
    there, back = (_all_along(t, real, [m], [dim], norm, way) for way in (False, True))
    found = [_all_along(t, x, [m], [dim], norm, way) for way in (False, True)]
    found += [each.narrow(dim, 0, m // 2 + 1) for each in (there, back)]
    if n != 1 and count > 1:
        long = n or 2 * (count - 1)
        bins = _mirrored(t, x, long, dim)
        turned = _mirrored(t, x.conj().resolve_conj(), long, dim)
        last = _all_along(t, bins, [long], [dim], norm, True)
        both = _all_along(t, turned, [long], [dim], norm, True)
        scale = _factor(norm, long, False) / _factor(norm, long, True)
        return _apart(t, [*found, there, last.real, both.real * scale])
    return _apart(t, [*found, there])


LINES = by_single_options(
    "fourier transforms of lines",
    {
        "length": tuple(LENGTHS),
        "n": ("as it is", "shorter", "longer", "one"),
        "dim": ("last", "first", "inner", "first from the end"),
        "norm": (None, "ortho", "forward", "backward"),
        "held": ("own", "expanded", "negative"),
    },
    _line,
    _one_axis,
    _one_axis_exact,
    dtypes=FULL,
    slack=64,
)

# --- several axes --------------------------------------------------------------------------------

AXES = ((-2, -1), (0, 1), (1, 0), (-1, 0), (0, 2), (2, -2))
SHAPES = ((2, 5, 6), (3, 4, 7), (8, 2, 9), (2, 2, 2))


def _box(d: Draw, shape: Any, s: str, dim: Any, **of: Any) -> Made:
    lengths = [shape[each] for each in dim]
    used = {
        "as it is": None,
        "shorter": [max(1, n - 1 - i) for i, n in enumerate(lengths)],
        "longer": [n + 2 + i for i, n in enumerate(lengths)],
        "one of each": [max(1, lengths[0] - 1), lengths[1] + 3],
    }[s]
    return Made([d.normal(*shape), d.normal(*shape)], {"s": used, "dim": dim, **of})


def _several(t: Any, a: Any, b: Any, s: Any, dim: Any, norm: Any) -> List[Any]:
    x = t.complex(a, b)
    each = {"s": s, "dim": dim, "norm": norm}
    call = t.fft
    found = [call.fft2(x, **each), call.ifft2(x, **each), call.rfft2(a, **each)]
    found += [call.fftn(x, **each), call.ifftn(x, **each), call.rfftn(a, **each)]
    if (s or [x.shape[i] for i in dim])[-1] > 1:
        found += [call.irfft2(x, **each), call.irfftn(x, **each)]
    return _apart(t, found)


def _several_exact(t: Any, a: Any, b: Any, s: Any, dim: Any, norm: Any) -> List[Any]:
    x, real = t.complex(a, b), t.complex(a, 0 * a)
    lengths = s or [x.shape[i] for i in dim]
    there, back = (_all_along(t, x, lengths, dim, norm, way) for way in (False, True))
    half = _all_along(t, real, lengths, dim, norm, False).narrow(dim[-1], 0, lengths[-1] // 2 + 1)
    found = [there, back, half, there, back, half]
    if lengths[-1] > 1:
        long = [*lengths[:-1], s[-1] if s else 2 * (lengths[-1] - 1)]
        first = _along(t, x, long[0], dim[0], True)
        bins = _mirrored(t, first, long[1], dim[1])
        last = _along(t, bins, long[1], dim[1], True).real * _factor(norm, prod(long), True)
        found += [last, last]
    return _apart(t, found)


SEVERAL = by_single_options(
    "fourier transforms of several axes",
    {
        "shape": SHAPES,
        "s": ("as it is", "shorter", "longer", "one of each"),
        "dim": AXES,
        "norm": (None, "ortho", "forward", "backward"),
    },
    _box,
    _several,
    _several_exact,
    dtypes=FULL,
    slack=64,
    learns=False,
)


def _moved(d: Draw, shape: Any, dim: Any) -> Made:
    return Made([d.normal(*shape)], {"dim": dim})


def _shifted(t: Any, x: Any, dim: Any) -> List[Any]:
    return [t.fft.fftshift(x, dim), t.fft.ifftshift(x, dim)]


def _shifted_exact(t: Any, x: Any, dim: Any) -> List[Any]:
    dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    found = []
    for up in (0, 1):
        y = x
        for each in dims:
            n = x.shape[each]
            by = (n + up) // 2
            places = (t.arange(n) - by) % max(n, 1)
            y = y.movedim(each, 0)[places].movedim(0, each)
        found.append(y)
    return found


SHIFTED = by_single_options(
    "middles moved",
    {
        "shape": ((4, 5, 3), (1, 2, 7), (3, 0, 2), (33, 6, 1)),
        "dim": (None, -1, 0, (0, 1), (2, 0), (-2,), (1, -1)),
    },
    _moved,
    _shifted,
    _shifted_exact,
    kept=True,
    dtypes=("float32", "float64", "bfloat16"),
)

# --- short-time transforms -----------------------------------------------------------------------

FRAMES = {"plain": (16, 4, 16), "shorter window": (16, 4, 10), "odd": (15, 5, 15), "far": (8, 8, 8)}
"""Numbers of a frame, from one frame to the next, of a window."""


def _signal(d: Draw, frames: str, lines: str, **of: Any) -> Made:
    n_fft, hop, wide = FRAMES[frames]
    shape = (45,) if lines == "one" else (3, 45)
    window = d.uniform(0.5, 1.5, wide)
    return Made([d.normal(*shape), window], {"n_fft": n_fft, "hop": hop, "wide": wide, **of})


def _short(
    t: Any, x: Any, window: Any, n_fft: int, hop: int, wide: int, windowed: bool, **of: Any
) -> List[Any]:
    of = {**of, "window": window.detach() if windowed else None, "win_length": wide}
    length = of.pop("length")
    mode = of.pop("pad_mode")
    found = t.stft(x, n_fft, hop, pad_mode=mode, return_complex=True, **of)
    if not (of["center"] or (windowed and n_fft == wide)):
        return [t.view_as_real(found)]
    if n_fft != wide and not of["center"]:
        return [t.view_as_real(found)]
    back = t.istft(found, n_fft, hop, length=length, **of)
    return [t.view_as_real(found), back]


def _short_exact(
    t: Any, x: Any, window: Any, n_fft: int, hop: int, wide: int, windowed: bool, **of: Any
) -> List[Any]:
    """Frames of the signal, each by its definition; what comes back by the float64 kernel."""
    left = (n_fft - wide) // 2
    shape = t.zeros(n_fft, dtype=t.float64)
    shape[left : left + wide] = window.detach() if windowed else 1.0
    line = x.reshape(-1, x.shape[-1])
    if of["center"]:
        mode = of["pad_mode"]
        line = t.nn.functional.pad(line.unsqueeze(1), [n_fft // 2] * 2, mode).squeeze(1)
    frames = line.unfold(-1, n_fft, hop) * shape
    full = _along(t, t.complex(frames, 0 * frames), n_fft, -1, False)
    full = full * (n_fft**-0.5 if of["normalized"] else 1.0)
    bins = full[..., : n_fft // 2 + 1] if of["onesided"] else full
    spectrum = t.view_as_real(bins.transpose(-1, -2).reshape(*x.shape[:-1], bins.shape[-1], -1))
    found = _short(t, x, window, n_fft, hop, wide, windowed, **of)
    return [spectrum, *found[1:]]


SHORT = by_single_options(
    "short-time transforms",
    {
        "frames": tuple(FRAMES),
        "lines": ("one", "some"),
        "windowed": (True, False),
        "center": (True, False),
        "normalized": (False, True),
        "onesided": (True, False),
        "pad_mode": ("reflect", "constant", "replicate", "circular"),
        "length": (None, 40, 44),
    },
    _signal,
    _short,
    _short_exact,
    dtypes=FULL,
    slack=64,
    learns=False,
)

SINGLE_SPECTRAL: Tuple[Operator, ...] = (LINES, SEVERAL, SHIFTED, SHORT)
