"""The census: torch's own samples, skips and tolerances; what differs is not called broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from verify_faults.layers import Operator, scaled

from gpusetup.verify.checks import census
from gpusetup.verify.values import (
    DIFFERS,
    PASSED,
    RunOptions,
    set_for_checks,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def asked_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's tests read the program's arguments and change the process, which ends after them."""
    monkeypatch.setattr(sys, "argv", ["verify"])
    settings = torch.backends.flags_frozen.__globals__
    with torch.random.fork_rng():
        yield
    settings["__allow_nonbracketed_mutation_flag"] = True
    set_for_checks(options=RunOptions())


def test_what_differs_is_named_and_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the two calls is wrong: the CPU stands for the device too."""
    sin = {"sin": census.database()["sin"]}
    monkeypatch.setattr(census, "database", lambda: sin)
    set_for_checks(options=RunOptions(3, level="census"))
    calls = iter(range(10**6))
    with Operator("sin", lambda f, a: scaled(1.5)(f, a) if next(calls) % 2 else f):
        found = census.operators("cpu")
    assert (found.status, found.problem) == (PASSED, DIFFERS)
    assert "1 differ: sin: Tensor-likes are not close" in found.detail


@pytest.mark.parametrize(
    "name",
    [
        # A GPU keeps statistics where a CPU keeps nothing; random numbers depend on the device.
        *("native_batch_norm", "nn.functional.scaled_dot_product_attention"),
        *("nn.functional.dropout", "rand_like", "unique"),
    ],
)
def test_what_torchs_own_test_skips_is_not_compared(name: str) -> None:
    """Both called a sound H100 wrong, when verify compared what torch does not."""
    info = census.database()[name]
    assert census.tolerances_of(info, "cuda", torch.float32) is None
