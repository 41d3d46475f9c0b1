"""Numbers a plain formula fails at, forms of chance, what an address keeps: sound
torch passes, a fault of each class is seen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from verify_faults.layers import patched

from gpusetup.verify.checks import census, chance_forms
from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.drawing import Draw
from gpusetup.verify.operators.sampling import FAMILIES, row_of

pytestmark = pytest.mark.filterwarnings("ignore")


class Faulty(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """`change(right, first, rest, options)` answers for an operator, in each of its forms."""

    def __init__(self, name: str, change: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.change = name, change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ != self.name or not args:
            return func(*args, **(kwargs or {}))
        return self.change(func, args[0], args[1:], kwargs or {})


def wrong(
    family: str, name: str, dtype: str = "float32", seed: int = 5, anew: bool = False
) -> bool:
    row = row_of(family, name)
    sample = Sample(name, dtype, "contiguous", row.sizes[0])
    parts = compared(torch, "cpu", row, sample, seed, ("contiguous",), anew)
    return any(not part.worst <= 1 for part in parts)


def test_other_numbers_have_the_same_shapes() -> None:
    row = row_of("convolutions", "conv2d")
    first, second = (row.make(Draw(torch, "words", "tiny", anew)) for anew in (0, 1))
    assert [x.shape for x in first.tensors] == [x.shape for x in second.tensors]
    assert not torch.equal(first.tensors[0], second.tensors[0])


def kept_by_address(name: str, at: int) -> AbstractContextManager[Any]:
    """An operator that keeps one of its tensors from the first call at an address on."""
    kept: dict[Any, Any] = {}

    def change(right: Any, x: Any, rest: Any, options: Any) -> Any:
        given = [x, *rest]
        key = (given[at].data_ptr(), tuple(given[at].shape))
        if x.dtype != torch.float64:
            given[at] = kept.setdefault(key, given[at].clone())
        return right(*given, **options)

    return Faulty(name, change)


@pytest.mark.parametrize(
    ("family", "row", "kernel", "at"),
    [
        ("convolutions", "conv2d", "convolution", 1),
        ("products", "mm", "mm", 1),
        ("indexing", "embedding", "embedding", 0),
    ],
)
@pytest.mark.one_in(2)
def test_what_is_kept_by_its_address_is_seen(family: str, row: str, kernel: str, at: int) -> None:
    assert not wrong(family, row, anew=True)
    with kept_by_address(kernel, at):
        assert any(wrong(family, row, seed=seed, anew=True) for seed in (5, 6, 7))


def test_standard_writes_other_numbers_for_each_operator_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr(census, "compared", lambda *given: asked.append(given[3:]) or [])
    rows = FAMILIES["spectral"]
    for sample in census.chosen("spectral"):
        census._compared(torch, "cpu", "spectral", sample)
    anew = [given[0].operator for given in asked if given[-1]]
    assert sorted(anew) == sorted(row.name for row in rows)


def instead(owner: Any, name: str, change: Callable[..., Any]) -> AbstractContextManager[Any]:
    """`change(right, tensors, options)` answers for `owner.name`, float64 aside."""

    def make(right: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            if given[0].dtype == torch.float64:
                return right(*given, **options)
            return change(right, given, options)

        return call

    return patched(owner, name, make)


def plain_softmax(right: Any, given: Any, options: Any) -> Any:
    x, dim = given[0], given[1]
    return x.exp() / x.exp().sum(dim, keepdim=True)


def one_pass(right: Any, given: Any, options: Any) -> Any:
    x, lines = given[0], tuple(range(-len(given[1]), 0))
    mean = x.mean(lines, keepdim=True)
    found = (x - mean) * ((x * x).mean(lines, keepdim=True) - mean * mean + given[4]).rsqrt()
    return found if given[2] is None else found * given[2] + given[3]


FUNCTIONAL = torch.nn.functional
FAULTS = (
    ("reductions", "softmax of great logits", torch.Tensor, "softmax", plain_softmax),
    ("norms", "norms far from zero", FUNCTIONAL, "layer_norm", one_pass),
)


@pytest.mark.parametrize(("family", "row", "owner", "name", "change"), FAULTS)
@pytest.mark.one_in(2)
def test_a_fault_of_one_range_is_seen(
    family: str, row: str, owner: Any, name: str, change: Callable[..., Any]
) -> None:
    with instead(owner, name, change):
        assert any(wrong(family, row, seed=seed) for seed in (5, 6, 7))


def test_places_cut_to_fifteen_bits_are_seen() -> None:
    def change(right: Any, w: Any, rest: Any, options: Any) -> Any:
        return right(w, rest[0] % 2**15, *rest[1:], **options)

    with Faulty("embedding", change):
        assert wrong("indexing", "places from 32768 on")


def test_a_list_whose_last_member_is_empty_is_seen() -> None:
    def change(right: Any, xs: Any, rest: Any, options: Any) -> Any:
        if len(xs) < 2 or xs[-1].numel():
            return right(xs, *rest, **options)
        kept = xs[-2].clone()
        right(xs, *rest, **options)
        xs[-2].copy_(kept)
        return None

    with Faulty("_foreach_mul_", change):
        assert any(wrong("lists", "list mul by a number over", seed=seed) for seed in range(16))


def of_chance() -> list[str]:
    return [part.label for part in chance_forms.forms(torch, "cpu") if not part.worst <= 1]


def test_each_form_of_chance_passes() -> None:
    assert of_chance() == []
