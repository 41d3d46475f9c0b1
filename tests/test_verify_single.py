"""Options one at a time: sound torch passes, and an option that is forgotten is seen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import FAMILIES, row_of
from gpusetup.verify.operators.singles import SELDOM
from gpusetup.verify.operators.singly import again, of_each_kind, spread

pytestmark = pytest.mark.filterwarnings("ignore")

SINGLE = [
    (family, row.name)
    for family, rows in FAMILIES.items()
    for row in rows
    if row.name.endswith("by single options") and row.weight == SELDOM
]


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


def wrong(family: str, name: str, seed: int = 5) -> bool:
    row = row_of(family, name)
    sample = Sample(name, "float32", "contiguous", row.sizes[0])
    parts = compared(torch, "cpu", row, sample, seed, ("contiguous",))
    return any(not part.worst <= 1 for part in parts)


def test_each_value_stands_alone_and_each_kind_has_its_usual_call() -> None:
    menu: dict[str, Any] = {"a": {"x": (1, 2, 3), "y": (None, 0)}, "b": {"x": (4, 5)}}
    calls = of_each_kind(menu)
    for kind, axes in menu.items():
        usual = {"kind": kind, **{name: values[0] for name, values in axes.items()}}
        assert usual in calls
        for name, values in axes.items():
            assert all({**usual, name: value} in calls for value in values)
    assert [call["kind"] for call in calls] == ["a"] * 4 + ["b"] * 2


def test_what_is_expanded_has_a_stride_of_zero() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    wide = again(spread(x, "expanded"), "expanded", 4)
    assert wide.shape == (4, 3) and wide.stride()[0] == 0 and torch.equal(wide[3], x[0])
    assert spread(x, "own") is x and again(x, "own", 4) is x


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
