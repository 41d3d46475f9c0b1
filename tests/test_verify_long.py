"""Faults of long axes, long runs, whole powers, fractions, orders of lengths, slopes and chance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator as Faulty
from verify_faults.layers import patched

from gpusetup.verify.checks import chance_forms, chance_laws, slopes
from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import row_of
from gpusetup.verify.values import Asked, ask_for

Context = Callable[[], AbstractContextManager[Any]]


def _border(found: Any, args: Any) -> Any:
    """What comes first in the second tile of 4,096 is lost."""
    for axis, length in enumerate(found.shape):
        if length > 4096:
            found.select(axis, 4096).zero_()
    return found


def _without_sign(found: Any, args: Any) -> Any:
    """By way of a logarithm, but for the exponents that have a way of their own."""
    special = isinstance(args[1], torch.Tensor) or args[1] in (-1, 0, 1, 2, 3)
    return found if special else found.abs_()


def _eight_of_a_run(found: Any, args: Any) -> Any:
    (places, *_), values = args[1:3]
    if places is None or len(args[1]) > 1:
        return found
    at = torch.arange(len(places))
    starts = torch.where(torch.diff(places, prepend=places[:1] - 1) != 0, at, 0 * at)
    late = at - starts.cummax(0)[0] >= 8
    return found.index_add_(0, places[late], -values[late])


def _next_place(found: Any, args: Any) -> Any:
    x, dim, index = args[:3]
    if index.dim() == 2 and index.stride(-1) == 0 and dim == 0 and index.shape[1] > 64:
        found[:, 64:] = x.gather(0, index.roll(-1, 0))[:, 64:]
    return found


def _always_relu(found: Any, args: Any) -> Any:
    given = list(args)
    given[7] = False
    return torch._transformer_encoder_layer_fwd(*given)


def _longest_first(right: Any) -> Any:
    def call(logs: Any, labels: Any, lengths: Any, *rest: Any, **options: Any) -> Any:
        if logs.dtype == torch.float32:
            down = sorted(map(int, lengths), reverse=True)
            lengths = torch.tensor(down) if isinstance(lengths, torch.Tensor) else down
        return right(logs, labels, lengths, *rest, **options)

    return call


def _in_the_order_given(right: Any) -> Any:
    def call(x: Any, dim: int, places: Any) -> Any:
        return right(x, dim, places) if x.dtype == torch.float64 else x + 0

    return call


def _by_whole_numbers(right: Any) -> Any:
    return lambda x: right(x.trunc()) if x.dtype == torch.float32 else right(x)


FAULTS: dict[str, tuple[str, str, Context]] = {
    "a border of tiles in a convolution": (
        *("convolutions", "convolutions of one long axis"),
        lambda: Faulty("convolution", _border),
    ),
    "a border of tiles in a pool": (
        *("pools", "pools and resizing of one long axis"),
        lambda: Faulty("avg_pool2d avg_pool1d", _border),
    ),
    "a border of tiles in a softmax": (
        *("reductions", "shares and running sums of one long axis"),
        lambda: Faulty("_softmax", _border),
    ),
    "a border of tiles in a norm": (
        *("norms", "norms of one long axis"),
        lambda: Faulty("native_layer_norm", lambda found, args: (_border(found[0], 0), *found[1:])),
    ),
    "a fast path that knows relu alone": (
        *("sequences", "encoder layer in use"),
        lambda: Faulty(
            "_transformer_encoder_layer_fwd", _always_relu, when=lambda found, args: args[7]
        ),
    ),
    "powers by a logarithm": (
        *("pointwise", "whole powers of negative numbers"),
        lambda: Faulty("pow", _without_sign),
    ),
    "flags by whole numbers": (
        *("pointwise", "conversions of fractions and special numbers"),
        lambda: patched(torch.Tensor, "bool", _by_whole_numbers),
    ),
    "eight of a run": (
        *("indexing", "long runs of one place"),
        lambda: Faulty("index_put", _eight_of_a_run),
    ),
    "the next place": (
        *("indexing", "places without strides"),
        lambda: Faulty("gather", _next_place),
    ),
    "lengths that fall": (
        *("losses", "ctc_loss of lengths in each order"),
        lambda: patched(torch.nn.functional, "ctc_loss", _longest_first),
    ),
    "states that are not put back in order": (
        *("sequences", "packed sequences in each order"),
        lambda: patched(torch.Tensor, "index_select", _in_the_order_given),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.slow
def test_a_fault_of_a_class_is_seen(fault: str) -> None:
    family, name, context = FAULTS[fault]
    row = row_of(family, name)
    sample = Sample(name, "float32", "contiguous", "tiny", 1)
    assert all(part.worst <= 0.9 for part in compared(torch, "cpu", row, sample, 4))
    with context():
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
