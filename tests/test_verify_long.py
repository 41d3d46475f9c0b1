"""Faults of slopes and of chance."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from verify_faults.layers import patched

from gpusetup.verify.checks import chance_forms, slopes
from gpusetup.verify.values import Asked, ask_for


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
