"""Options one at a time: every value comes beside the defaults, and a kernel that forgets one of
them is seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import row_of
from gpusetup.verify.operators.singles import one_at_a_time

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("seed", range(3))
def test_each_value_comes_beside_the_defaults_of_all_others(seed: int) -> None:
    axes: dict[str, Sequence[Any]] = {"a": (1, 2, 3), "b": ("x", "y"), "c": (True, False)}
    calls = one_at_a_time(axes, random.Random(seed))
    usual = {"a": 1, "b": "x", "c": True}
    for name, values in axes.items():
        assert all({**usual, name: value} in calls for value in values)


class Faulty(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """`change(right, first, rest, options)` answers for an operator where it is not in float64."""

    def __init__(self, name: str, change: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.change = name, change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ != self.name or args[0].dtype == torch.float64:
            return func(*args, **(kwargs or {}))
        return self.change(func, args[0], args[1:], kwargs or {})


def wrong(family: str, name: str, dtype: str = "float32") -> bool:
    row = row_of(family, name)
    sample = Sample(name, dtype, "contiguous", row.sizes[0])
    parts = compared(torch, "cpu", row, sample, 5, ("contiguous",))
    return any(not part.worst <= 1 for part in parts)


def without(option: str) -> Callable[..., Any]:
    """The option is not handed on."""

    def change(right: Any, x: Any, rest: Any, options: Any) -> Any:
        return right(x, *rest, **{key: value for key, value in options.items() if key != option})

    return change


def lower(right: Any, x: Any, rest: Any, options: Any) -> Any:
    return right(x, "L", *rest[1:], **options)


def first_sign(right: Any, x: Any, rest: Any, options: Any) -> Any:
    """The first matrix of a batch tells the sign of all determinants."""
    found = list(right(x, *rest, **options))
    if found[0].numel():
        found[0] = found[0].abs() * found[0].reshape(-1)[0].sign()
    return tuple(found)


def overflown(right: Any, x: Any, rest: Any, options: Any) -> Any:
    """Half of a sum is rounded to half precision."""
    found, half = right(x, *rest, **options), x.shape[1] // 2
    over = (x[:, :half].float() @ rest[0][:half].float()).half().isinf()
    return found.masked_fill(over, float("inf"))


def row_before(right: Any, x: Any, rest: Any, options: Any) -> Any:
    """A row that holds nothing gets what stands in the one before."""
    found = right(x, *rest, **options)
    if x.layout == torch.sparse_csr:
        for row, count in enumerate(x.crow_indices().diff().tolist()):
            if row and not count:
                found[row] = found[row - 1]
    return found


FAULTS = (
    ("products", "products and a sum by single options", "addmm", without("alpha")),
    ("products", "products and a sum by single options", "addr", without("beta")),
    ("algebra", "symmetric matrices by single options", "_linalg_eigh", lower),
    ("algebra", "square matrices by single options", "_linalg_det", first_sign),
    ("algebra", "square matrices by single options", "linalg_lu_solve", without("adjoint")),
    ("sparse", "sparse by full by single options", "mm", row_before),
    ("sorting", "searching by single options", "searchsorted", without("side")),
    ("reductions", "histograms by single options", "histogram", without("density")),
    ("reductions", "segments by single options", "segment_reduce", without("initial")),
)


@pytest.mark.parametrize(("family", "row", "operator", "change"), FAULTS)
@pytest.mark.slow
def test_a_forgotten_option_or_edge_is_seen(
    family: str, row: str, operator: str, change: Callable[..., Any]
) -> None:
    with Faulty(operator, change):
        assert wrong(family, row)


def test_parts_of_a_sum_past_the_greatest_half_are_seen() -> None:
    with Faulty("mm", overflown):
        assert wrong("products", "great parts by single options", "float16")
