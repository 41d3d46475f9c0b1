"""No kernel is forgotten: standard or torch's database calls each, or the list says why not; no
exponent is, nor a pair of bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from verify_faults.kernels import (
    NOT_CALLED,
    called_by,
    called_by_database,
    called_by_rows,
    of_this_torch,
)
from verify_faults.layers import Operator

from gpusetup.verify.checks import patterns
from gpusetup.verify.values import Asked, ask_for

pytestmark = pytest.mark.filterwarnings("ignore")
CHECKS = (
    *("grad-scaler", "chance", "sorting", "optimizers", "attention", "float8", "int8"),
    *("elementwise", "embedding", "linear-algebra", "reductions"),
)


@pytest.mark.slow
def test_every_kernel_of_the_cpu_is_called_or_stands_in_the_list() -> None:
    ask_for(Asked(level="standard"))
    called = called_by(CHECKS) | called_by_rows() | called_by_database()
    kernels = of_this_torch()
    assert len(kernels) > 400
    assert sorted(kernels - called - set(NOT_CALLED)) == []
    assert sorted(called & set(NOT_CALLED)) == []


def wrong_where_tiny(found: Any, _: Any) -> Any:
    return torch.where(found.abs() < 1e-20, 2 * found, found)


def wrong_at_infinity(found: Any, _: Any) -> Any:
    return torch.where(found.isinf(), found - found, found)


def wrong_for_one_pair(found: Any, args: Any) -> Any:
    return torch.where((args[0] == -77) & (args[1] == 33), found + 1, found)


FAULTS = {
    "exp": wrong_where_tiny,
    "mul": wrong_where_tiny,
    "reciprocal": wrong_at_infinity,
    "remainder": wrong_for_one_pair,
}


def of_numbers(found: Any, _: Any) -> bool:
    return bool(found.dtype != torch.bool)


@pytest.mark.parametrize("kernel", FAULTS)
@pytest.mark.one_in(4)
def test_a_fault_at_some_exponents_or_at_one_pair_is_seen(kernel: str) -> None:
    with Operator(kernel, FAULTS[kernel], of_numbers, exact=True):
        wrong = [part.label for part in patterns.parts(torch, "cpu") if not part.worst <= 1]
    assert wrong
    assert {label.split()[0] for label in wrong} <= {kernel, "div"}
