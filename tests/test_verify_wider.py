"""Faults of unusual calls: lost strides of places, rests of channels, one pass, lost factors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from verify_faults.layers import Operator as Faulty
from verify_faults.layers import patched

from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.forms import WIDER, InPlace, IntoOut
from gpusetup.verify.operators.sampling import row_of

Context = Callable[[], AbstractContextManager[Any]]


def _of_the_first(found: Any, args: Any) -> Any:
    """Each batch takes the places of the first one, where those have no memory for each."""
    x, dim, index = args[:3]
    if index.dim() < 3 or index.stride(-1) or index.shape[-1] < 2:
        return found
    return x.gather(dim, index[:1].expand_as(index))


def _block_before(found: Any, args: Any) -> Any:
    """The rest of the channels is that of the block before."""
    x, weight, channels = args[0], args[1], args[0].shape[1]
    apart = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    rest = channels % 8
    if not apart or weight.shape[1] > 1 or channels < 9 or not rest:
        return found
    wrong = found.clone()
    wrong[:, -rest:] = found[:, channels - rest - 8 : channels - 8]
    return wrong


def _in_one_pass(found: Any, args: Any) -> Any:
    x, (_, _, scale) = args[0], found
    spread = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
    rate = (spread.clamp(min=0) + 1e-5).rsqrt() / scale
    return found[0] * rate, found[1], scale * rate


def _rounded_sum(found: Any, args: Any) -> Any:
    count = args[0].numel() // max(1, found.numel())
    return (found.float() * count).half() / count


def _stays_where_it_is(found: Any, args: Any) -> Any:
    """The sum of the shares is kept in half precision, by eight numbers at a time."""
    x, dim = args[0].float(), args[1]
    total = torch.zeros_like(x.select(dim, 0)).to(args[0].dtype)
    for some in x.exp().split(8, dim):
        total = total + some.sum(dim).to(total.dtype)
    return (x - total.float().log().unsqueeze(dim)).to(found.dtype)


def _without_alpha(right: Any) -> Any:
    """Where nothing is added, the factor is lost too."""

    def call(c: Any, a: Any, b: Any, alpha: float = 1, beta: float = 1) -> Any:
        lost = beta == 0 and c.dtype != torch.float64
        return right(c, a, b, alpha=1 if lost else alpha, beta=beta)

    return call


FAULTS: dict[str, tuple[str, str, str, Context]] = {
    "places of the first batch": (
        *("indexing", "batched places without strides", "float32"),
        lambda: Faulty("gather", _of_the_first),
    ),
    "a rest of channels": (
        *("convolutions", "convolutions of any number of channels", "float32"),
        lambda: Faulty("convolution", _block_before),
    ),
    "one pass": (
        *("norms", "wide lines far from zero", "float32"),
        lambda: Faulty("native_layer_norm", _in_one_pass),
    ),
    "a sum above the largest half": (
        *("reductions", "means of great halves", "float16"),
        lambda: Faulty("mean", _rounded_sum),
    ),
    "a sum that stays": (
        *("reductions", "shares of like halves", "bfloat16"),
        lambda: Faulty("_log_softmax", _stays_where_it_is),
    ),
    "a factor that is lost": (
        *("products", "products by factors", "float32"),
        lambda: patched(torch, "baddbmm", _without_alpha),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.one_in(3)
def test_a_fault_of_a_class_is_seen(fault: str) -> None:
    family, name, dtype, context = FAULTS[fault]
    row = row_of(family, name)
    sample = Sample(name, dtype, "contiguous", "tiny", 1)
    assert all(part.worst <= 0.9 for part in compared(torch, "cpu", row, sample, 4))
    with context():
        wrong = [part for part in compared(torch, "cpu", row, sample, 4) if not part.worst <= 1]
    assert wrong


@pytest.mark.parametrize("form", [IntoOut, InPlace])
def test_memory_that_is_written_to_is_a_part_of_wider_one(form: Any) -> None:
    x, seen = torch.randn(3, 5), []

    class Seen(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            options = kwargs or {}
            over = options.get("out", args[0] if func._schema.name.endswith("_") else None)
            if over is not None and func._schema.name.startswith("aten::exp"):
                seen.append(over.stride())
            return func(*args, **options)

    with Seen(), form(part=True):
        found = x.exp()
    assert seen == [(5 + WIDER, 1)] and torch.equal(found, x.exp()) and found.is_contiguous()
