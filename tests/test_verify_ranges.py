"""Faults of a shape; parts of a draw that come again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from verify_faults.layers import Change, Operator

from gpusetup.verify.checks.whole import _anew
from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import row_of


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


FAULTS: dict[str, tuple[str, str, str, str, Change]] = {
    "svd of wide ones": (
        *("algebra", "factors of every shape", "float32"),
        *("_linalg_svd", _last_line_turned),
    ),
    "qr of tall ones": (
        *("algebra", "factors of every shape", "float32"),
        *("linalg_qr", _least_line_lost),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_shape_is_seen(fault: str) -> None:
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
