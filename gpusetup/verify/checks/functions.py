"""Functions element by element, sums along an axis, softmax, layer norm: against float64."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

from ..judging.tolerance import (
    ROOM,
    SINGLE,
    Part,
    agree,
    holds,
    judged,
    numbers,
    same,
    source,
    summed,
)
from ..values import Outcome
from . import patterns, slopes

ELEMENTS = 2**20


class Function(NamedTuple):
    """A row of the table of functions: what is put in, and what an error is relative to."""

    name: str
    run: Callable[[Any, Any], Any]
    """(torch, numbers) -> results."""
    low: float
    high: float
    roundings: float = 16.0
    """The error allowed in units of roundoff: NVIDIA documents up to 4 (2 ulp) for these in float32
    (CUDA C++ Programming Guide, Mathematical Functions), CPU libraries up to 4; with room."""
    size: Callable[[Any, Any], Any] = lambda given, exact: exact.abs()
    """(given, exact) -> what the error is relative to."""


FUNCTIONS = (
    Function("exp", lambda t, x: t.exp(x), -80, 80),
    Function("log", lambda t, x: t.log(x), 1e-6, 1e6, size=lambda x, y: y.abs() + 2.0**-10),
    Function("sin", lambda t, x: t.sin(x), -50, 50, size=lambda x, y: y.abs() + 2.0**-10),
    Function("cos", lambda t, x: t.cos(x), -50, 50, size=lambda x, y: y.abs() + 2.0**-10),
    Function("tanh", lambda t, x: t.tanh(x), -10, 10),
    Function("sqrt", lambda t, x: t.sqrt(x), 0, 1e6, 4.0),
    Function("rsqrt", lambda t, x: t.rsqrt(x), 1e-6, 1e6),
    Function("reciprocal", lambda t, x: 1 / x, 0.01, 1e6, 4.0),
    Function("sigmoid", lambda t, x: t.sigmoid(x), -50, 50, 32.0),
    Function("erf", lambda t, x: t.erf(x), -4, 4),
    Function("square", lambda t, x: x * x + x, -100, 100, size=lambda x, y: x * x + x.abs()),
    Function("power", lambda t, x: x**2.5, 0.01, 100, 64.0),
    Function(
        "gelu", lambda t, x: t.nn.functional.gelu(x), -8, 8, 32.0, size=lambda x, y: x.abs() + 1e-6
    ),
    Function("silu", lambda t, x: t.nn.functional.silu(x), -20, 20, 32.0),
)


def elementwise(device: str) -> Outcome:
    """A million numbers through each function that networks are made of; their slopes; then numbers
    of every exponent and sign, and every two bytes."""
    import torch

    applied = [_applied(torch, device, row) for row in FUNCTIONS]
    sloped = slopes.parts(torch, device)
    return judged([*applied, *sloped, *patterns.parts(torch, device)], "float64")


def _applied(torch: Any, device: str, row: Function) -> Part:
    spread = torch.rand(ELEMENTS, generator=source(torch, len(row.name)))
    given = spread * (row.high - row.low) + row.low
    exact = row.run(torch, given.double())
    allowed = row.roundings * SINGLE * row.size(given.double(), exact) + 2.0**-126
    return agree(row.name, row.run(torch, given.to(device)), exact, allowed)


ROWS, COLUMNS = 257, 4097
"""Odd on purpose: no block of any size divides them."""


def reductions(device: str) -> Outcome:
    """Sums, means, variances, norms, extremes along each axis and over everything."""
    import torch

    given = numbers(torch, ROWS, COLUMNS)
    parts = [part for axis in (0, 1, (0, 1)) for part in _reduced(torch, device, given, axis)]
    return judged([*parts, *_running(torch, device, given), *_extremes(torch, device)], "float64")


def _reduced(torch: Any, device: str, given: Any, axis: Any) -> Iterator[Part]:
    exact, here = given.double(), given.to(device)
    count = exact.numel() // max(1, exact.sum(axis).numel())
    share = summed(count)
    size = exact.square().sum(axis).sqrt()
    where = {0: "down", 1: "across"}.get(axis, "over all") if isinstance(axis, int) else "over all"
    yield agree(f"sum {where}", here.sum(axis), exact.sum(axis), share * size)
    yield agree(f"mean {where}", here.mean(axis), exact.mean(axis), share * size / count)
    variance = exact.var(axis)
    yield agree(f"var {where}", here.var(axis), variance, share * variance)
    norm = torch.linalg.vector_norm(exact, dim=axis)
    yield agree(f"norm {where}", torch.linalg.vector_norm(here, dim=axis), norm, share * norm)
    total = torch.logsumexp(exact, axis)
    yield agree(f"logsumexp {where}", torch.logsumexp(here, axis), total, share * (1 + total.abs()))


def _running(torch: Any, device: str, given: Any) -> Iterator[Part]:
    exact = given.double()
    size = exact.square().cumsum(1).sqrt()
    steps = torch.arange(1, COLUMNS + 1, dtype=torch.float64)
    allowed = ROOM * SINGLE * (2 + steps.sqrt()) * size
    yield agree("cumsum", given.to(device).cumsum(1), exact.cumsum(1), allowed)


def _extremes(torch: Any, device: str) -> Iterator[Part]:
    """Of a shuffled range the extremes and their places are known."""
    order = torch.randperm(ROWS * COLUMNS, generator=source(torch, 3))
    here = order.to(device).float()
    yield same("max", here.max(), torch.tensor(float(ROWS * COLUMNS - 1)))
    yield same("argmax", here.argmax(), _place(torch, order, ROWS * COLUMNS - 1))
    yield same("argmin", here.argmin(), _place(torch, order, 0))
    yield same("count", (here < 1000).sum(), torch.tensor(1000))
    yield same("whole sum", order.to(device).sum(), torch.tensor(_triangle(ROWS * COLUMNS)))
    yield holds("any", bool((here == 17).any()) and not bool((here < 0).any()), "a flag is wrong")


def _place(torch: Any, order: Any, value: int) -> Any:
    return torch.tensor(order.tolist().index(value))


def _triangle(count: int) -> int:
    return count * (count - 1) // 2


def softmax(device: str) -> Outcome:
    """softmax, log_softmax and cross entropy forward and backward, with large and masked logits."""
    import torch

    parts: List[Part] = []
    for name, given in _logits(torch):
        parts += _softmaxed(torch, device, name, given)
    return judged([*parts, *_entropy(torch, device)], "float64")


CLASSES, WORDS = 1000, 32767
"""Those of a classifier, and of a language model."""


def _logits(torch: Any) -> Iterator[Tuple[str, Any]]:
    plain = numbers(torch, 64, CLASSES, salt=4)
    masked = plain.clone()
    masked[:, ::3] = float("-inf")
    yield "plain", plain * 4
    yield "large", plain * 1000
    yield "masked", masked
    yield "of a vocabulary", numbers(torch, 7, WORDS, salt=4) * 4


def _softmaxed(torch: Any, device: str, name: str, given: Any) -> Iterator[Part]:
    upstream = numbers(torch, *given.shape, salt=5)
    exact, wanted = _with_gradient(torch.softmax, given.double(), upstream.double())
    found, gradient = _with_gradient(torch.softmax, given.to(device), upstream.to(device))
    finite = torch.where(torch.isinf(given), torch.zeros(()), given).double()
    away = (finite - finite.amax(-1, keepdim=True)).abs()
    width = given.shape[-1]
    share = (summed(width) + 4 * SINGLE * away) * exact
    yield agree(f"softmax {name}", found, exact, share + 1e-37)
    size = upstream.double().abs() + (upstream.double().abs() * exact).sum(-1, keepdim=True)
    yield agree(f"softmax {name} backward", gradient, wanted, 2 * share * size + 1e-36)
    logs = torch.log_softmax(finite, -1)
    here = torch.log_softmax(finite.float().to(device), -1)
    allowed = summed(width) * (1 + logs.abs())
    yield agree(f"log_softmax {name}", here, logs, allowed)


def _with_gradient(run: Callable[..., Any], given: Any, upstream: Any) -> Tuple[Any, Any]:
    leaf = given.detach().requires_grad_()
    out = run(leaf, -1)
    out.backward(upstream)
    return out.detach(), leaf.grad


def _entropy(torch: Any, device: str) -> Iterator[Part]:
    """Cross entropy with labels that are to be left out."""
    for name, rows, classes in (("", 512, CLASSES), (" of a vocabulary", 15, WORDS)):
        given = numbers(torch, rows, classes, salt=6)
        labels = torch.randint(0, classes, (rows,), generator=source(torch, 7))
        labels[::5] = -100
        exact, wanted = _crossed(torch, given.double(), labels)
        found, gradient = _crossed(torch, given.to(device), labels.to(device))
        allowed = summed(classes)
        yield agree(f"cross entropy{name}", found, exact, allowed * exact.abs())
        yield agree(f"cross entropy{name} backward", gradient, wanted, allowed / (0.78 * rows))


def _crossed(torch: Any, given: Any, labels: Any) -> Tuple[Any, Any]:
    leaf = given.detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(leaf, labels)
    loss.backward()
    return loss.detach(), leaf.grad


WIDTH = 384
GROUPS = 8


def normalization(device: str) -> Outcome:
    """Layer norm, group norm and batch norm, forward and backward."""
    import torch

    names = ("layer norm", "group norm", "batch norm")
    parts = [part for name in names for part in _normed(torch, device, name)]
    return judged(parts, "float64")


def _normed(torch: Any, device: str, name: str) -> Iterator[Part]:
    given = numbers(torch, 96, WIDTH, salt=8) * 3 + 1
    weight, bias = 1 + numbers(torch, WIDTH, salt=9) / 4, numbers(torch, WIDTH, salt=10)
    upstream = numbers(torch, 96, WIDTH, salt=11)
    inputs = (given, weight, bias, upstream)
    exact = _norm_gradients(torch, name, *(each.double() for each in inputs))
    found = _norm_gradients(torch, name, *(each.to(device) for each in inputs))
    for what, here, wanted in zip(("", " input", " weight", " bias"), found, exact):
        typical = float(wanted.square().mean().sqrt())
        share = summed(WIDTH) / 4 * (wanted.abs() + 4 * typical)
        yield agree(f"{name}{what and ' backward' + what}", here, wanted, share)


def _norm_gradients(torch: Any, name: str, x: Any, w: Any, b: Any, g: Any) -> Tuple[Any, ...]:
    leaves = [each.detach().requires_grad_() for each in (x, w, b)]
    functional = torch.nn.functional
    runs = {
        "layer norm": lambda x, w, b: functional.layer_norm(x, (WIDTH,), w, b),
        "group norm": lambda x, w, b: functional.group_norm(x, GROUPS, w, b),
        "batch norm": lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
    }
    out = runs[name](*leaves)
    out.backward(g)
    return (out.detach(), *(leaf.grad for leaf in leaves))


FREQUENCIES = (1024, 1000, 997)
"""A power of two, a product of small primes, a prime: three algorithms."""


def fft(device: str) -> Outcome:
    """Fourier transforms agree with float64, come back, and know a pure tone."""
    import torch

    parts = [part for n in FREQUENCIES for part in _transformed(torch, device, n)]
    plane = numbers(torch, 48, 60, salt=13)
    share = summed(12) * float(plane.double().norm())
    here = torch.fft.fft2(plane.to(device))
    parts.append(agree("48 x 60", here, torch.fft.fft2(plane.double()), share))
    return judged(parts, "float64")


def _transformed(torch: Any, device: str, n: int) -> Iterator[Part]:
    given = numbers(torch, 16, n, salt=12)
    share = summed(12) * sqrt(n) * 4
    here = torch.fft.rfft(given.to(device))
    yield agree(f"{n}", here, torch.fft.rfft(given.double()), share)
    yield agree(f"{n} and back", torch.fft.irfft(here, n), given, share / sqrt(n))
    turns = 2 * torch.pi * 5 / n * torch.arange(n, dtype=torch.float64)
    tone = torch.zeros(n // 2 + 1, dtype=torch.complex128)
    tone[5] = n / 2
    pure = torch.fft.rfft(torch.cos(turns).float().to(device))
    yield agree(f"{n} tone", pure, tone, share)


ORDER = 96


def linear_algebra(device: str) -> Outcome:
    """Solved systems and factorisations: put back together they are what was given."""
    import torch

    parts = [
        part for dtype in (torch.float32, torch.float64) for part in _solved(torch, device, dtype)
    ]
    return judged(parts, "what was given, in float64")


def _solved(torch: Any, device: str, dtype: Any) -> Iterator[Part]:
    """Backward errors: each factorisation is exact for a matrix near the given one."""
    name = str(dtype).replace("torch.", "")
    u = torch.finfo(dtype).eps / 2
    given = numbers(torch, 3, ORDER, ORDER, salt=14).to(dtype)
    right = numbers(torch, 3, ORDER, 5, salt=15).to(dtype)
    positive = (given.double() @ given.double().mT / ORDER + torch.eye(ORDER)).to(dtype)
    here, linear = given.to(device), torch.linalg
    x = linear.solve(here, right.to(device)).cpu().double()
    grown = float(given.double().norm(dim=-1).max()) * float(x.norm(dim=-2).max())
    yield agree(f"solve {name}", given.double() @ x, right, ORDER * u * grown)
    lower = linear.cholesky(positive.to(device)).cpu().double()
    yield agree(f"cholesky {name}", lower @ lower.mT, positive, ORDER * u * 8)
    q, r = (each.cpu().double() for each in linear.qr(here))
    yield agree(f"qr {name}", q @ r, given, ORDER * u * 8)
    values, vectors = (each.cpu().double() for each in linear.eigh(positive.to(device)))
    again = vectors @ (values.unsqueeze(-1) * vectors.mT)
    yield agree(f"eigh {name}", again, positive, ORDER * u * 16)
    # A matrix that is nearly singular turns the rounding of its elements into much more.
    exact = given.double()
    turned = (exact.norm(dim=(-2, -1)) * linear.inv(exact).norm(dim=(-2, -1))).clamp(max=1 / u)
    allowed = u * (4 * ORDER * ORDER + 4 * turned)
    yield agree(f"det {name}", linear.slogdet(here)[1], linear.slogdet(exact)[1], allowed)
