"""Sums, greatest elements and products written with elementwise operators alone."""

from __future__ import annotations

from math import sqrt
from typing import Any, Callable

INFINITE = float("inf")
WRITTEN_OUT = 2**19
"""The most multiplications that are written out one by one."""


def halved(t: Any, x: Any, dim: int, join: Callable[[Any, Any], Any], empty: float) -> Any:
    """The elements along an axis joined in pairs until one is left; the axis goes."""
    x = x.movedim(dim, 0)
    if x.shape[0] == 0:
        return t.full(x.shape[1:], empty, dtype=x.dtype)
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        joined = join(x[:half], x[half : 2 * half])
        x = t.cat([joined, x[2 * half :]]) if x.shape[0] % 2 else joined
    return x[0]


def added(t: Any, x: Any, dim: int) -> Any:
    """The sum along an axis.

    >>> import torch
    >>> added(torch, torch.arange(7.0).reshape(1, 7), 1)
    tensor([21.])
    """
    return halved(t, x, dim, lambda a, b: a + b, 0.0)


def greatest(t: Any, x: Any, dim: int) -> Any:
    return halved(t, x, dim, lambda a, b: t.where(a >= b, a, b), -INFINITE)


def least(t: Any, x: Any, dim: int) -> Any:
    return halved(t, x, dim, lambda a, b: t.where(a <= b, a, b), INFINITE)


def mean(t: Any, x: Any, dim: int) -> Any:
    return added(t, x, dim) / x.shape[dim]


def variance(t: Any, x: Any, dim: int, less: int = 1) -> Any:
    away = x - mean(t, x, dim).unsqueeze(dim)
    return added(t, away * away, dim) / (x.shape[dim] - less)


def standard(t: Any, x: Any, dim: int = 1) -> Any:
    """Of mean 0 and variance 1, as norms have it with 0.001 added to the variance."""
    away = x - mean(t, x, dim).unsqueeze(dim)
    return away / (mean(t, away * away, dim) + 1e-3).sqrt().unsqueeze(dim)


def softmax(t: Any, x: Any, dim: int) -> Any:
    top = greatest(t, x.detach(), dim).unsqueeze(dim)
    raised = (x - top.clamp(min=-1e300)).exp()
    return raised / added(t, raised, dim).unsqueeze(dim)


def log_softmax(t: Any, x: Any, dim: int) -> Any:
    top = greatest(t, x.detach(), dim).unsqueeze(dim)
    return x - top - added(t, (x - top).exp(), dim).unsqueeze(dim).log()


def product(t: Any, x: Any, y: Any) -> Any:
    """The matrix product of (..., n, k) and (..., k, m); a long one by float64's own product."""
    if x.numel() * y.shape[-1] > WRITTEN_OUT:
        return x @ y if x.dtype == y.dtype else x.double() @ y.double()
    parts = []
    for start in range(0, x.shape[-1], 64):
        rows, columns = x[..., start : start + 64], y[..., start : start + 64, :]
        parts.append(added(t, rows.unsqueeze(-1) * columns.unsqueeze(-3), -2))
    if not parts:
        return t.zeros(*x.shape[:-1], y.shape[-1], dtype=x.dtype)
    return added(t, t.stack(parts), 0) if len(parts) > 1 else parts[0]


def attention(t: Any, q: Any, k: Any, v: Any, mask: Any, bias: Any, scale: float = 0.0) -> Any:
    """Each query's mean of the values, by how well their keys fit; `mask` says which count."""
    scores = q @ k.transpose(-1, -2) * (scale or 1 / sqrt(q.shape[-1]))
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = t.where(mask, scores, -INFINITE + 0 * scores.detach())
    return softmax(t, scores, -1) @ v


def running(t: Any, x: Any, dim: int, join: Callable[[Any, Any], Any]) -> Any:
    """The running joint along an axis, by doubling steps."""
    x, step = x.movedim(dim, 0), 1
    while step < x.shape[0]:
        x = t.cat([x[:step], join(x[:-step], x[step:])])
        step *= 2
    return x.movedim(0, dim)


def softplus(t: Any, x: Any) -> Any:
    """log(1 + e^x), with half a slope at 0 itself, where a clamp has all of it or none.

    >>> import torch
    >>> x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    >>> softplus(torch, x).backward()
    >>> float(x.grad)
    0.5
    """
    return (x + x.abs()) / 2 + t.log1p((-x.abs()).exp())
