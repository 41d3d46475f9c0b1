"""Faults of strides that meet: operands each in its own layout, a gradient that is one number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from verify_faults.layers import Operator as Faulty

from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import row_of


def _first_alone(found: Any, args: Any) -> Any:
    found[..., 1:] = 0
    return found


def _of_one_number(found: Any, args: Any) -> bool:
    return bool(args[0].dim() > 0 and args[0].stride(-1) == 0)


def _by_memory(found: Any, args: Any) -> Any:
    first, other = args[0], args[1]
    return torch.addcmul(first, other.t().reshape(other.shape), args[2])


def _laid_out_unlike(found: Any, args: Any) -> bool:
    first, other = args[0], args[1]
    return bool(first.dim() == 2 and first.t().is_contiguous() and other.is_contiguous())


FAULTS = {
    "a gradient of one number that only the first element gets": (
        *("pointwise", "relu"),
        Faulty("threshold_backward", _first_alone, _of_one_number),
    ),
    "operands read in the order of memory": (
        *("pointwise", "addcmul"),
        Faulty("addcmul", _by_memory, _laid_out_unlike),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_strides_that_meet_are_seen(fault: str) -> None:
    family, name, context = FAULTS[fault]
    row = row_of(family, name)
    seen = 0
    for turn in range(16):
        sample = Sample(name, "float32", "contiguous", row.sizes[turn % 2], turn)
        assert all(part.worst <= 0.9 for part in compared(torch, "cpu", row, sample, 5))
        with context:
            parts = compared(torch, "cpu", row, sample, 5)
        seen += any(not part.worst <= 1 for part in parts)
    assert seen
