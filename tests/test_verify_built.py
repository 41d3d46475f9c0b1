"""torch's own databases of modules and of optimizers: asked sample by sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator as Faulty
from verify_faults.layers import element

from gpusetup.verify.checks import built
from gpusetup.verify.database import loading
from gpusetup.verify.database import modules as of_modules
from gpusetup.verify.database import optimizers as of_optimizers
from gpusetup.verify.database.rules import known_wrong_form, module_left_out
from gpusetup.verify.values import FAILED, PASSED, SKIPPED, Asked, Outcome, WrongQuestion, ask_for

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    ask_for(Asked())


def asked_for(family: str, sample: str, seed: int = 3) -> Outcome:
    ask_for(Asked(seed, level="census", only=(f"census-{family}/{sample}",)))
    return built.built(family, "cpu")


@pytest.mark.parametrize(
    ("family", "sample"),
    (
        ("modules", "nn.BatchNorm2d/float32/0/train"),
        ("modules", "nn.MultiheadAttention/bfloat16/3/eval"),
        ("optimizers", "Adam/float32/4/sizes"),
        ("optimizers", "SparseAdam/bfloat16/0/sparse"),
    ),
)
def test_a_sample_agrees_with_float64_and_leaves_the_generators(family: str, sample: str) -> None:
    built.known_to(torch, family)
    before = torch.get_rng_state().tolist()
    found = asked_for(family, sample)
    assert found.status == PASSED and found.value is not None
    assert torch.get_rng_state().tolist() == before


@pytest.mark.parametrize(
    ("family", "sample"),
    (
        ("modules", "nn.Linear"),
        ("modules", "nn.Linear/float32/999/train"),
        ("modules", "nn.Linear/float32/0/eval"),
        ("modules", "nn.LazyLinear/float32/0/train"),
        ("optimizers", "Adam/float32/999/sizes"),
        ("optimizers", "Adam/float32/0/sparse"),
        ("optimizers", "Adam/int8/0/sizes"),
    ),
)
def test_a_name_of_no_sample_is_a_wrong_question(family: str, sample: str) -> None:
    with pytest.raises(WrongQuestion, match=f"no sample of census-{family}"):
        asked_for(family, sample)


@pytest.mark.parametrize("family", ("modules", "optimizers"))
def test_a_database_that_cannot_be_loaded_is_a_skip(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built.known_to.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, loading.HOME + f"common_{family}", None)
    found = built.built(family, "cpu")
    assert found.status == SKIPPED and "cannot be loaded" in found.detail
    built.known_to.cache_clear()


def test_every_module_is_asked_or_has_a_reason() -> None:
    infos = loading.modules(torch)
    known = of_modules.entries(infos)
    assert all(info.name in known or module_left_out(info.name) for info in infos)
    assert len(known) > 0.85 * len({info.name for info in infos})


def test_the_fused_form_that_torch_gives_wrong_is_not_asked_there() -> None:
    row = of_optimizers.entries(loading.optimizers(torch))["SGD"]
    wrong = known_wrong_form("fused", "SGD", "bfloat16", "cpu", (2, 13))
    assert wrong and not known_wrong_form("fused", "SGD", "bfloat16", "cpu", (2, 15))
    trial = of_optimizers.Trial("SGD", row.info, "sizes", "float32", (), 1.0)
    assert {"foreach", "fused", "differentiable"} == set(trial.forms(torch, "cpu"))


def low(found: Any, args: Any) -> bool:
    return bool(args[0].dtype == torch.float32 and found.numel() > 0)


@pytest.mark.parametrize(
    ("kernel", "family", "sample"),
    (
        ("gelu", "modules", "nn.GELU/float32/1/train"),
        ("sqrt", "optimizers", "Adam/float32/1/sizes"),
    ),
)
def test_a_fault_in_float32_is_seen(kernel: str, family: str, sample: str) -> None:
    built.known_to(torch, family)
    with Faulty(kernel, element(0.1, 0), when=low, exact=True):
        found = asked_for(family, sample)
    assert found.status == FAILED and f"census-{family}/" in str(found.hint)
