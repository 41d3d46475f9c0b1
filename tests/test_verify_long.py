"""Faults of a fast path, of slopes and of chance."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from verify_faults.layers import Operator as Faulty
from verify_faults.layers import patched

from gpusetup.verify.checks import chance_forms, chance_laws, slopes
from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import row_of
from gpusetup.verify.values import Asked, ask_for


def _always_relu(found: Any, args: Any) -> Any:
    given = list(args)
    given[7] = False
    return torch._transformer_encoder_layer_fwd(*given)


@pytest.mark.slow
def test_a_fast_path_that_knows_relu_alone_is_seen() -> None:
    row = row_of("sequences", "encoder layer in use")
    sample = Sample(row.name, "float32", "contiguous", "tiny", 1)
    assert all(part.worst <= 0.9 for part in compared(torch, "cpu", row, sample, 4))
    with Faulty("_transformer_encoder_layer_fwd", _always_relu, when=lambda found, args: args[7]):
        wrong = [part for part in compared(torch, "cpu", row, sample, 4) if not part.worst <= 1]
    assert wrong


def test_a_slope_of_another_form_is_seen() -> None:
    ask_for(Asked(3, level="standard"))
    assert all(part.worst <= 0.5 for part in slopes.parts(torch, "cpu"))

    def plain(right: Any) -> Any:
        """The slope of the other form, the answer of the one that was asked for."""

        def call(x: Any, approximate: str = "none") -> Any:
            other = right(x)
            found = right(x, approximate=approximate)
            return found if x.dtype == torch.float64 else found.detach() + other - other.detach()

        return call

    with patched(torch.nn.functional, "gelu", plain):
        wrong = [part.label for part in slopes.parts(torch, "cpu") if not part.worst <= 1]
    assert wrong == ["slope of gelu by tanh"]


def _stands_still(right: Any) -> Any:
    def call(x: Any, *rest: Any, generator: Any = None) -> Any:
        state = generator and generator.get_state()
        found = right(x, *rest, generator=generator)
        if generator:
            generator.set_state(state)
        return found

    return call


def _of_the_process(right: Any) -> Any:
    return lambda x, *rest, generator=None: right(x, *rest)


def _rounded_up(right: Any) -> Any:
    def call(x: Any, *rest: Any, generator: Any = None) -> Any:
        return x.copy_(right(torch.empty(x.shape), *rest, generator=generator))

    return call


@pytest.mark.parametrize(
    ("name", "fault", "seen"),
    [
        ("normal_", _stands_still, "goes on"),
        ("exponential_", _of_the_process, "alone"),
        ("random_", _of_the_process, "again"),
        ("uniform_", _rounded_up, "ends"),
    ],
)
@pytest.mark.one_in(4)
def test_chance_at_fault_is_seen(name: str, fault: Any, seen: str) -> None:
    ask_for(Asked(3, level="standard"))
    assert all(part.worst <= 1 for part in chance_forms.forms(torch, "cpu"))
    with patched(torch.Tensor, name, fault):
        wrong = [part.label for part in chance_forms.forms(torch, "cpu") if not part.worst <= 1]
    assert any(label.startswith(name) and label.endswith(seen) for label in wrong)


def _not_boosted(right: Any) -> Any:
    return lambda shape: right(torch.where(shape < 1, shape + 1, shape))


def _never_few(right: Any) -> Any:
    """The way for many trials is taken for few ones too: a rounded normal law."""

    def call(count: Any, share: Any) -> Any:
        mean = count * share
        return (mean + (mean * (1 - share)).sqrt() * torch.randn_like(mean)).round().clamp(min=0)

    return call


@pytest.mark.parametrize(
    ("name", "fault", "seen"),
    [("_standard_gamma", _not_boosted, "gamma 0"), ("binomial", _never_few, "binomial 3")],
)
def test_a_law_at_fault_in_one_range_is_seen(name: str, fault: Any, seen: str) -> None:
    ask_for(Asked(3, level="standard"))
    assert all(part.worst <= 0.9 for part in chance_laws.laws(torch, "cpu"))
    with patched(torch, name, fault):
        wrong = [part.label for part in chance_laws.laws(torch, "cpu") if not part.worst <= 1]
    assert wrong and all(label.startswith(seen) for label in wrong)
