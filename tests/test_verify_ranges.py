"""Faults of a shape, a quadrant, a range, a mix of formats; parts of a draw that come again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from verify_faults.layers import Change, Operator

from gpusetup.verify.checks.whole import _anew
from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.rows_ranges import CAST
from gpusetup.verify.operators.sampling import row_of

SHORT = tuple(getattr(torch, name) for name in CAST)


def _where(condition: Any, change: Any) -> Change:
    """`change(found)` where `condition(*args)` holds."""

    def changed(found: Any, args: Any) -> Any:
        return torch.where(condition(*args), change(found), found)

    return changed


def _last_line_turned(found: Any, args: Any) -> Any:
    u, s, v = found
    if args[0].shape[-1] > args[0].shape[-2]:
        v[..., s.shape[-1] - 1, :].neg_()
    return u, s, v


def _least_line_lost(found: Any, args: Any) -> Any:
    q, r = found
    if args[0].shape[-1] < args[0].shape[-2]:
        q[..., args[0].shape[-1] - 1] *= 0.99
    return q, r


def _cut_off(found: Any, args: Any) -> Any:
    return torch.fmod(*args) if found.dtype in SHORT else found


def _rounded_first(join: Any) -> Change:
    def changed(found: Any, args: Any) -> Any:
        formats = [getattr(each, "dtype", None) for each in args[:2]]
        if found.dtype != torch.float32 or torch.bfloat16 not in formats:
            return found
        return join(*(each.to(torch.bfloat16).float() for each in args[:2]))

    return changed


def _upper_left(x: Any, *_: Any) -> Any:
    return (x.real < 0) & (x.imag > 0) if x.is_complex() else x > x


def _at_the_least(x: Any, *_: Any) -> Any:
    return x == torch.iinfo(x.dtype).min if x.dtype in SHORT else x != x


FAULTS: dict[str, tuple[str, str, str, str, Change]] = {
    "svd of wide ones": (
        *("algebra", "factors of every shape", "float32"),
        *("_linalg_svd", _last_line_turned),
    ),
    "qr of tall ones": (
        *("algebra", "factors of every shape", "float32"),
        *("linalg_qr", _least_line_lost),
    ),
    "complex log of one quadrant": (
        *("pointwise", "complex functions in every quadrant", "float32"),
        *("log", _where(_upper_left, lambda found: found.conj().resolve_conj())),
    ),
    "cos of far numbers": (
        *("pointwise", "functions of far numbers", "float32"),
        *("cos", _where(lambda x: x.abs() > 1e4, lambda found: found * 1.0001)),
    ),
    "fmod of negative halves": (
        *("pointwise", "functions of far halves", "float16"),
        *("fmod", _where(lambda x, y: x < 0, lambda found: found.abs())),
    ),
    "remainder of negative whole numbers": (
        *("pointwise", "whole range of int16", "int16"),
        *("remainder", _cut_off),
    ),
    "abs of the least whole number": (
        *("pointwise", "whole range of int8", "int8"),
        *("abs", _where(_at_the_least, lambda found: found * 0 + 127)),
    ),
    "product rounded first": (
        *("pointwise", "formats promoted first", "float32"),
        *("mul", _rounded_first(lambda x, y: x * y)),
    ),
    "quotient rounded first": (
        *("pointwise", "formats promoted first", "float32"),
        *("div", _rounded_first(lambda x, y: x / y)),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_range_is_seen(fault: str) -> None:
    family, name, dtype, operator, change = FAULTS[fault]
    row, sample = row_of(family, name), Sample(name, dtype, "contiguous", "warp")
    assert all(part.worst <= 0.9 for part in compared(torch, "cpu", row, sample, 4))
    with Operator(operator, change):
        found = compared(torch, "cpu", row, sample, 4)
    assert [part for part in found if not part.worst <= 1]


@pytest.mark.parametrize("kind", ["rand", "bernoulli"])
def test_a_part_that_comes_again_is_seen_wherever_it_stands(kind: str) -> None:
    made = torch.Generator().manual_seed(5)
    first, second = (torch.rand(2**14, generator=made) for _ in "ab")
    if kind == "bernoulli":
        first, second = ((each < 0.3).float() for each in (first, second))
    assert [part.worst for part in _anew(torch, kind, first, second)] == [0.0]
    within, between = first.clone(), second.clone()
    within[777:1033] = first[5:261]
    between[1001:1257] = first[4000:4256]
    for both in ((within, second), (first, between), (first, first)):
        (part,) = _anew(torch, kind, *both)
        assert part.worst > 1
        assert "come twice" in part.first
