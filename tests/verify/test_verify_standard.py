"""The checks: each mutant is seen by its check, clean runs pass, odd machines are named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from verify_faults.layers import Operator, coarse, kept_as
from verify_faults.mutants import MUTANTS, Mutant
from verify_faults.runs import bad, checks, run_all

from gpusetup.verify.checks import memory, products, programs
from gpusetup.verify.values import RunOptions, set_for_checks

SLOW = {"compile", "speed", "copy-within"}
"""Named by their mutants in the long form only: each takes many seconds."""


@pytest.fixture(autouse=True, scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    variables = ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
    before = {name: os.environ.get(name) for name in variables}
    os.environ[variables[0]] = str(tmp_path_factory.mktemp("compiled"))
    os.environ[variables[1]] = "1"
    yield
    set_for_checks(options=RunOptions())
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def says(text: str) -> Callable[..., Any]:
    def raises(*_: Any, **__: Any) -> Any:
        raise RuntimeError(text)

    return raises


QUICK = [mutant for mutant in MUTANTS if mutant.catcher not in SLOW]


@pytest.mark.parametrize("mutant", QUICK, ids=lambda each: each.name)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(8)
def test_a_mutant_is_seen_by_the_check_that_is_named_for_it(mutant: Mutant) -> None:
    assert mutant.catcher in checks()
    assert bad(run_all(mutant, [mutant.catcher])), f"{mutant.catcher} passed"


def settings() -> tuple[Any, ...]:
    return (
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
    )


@pytest.mark.parametrize("name", [name for name in checks() if name not in SLOW])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(3)
def test_a_check_passes_with_other_numbers_and_leaves_settings_as_they_were(name: str) -> None:
    before = settings()
    assert bad(run_all(names=[name], seed=987_654_321)) == {}
    assert settings() == before


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        # A loss of many classes rounds as long sums do: 80 roundings of the 64 that were allowed.
        ("softmax", 1009),
        # A sum of 273, which bfloat16 rounds to 272: in 16 bits sums stay below 256.
        ("batches", 2036),
        # Adagrad brought a parameter of one number to 0.0004: it is rounded like its start.
        ("optimizer-steps", 500_013),
    ],
)
def test_a_seed_that_once_failed_on_a_sound_device_passes(name: str, seed: int) -> None:
    assert bad(run_all(names=[name], seed=seed)) == {}


# --- settings and devices that others have ---


def test_coarse_arithmetic_fails_where_no_setting_permits_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_tf32(found: Any, args: Any) -> Any:
        return (coarse(13)(args[0], ()) @ coarse(13)(args[1], ())).clone()

    with Operator("mm", in_tf32, kept_as("float32")):
        assert products.matmul("cpu").status == "failed"
        monkeypatch.setenv("DNNL_DEFAULT_FPMATH_MODE", "TF32")
        said = products.matmul("cpu")
    assert (said.status, "tf32 is permitted" in said.detail) == ("passed", True)


@pytest.mark.filterwarnings("ignore")
def test_what_a_check_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert programs.compiled("cpu").detail == "no C compiler"
    bus_error = "worker (pid 12) is killed by signal: Bus error. insufficient"
    monkeypatch.setattr(torch.utils.data, "DataLoader", says(bus_error))
    assert "--shm-size" in (programs.dataloader("cpu").hint or "")
    monkeypatch.setattr(torch, "empty", says("CUDA out of memory. Tried to allocate 64.00 MiB"))
    assert memory.memory("cpu").detail == "torch could not allocate any memory"
