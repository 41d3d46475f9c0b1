"""No kernel is forgotten: standard calls each of the CPU's, or the list says why it does not."""

from __future__ import annotations

import pytest
from verify_faults.kernels import NOT_CALLED, called_by, called_by_rows, of_this_torch

from gpusetup.verify.values import Asked, ask_for

pytestmark = pytest.mark.filterwarnings("ignore")
CHECKS = ("grad-scaler", "chance", "random", "sorting", "optimizers", "attention", "float8", "int8")


@pytest.mark.slow
def test_every_kernel_of_the_cpu_is_called_or_stands_in_the_list() -> None:
    ask_for(Asked(level="standard"))
    called = called_by(CHECKS) | called_by_rows()
    kernels = of_this_torch()
    assert len(kernels) > 400
    assert sorted(kernels - called - set(NOT_CALLED)) == []
    assert sorted(called & set(NOT_CALLED)) == []
