"""The terms of the memory model against published figures, and rules that hold for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.choose import Limits, candidates, choose
from gpusetup.plan.answer.decide import Case, decide
from gpusetup.plan.answer.ladder import ORDINALS, ladder
from gpusetup.plan.answer.solve import gpus_needed
from gpusetup.plan.memory import loss
from gpusetup.plan.memory.capacity import capacity, size
from gpusetup.plan.memory.constants import shipped_constants
from gpusetup.plan.memory.optimizers import OPTIMIZERS
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.memory.states import SHARDED
from gpusetup.plan.model.named import model_named, model_of_size
from gpusetup.plan.model.workload import Recipe, Workload

C = shipped_constants()
VANILLA = Recipe()
BIG = model_of_size(7_500_000_000, text=False)
QWEN = model_named("qwen3-8b")
LINUX = Limits(capacity=80 * GIB)


def a_job(**how: object) -> Workload:
    return Workload(**{"shape": QWEN, "context": 8192, "gpus": 4, **how})  # type: ignore[arg-type]


JOBS = st.builds(
    Workload,
    shape=st.sampled_from(["qwen3-0.6b", "qwen3-14b", "gpt2"]).map(model_named),
    gpus=st.sampled_from([1, 2, 4, 6, 8, 16]),
    context=st.integers(1, 300_000),
    batch=st.one_of(st.none(), st.integers(1, 4096)),
    strategy=st.sampled_from(sorted(set(SHARDED) - {"hsdp"})),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    dtype=st.sampled_from(["fp32", "bf16"]),
    amp=st.sampled_from([None, "bf16"]),
    checkpointing=st.booleans(),
    loss=st.sampled_from(sorted(loss.LOSSES)),
    frozen=st.sampled_from([0.0, 0.5, 1.0]),
)
RECIPES = st.builds(Recipe, offload=st.booleans(), sp=st.sampled_from([1, 2, 4]), env=st.booleans())


# --- published figures --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "fsdp"])
@pytest.mark.parametrize("context", [2048, 200_000])
@pytest.mark.parametrize("batch", [None, 24])
@pytest.mark.one_in(2)
def test_the_fewest_gpus_are_those_of_asking_for_every_number(
    strategy: str, context: int, batch: int | None
) -> None:
    heads = model_named("qwen2.5-0.5b")  # 14 heads: a sequence degree that is no power of two
    asked = Case(limits=replace(LINUX, capacity=20 * GIB), constants=C)
    for shape in (heads, QWEN):
        w = a_job(shape=shape, strategy=strategy, context=context, batch=batch)
        numbers = (n for n in range(1, 1025) if decide(replace(w, gpus=n), asked).recipe)
        found = gpus_needed(w, asked)
        least = found.fit.workload.gpus if found.recipe else None
        assert least == next(numbers, None)


@given(JOBS, RECIPES)
@settings(max_examples=50)
def test_the_ladder_s_recipes_save_more_and_more(w: Workload, r: Recipe) -> None:
    rungs = [rung for rung in ladder(w, r, LINUX, C) if rung.step.startswith(ORDINALS)]
    saved = [rung.saves_gib for rung in rungs]
    assert saved == sorted(saved) and len(set(saved)) == len(saved)
    assert all(value > 0 for value in saved)


# --- rules that hold for all --------------------------------------------------------------------


@given(JOBS, RECIPES)
@settings(max_examples=40)
def test_more_of_anything_never_takes_less(w: Workload, r: Recipe) -> None:
    here = parts(w, r, C).total
    assert parts(replace(w, context=w.context + 100), r, C).total >= here
    assert parts(w, replace(r, env=False), C).total >= here or not r.env
    assert parts(replace(w, frozen=0.0), r, C).total >= here
    assert (
        parts(replace(w, loss="eager"), r, C).total >= parts(replace(w, loss="fused"), r, C).total
    )
    if w.batch is not None:
        assert parts(replace(w, batch=w.batch + 1), r, C).total >= here


@given(JOBS, RECIPES)
@settings(max_examples=40)
def test_every_part_is_finite_and_not_negative(w: Workload, r: Recipe) -> None:
    found = parts(w, r, C)
    values = (found.states, found.checkpoints, found.logits, found.fragmentation, found.other)
    assert all(math.isfinite(value) and value >= 0 for value in values)
    assert found.total == sum(values)


@given(JOBS, st.floats(1, 1000))
@settings(max_examples=40)
def test_the_recipe_is_the_first_that_fits(w: Workload, gib: float) -> None:
    limits = Limits(capacity=gib * GIB)
    fit = choose(w, limits, C)
    order = candidates(w, limits)
    fitting = [r for r in order if parts(w, r, C).total <= limits.capacity]
    assert (fit.chosen.recipe if fit.chosen else None) == (fitting[0] if fitting else None)
    assert list(order) == sorted(order, key=lambda r: r.rank)


@given(JOBS)
@settings(max_examples=40)
def test_without_linux_there_is_neither_sp_nor_offload_and_without_env_none(w: Workload) -> None:
    windows = candidates(w, Limits(capacity=GIB, env=False, linux=False))
    assert windows == (Recipe(),)
    wsl = candidates(w, Limits(capacity=GIB, env=False))
    assert not any(r.env for r in wsl)
    assert any(r.offload for r in wsl) == SHARDED[w.strategy][0]


@given(RECIPES)
def test_a_recipe_reads_back_what_it_prints(r: Recipe) -> None:
    assert Recipe.parse(str(r)) == r


def test_the_order_is_the_one_of_the_measured_cells() -> None:
    names = [str(r) for r in candidates(a_job(gpus=8), LINUX)]
    assert names == [
        "vanilla", "Env", "SP=2", "Env + SP=2", "SP=4", "Env + SP=4", "SP=8", "Env + SP=8",
        "Env + Offload", "Env + Offload + SP=2", "Env + Offload + SP=4", "Env + Offload + SP=8",
    ]  # fmt: skip


# --- capacity -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nominal", "seen"),
    [
        ("NVIDIA A100-SXM4-80GB", 80, 79.15),
        ("NVIDIA H20", 96, 95.0),
        ("NVIDIA GeForce RTX 4090", 24, 23.65),
        ("Tesla T4", 16, 14.75),
        ("NVIDIA L40S", 48, 44.5),
        ("NVIDIA A100-SXM4-40GB", 40, 39.4),
        ("Tesla V100-SXM2-32GB", 32, 31.74),
        ("NVIDIA GeForce RTX 3060", 12, 11.76),
        ("NVIDIA H200", 141, 139.8),
        (None, 24, 23.69),
    ],
)
def test_cuda_sees_less_than_the_nominal_memory(
    name: str | None, nominal: float, seen: float
) -> None:
    assert capacity(name, nominal * GIB) / GIB == pytest.approx(seen, abs=0.4)


def test_a_part_of_a_gpu_is_not_taken_for_the_whole() -> None:
    assert capacity("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB) < 10 * GIB


def test_sizes_are_read_as_people_write_them() -> None:
    assert size("24GiB") == size("24 GB") == size("24g") == 24 * GIB
    assert size("4096MiB") == 4 * GIB


@pytest.mark.parametrize("text", ["", "24", "0GiB", "1KiB", "999999GiB", "GiB", "-4GiB", "4TB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    if text == "24":  # a bare number is GiB
        assert size(text) == 24 * GIB
        return
    with pytest.raises(UsageError):
        size(text)
