"""Fourier transforms, held to sums of waves; solvers and factorizations, put together again."""

from __future__ import annotations

from math import pi
from typing import Any, Iterator, List

import torch

from ..judging.tolerance import Part, agree, judged, numbers, summed
from ..values import Outcome

FREQUENCIES = (1024, 1000, 997)
"""A power of two, a product of small primes, a prime: three algorithms."""


def fft(device: str) -> Outcome:
    """Fourier transforms are sums of waves, and come back."""
    parts: List[Part] = []
    for n in FREQUENCIES:
        given, count = numbers(torch, 2, n, salt=12), torch.arange(n)
        angles = (count.unsqueeze(1) * count % n).double() * (-2 * pi / n)
        exact = torch.complex(given.double() @ angles.cos(), given.double() @ angles.sin())
        share, here = summed(12) * 4, given.to(device)
        waves = torch.fft.rfft(here)
        parts += [
            agree(f"{n}, real", waves, exact[:, : n // 2 + 1], share * n**0.5),
            agree(f"{n}, complex", torch.fft.fft(here + 0j), exact, share * n**0.5),
            agree(f"{n} and back", torch.fft.irfft(waves, n), given, share),
        ]
    return judged(parts, "sums of waves in float64")


ORDER = 96


def linear_algebra(device: str) -> Outcome:
    """Solved systems and factorizations: put back together they are what was given."""
    dtypes = (torch.float32, torch.float64)
    parts = [part for dtype in dtypes for part in _solved(device, dtype)]
    return judged(parts, "what was given, in float64")


def _solved(device: str, dtype: Any) -> Iterator[Part]:
    """Backward errors: each factorization is exact for a matrix near the given one."""
    name, linear = str(dtype).replace("torch.", ""), torch.linalg
    u = ORDER * torch.finfo(dtype).eps / 2
    given = numbers(torch, 3, ORDER, ORDER, salt=14).to(dtype)
    positive = (given.double() @ given.double().mT / ORDER + torch.eye(ORDER)).to(dtype)
    here, symmetric = given.to(device), positive.to(device)
    x = linear.solve(here, symmetric).cpu().double()
    grown = float(given.double().norm(dim=-1).max()) * float(x.norm(dim=-2).max())
    yield agree(f"solve {name}", given.double() @ x, positive, u * grown)
    lower = linear.cholesky(symmetric).cpu().double()
    yield agree(f"cholesky {name}", lower @ lower.mT, positive, u * 8)
    q, r = (each.cpu().double() for each in linear.qr(here))
    yield agree(f"qr {name}", q @ r, given, u * 8)
    values, vectors = (each.cpu().double() for each in linear.eigh(symmetric))
    again = vectors @ (values.unsqueeze(-1) * vectors.mT)
    yield agree(f"eigh {name}", again, positive, u * 16)
