"""No kernel is forgotten: standard or torch's database calls each, or the list says why not."""

from __future__ import annotations

import pytest
from verify_faults.kernels import (
    NOT_CALLED,
    called_by,
    called_by_database,
    called_by_rows,
    of_this_torch,
)

from gpusetup.verify.values import Asked, ask_for

pytestmark = pytest.mark.filterwarnings("ignore")
CHECKS = (
    *("grad-scaler", "chance", "sorting", "attention", "float8", "int8"),
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
