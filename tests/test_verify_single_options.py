"""Options one by one: each value comes beside the usual ones, sound torch passes, and an option or
an edge that is forgotten is seen."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.drawing import Draw
from gpusetup.verify.operators.sampling import FAMILIES, row_of
from gpusetup.verify.operators.single_options import (
    AS_IT_IS,
    MIXED,
    SELDOM,
    SPREAD_ALL,
    Made,
    by_single_options,
    calls_of,
    spread_all,
)

pytestmark = pytest.mark.filterwarnings("ignore")

SINGLE = [
    (family, row.name)
    for family, rows in FAMILIES.items()
    for row in rows
    if row.name.endswith("by single options") and row.weight == SELDOM
]
MENU: dict[str, Any] = {
    "a": {"x": (1, 2, 3), "y": (None, 0), "z": (True, False)},
    "b": {"x": (4, 5)},
}


@pytest.mark.parametrize("seed", range(3))
def test_each_value_stands_alone_and_each_kind_has_its_usual_call(seed: int) -> None:
    calls = calls_of(MENU, random.Random(seed))
    for kind, axes in MENU.items():
        usual = {"kind": kind, **{name: values[0] for name, values in axes.items()}}
        for name, values in axes.items():
            assert all({**usual, name: value} in calls for value in values)
    assert [call["kind"] for call in calls[:7]] == ["a"] * 5 + ["b"] * 2
    assert len(calls) == 7 + MIXED


@pytest.mark.parametrize("seed", range(3))
def test_two_together_are_never_three(seed: int) -> None:
    axes: dict[str, Any] = {"v": (1, 2, 3), "w": (1, 2, 3), "x": (1, 2), "y": (1, 2)}
    calls = calls_of({"": axes}, random.Random(seed), together=2)[:-MIXED]
    assert len(calls) == 1 + 3
    assert [sum(value != 1 for value in call.values()) for call in calls] == [0, 2, 2, 2]
    for name, values in axes.items():
        assert {call[name] for call in calls} == set(values)


@pytest.mark.parametrize("how", SPREAD_ALL)
def test_what_is_spread_has_a_stride_of_zero(how: str) -> None:
    tensors = [torch.arange(6.0).reshape(2, 3) for _ in range(3)]
    found = spread_all(tensors, how)
    for i, (x, before) in enumerate(zip(found, tensors, strict=True)):
        moved = how != AS_IT_IS and ("others" in how) == bool(i)
        assert x.shape == before.shape
        assert x.stride() == (((0, 1) if how.endswith("first") else (3, 0)) if moved else (3, 1))


def test_the_exact_answer_is_asked_of_float64_in_memory_from_the_front() -> None:
    asked = []

    def make(d: Draw, dim: int) -> Made:
        tensors = [d.whole(0, 9, 2, 3).double(), d.whole(-2, 2, 2)]
        return Made(tensors, {"dim": dim}, {"dim": dim % 2}, {1: 2})

    def run(t: Any, x: Any, i: Any, dim: int) -> Any:
        asked.append((x.dtype, x.stride(), int(i.min()) < 0, dim))
        return x

    row = by_single_options("own", {"dim": (0, -1), "spread": SPREAD_ALL[:2]}, make, run)
    made = row.make(Draw(torch, "5", "tiny"))
    low = [x.to(torch.int32) if x.is_floating_point() else x - 2 * (x > -1) for x in made.tensors]
    row.run(torch, *low, **made.options)
    assert row.exact is not None
    here, asked[:] = list(asked), []
    row.exact(torch, *low, **made.options)
    assert {each[0] for each in here} == {torch.int32} and all(each[2] for each in here)
    assert (0, 1) in {each[1] for each in here} and -1 in {each[3] for each in here}
    assert {(each[0], each[1], each[2]) for each in asked} == {(torch.float64, (3, 1), False)}
    assert {each[3] for each in asked} == {0, 1}


class Forgets(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """An operator that takes an option, by its name, for `value`; right in float64."""

    def __init__(self, name: str, option: str, value: Any) -> None:
        super().__init__()
        self.name, self.option, self.value = name, option, value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, options = list(args), dict(kwargs or {})
        if func.overloadpacket.__name__ == self.name and not self.wide(given):
            names = [each.name for each in func._schema.arguments]
            place = names.index(self.option)
            if place < len(given):
                given[place] = self.value
            else:
                options[self.option] = self.value
        return func(*given, **options)

    @staticmethod
    def wide(given: list[Any]) -> bool:
        first = given[0][0] if isinstance(given[0], list) else given[0]
        return bool(first.dtype == torch.float64)


def wrong(family: str, name: str, dtype: str = "float32", seed: int = 5) -> bool:
    row = row_of(family, name)
    sample = Sample(name, dtype, "contiguous", row.sizes[0])
    parts = compared(torch, "cpu", row, sample, seed, ("contiguous",))
    return any(not part.worst <= 1 for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), SINGLE)
def test_sound_torch_passes(family: str, name: str) -> None:
    assert not wrong(family, name)


FORGOTTEN: tuple[tuple[str, str, str, str, Any], ...] = (
    ("convolutions", "convolutions", "convolution", "bias", None),
    ("convolutions", "plain convolutions", "slow_conv_dilated2d", "bias", None),
    ("pools", "windows", "avg_pool2d", "divisor_override", None),
    ("pools", "sizes", "_upsample_bicubic2d_aa", "align_corners", False),
    ("norms", "norms", "native_layer_norm", "eps", 1e-3),
    ("losses", "losses", "huber_loss", "delta", 1.0),
    ("losses", "losses", "multi_margin_loss", "p", 1),
    ("losses", "losses of classes", "_ctc_loss_backward", "zero_infinity", False),
    ("losses", "distances of rows", "_pdist_forward", "p", 2.0),
    ("indexing", "lookups", "_embedding_bag", "padding_idx", -1),
    ("lists", "fused adam", "_fused_adam_", "maximize", False),
    ("lists", "fused sgd", "_fused_sgd_", "dampening", 0.0),
    ("pointwise", "observers", "_fused_moving_avg_obs_fq_helper", "symmetric_quant", False),
    ("sequences", "attention", "_scaled_dot_product_flash_attention_for_cpu", "scale", None),
)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name", "operator", "option", "value"), FORGOTTEN)
def test_a_forgotten_option_is_seen(
    family: str, name: str, operator: str, option: str, value: Any
) -> None:
    with Forgets(operator, option, value):
        assert wrong(family, f"{name} by single options")


class Faulty(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """`change(right, first, rest, options)` answers for an operator where it is not in float64."""

    def __init__(self, name: str, change: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.change = name, change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ != self.name or args[0].dtype == torch.float64:
            return func(*args, **(kwargs or {}))
        return self.change(func, args[0], args[1:], kwargs or {})


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


# --- rows by each option -------------------------------------------------------------------------

EACH: tuple[tuple[str, str, str, str, Any], ...] = (
    ("moving", "tril", "tril", "diagonal", 0),
    ("reductions", "vector_norm", "linalg_vector_norm", "ord", 2),
    ("reductions", "kthvalue", "kthvalue", "k", 1),
    ("pointwise", "addcmul", "addcmul", "value", 1),
)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name", "operator", "option", "value"), EACH)
def test_an_option_forgotten_beside_any_other_is_seen(
    family: str, name: str, operator: str, option: str, value: Any
) -> None:
    with Forgets(operator, option, value):
        assert wrong(family, f"{name} by each option")


def misread(right: Any, x: Any, rest: Any, options: Any) -> Any:
    """What has a stride of 0 is read one number late."""
    if x.numel() and 0 in [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]:
        x = x + 1
    return right(x, *rest, **options)


STRIDES = (
    ("convolutions", "convolutions by single options", "convolution"),
    ("losses", "losses by single options", "mse_loss"),
    ("reductions", "steps and areas by single options", "sub"),
    ("reductions", "sum by each option", "sum"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "row", "operator"), STRIDES)
def test_a_stride_of_zero_misread_is_seen(family: str, row: str, operator: str) -> None:
    with Faulty(operator, misread):
        assert wrong(family, row)
