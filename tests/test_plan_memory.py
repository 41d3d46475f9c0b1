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
from gpusetup.plan.memory import activations, loss
from gpusetup.plan.memory import states as standing
from gpusetup.plan.memory.capacity import capacity, size
from gpusetup.plan.memory.constants import shipped_constants
from gpusetup.plan.memory.optimizers import OPTIMIZERS
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.memory.states import SHARDED
from gpusetup.plan.memory.step import step_bytes
from gpusetup.plan.model.named import model_named, model_of_size
from gpusetup.plan.model.workload import Recipe, Workload, tokens_per_gpu

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


@pytest.mark.parametrize(
    ("strategy", "gigabytes"), [("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9)]
)
def test_zero_takes_what_its_paper_says(strategy: str, gigabytes: float) -> None:
    # Rajbhandari et al., figure 1: 7.5B parameters, 64 GPUs, mixed precision and Adam.
    w = Workload(shape=BIG, context=1, gpus=64, strategy=strategy)  # type: ignore[arg-type]
    assert standing.state_bytes(w, VANILLA) / 1e9 == pytest.approx(gigabytes, abs=0.06)


def test_fsdp_with_adamw_takes_16_bytes_a_parameter_over_the_gpus() -> None:
    assert standing.state_bytes(a_job(), VANILLA) == QWEN.parameters * 16 / 4


@pytest.mark.parametrize(
    ("optimizer", "dtype", "bytes_a_parameter"),
    [
        ("adamw", "fp32", 16),
        ("adam", "fp32", 16),
        ("sgd", "fp32", 8),
        ("sgd-momentum", "fp32", 12),
        ("adamw8bit", "fp32", 10.03),
        ("adamw", "bf16", 8),
        ("adamw8bit", "bf16", 6.03),
    ],
)
def test_states_by_optimizer_and_dtype(
    optimizer: str, dtype: str, bytes_a_parameter: float
) -> None:
    w = a_job(gpus=1, strategy="single", optimizer=optimizer, dtype=dtype, amp=None)
    per = standing.state_bytes(w, VANILLA) / QWEN.parameters
    assert per == pytest.approx(bytes_a_parameter, abs=0.01)


def test_adafactor_keeps_rows_and_columns_instead_of_matrices() -> None:
    w = a_job(gpus=1, strategy="single", optimizer="adafactor", amp=None)
    assert 8 < standing.state_bytes(w, VANILLA) / QWEN.parameters < 8.01


def test_autocast_keeps_a_copy_of_the_weights_and_ddp_one_of_the_gradients() -> None:
    plain = a_job(gpus=1, strategy="single", amp=None, checkpointing=False)
    states = standing.state_bytes(plain, VANILLA)
    cast = replace(plain, amp="bf16")
    ddp = standing.state_bytes(replace(plain, strategy="ddp", gpus=2), VANILLA)
    looked_up = 0 if QWEN.tied else QWEN.vocabulary * QWEN.hidden
    assert standing.cast_bytes(cast) == 2 * (QWEN.parameters - looked_up)
    assert ddp - states == 4 * QWEN.parameters
    for one in (cast, replace(cast, checkpointing=True)):
        assert standing.state_bytes(one, VANILLA) == states


def test_autocast_keeps_its_copies_until_the_forward_pass_ends() -> None:
    """As `--code` traces it: 4.11 and 4.66 GiB at the end of a checkpointed BERT's forward pass."""
    job = a_job(gpus=1, strategy="single", batch=1, step="fused")
    one = replace(job, context=64, accumulation=True)
    wide, cast = (parts(replace(one, amp=amp), VANILLA, C) for amp in (None, "bf16"))
    assert cast.states - wide.states == 2 * QWEN.parameters
    frozen = replace(one, lora=8, amp="bf16")
    assert parts(frozen, VANILLA, C).states == parts(replace(frozen, amp=None), VANILLA, C).states


def test_frozen_parameters_have_neither_gradients_nor_states() -> None:
    w = a_job(gpus=1, strategy="single", amp=None, frozen=1.0)
    assert standing.state_bytes(w, VANILLA) == 4 * QWEN.parameters


def test_lora_trains_its_adapters_only() -> None:
    w = a_job(gpus=1, strategy="single", amp=None, dtype="bf16", lora=16)
    assert w.trained == w.adapters == 43_646_976
    assert standing.state_bytes(w, VANILLA) == 2 * QWEN.parameters + 16 * w.adapters
    small = replace(w, adapter_dtype="bf16")
    assert standing.state_bytes(small, VANILLA) == 2 * QWEN.parameters + 8 * w.adapters


def test_the_gpt2_recommender_of_the_guide_takes_2_5_to_3_gb_a_gpu() -> None:
    from gpusetup.plan.model.named import with_tables

    shape = with_tables(model_named("gpt2"), 50_000 + 20_000, 768 // 8)
    w = Workload(
        shape=shape, context=1, batch=2048, gpus=8, strategy="dp", amp=None, checkpointing=False
    )
    assert 2.5e9 < parts(w, VANILLA, C).total - C.context_bytes < 3e9


def test_dataparallel_gathers_all_logits_on_the_first_gpu() -> None:
    how = {"shape": model_named("gpt2"), "context": 512, "batch": 16, "gpus": 8, "loss": "eager"}
    dp, ddp = a_job(**how, strategy="dp"), a_job(**how, strategy="ddp")
    assert loss.logit_amount(dp, VANILLA) == 8 * loss.logit_amount(ddp, VANILLA)
    assert loss.logit_amount(dp, VANILLA) == 16 * 512 * 50257


def test_hsdp_shares_among_the_gpus_of_a_group_only() -> None:
    w = a_job(gpus=16, strategy="hsdp", shard=4)
    assert standing.state_bytes(w, VANILLA) == 4 * QWEN.parameters
    assert standing.host_bytes(w, Recipe(offload=True)) == 4 * 16 * QWEN.parameters


def test_offload_moves_all_states_to_the_host() -> None:
    w, r = a_job(), Recipe(offload=True, env=True)
    assert standing.state_bytes(w, r) == 0
    assert standing.host_bytes(w, r) == 16 * QWEN.parameters


def test_tensor_and_pipeline_parallelism_divide_the_states() -> None:
    whole = standing.state_bytes(a_job(gpus=1), VANILLA)
    w = a_job(gpus=8, tensor_parallel=4, pipeline_parallel=2)
    assert standing.state_bytes(w, VANILLA) == whole / 8
    assert loss.logit_amount(w, VANILLA) == loss.logit_amount(a_job(gpus=1), VANILLA) / 4


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


def test_gradients_are_not_there_yet_when_the_logits_are() -> None:
    w = a_job(batch=64, loss="eager", gpus=1, strategy="single", amp=None)
    found = parts(w, VANILLA, C)
    assert found.logits > 0 and found.states == 12 * QWEN.parameters
    assert parts(replace(w, accumulation=True), VANILLA, C).states == 16 * QWEN.parameters


def test_a_tiny_batch_peaks_in_the_optimizer_s_step() -> None:
    w = a_job(batch=1, context=1, gpus=1, strategy="single", amp=None)
    found = parts(w, VANILLA, C)
    assert found.states == 16 * QWEN.parameters and found.checkpoints == found.logits == 0
    assert found.other == C.context_bytes + 4 * QWEN.parameters  # a copy of the second moments


def test_the_budget_of_tokens_is_twice_the_context_over_sp() -> None:
    w = a_job(context=40961)
    assert tokens_per_gpu(w, VANILLA) == 81922
    assert tokens_per_gpu(w, Recipe(sp=4)) == math.ceil(81922 / 4)


def test_a_batch_is_divided_among_the_groups_and_rounded_up() -> None:
    w = a_job(batch=10, context=100)
    assert tokens_per_gpu(w, VANILLA) == 3 * 100
    assert tokens_per_gpu(w, Recipe(sp=2)) == 5 * 100 / 2


def test_logits_and_a_layer_s_backward_pass_do_not_stand_together() -> None:
    fused = parts(a_job(loss="fused"), VANILLA, C)
    held = parts(a_job(), VANILLA, C)
    assert fused.logits == 0 < held.logits
    layer = activations.layer_bytes(a_job(), VANILLA)
    assert fused.other == pytest.approx(held.other + layer)


def test_logits_that_are_smaller_than_a_layer_are_not_counted_beside_it() -> None:
    few = a_job(shape=replace(QWEN, vocabulary=100))
    found = parts(few, VANILLA, C)
    assert loss.logit_amount(few, VANILLA) > 0 == found.logits
    assert found.other > activations.layer_bytes(few, VANILLA)


def test_offload_is_not_offered_where_the_machine_could_not_hold_it() -> None:
    w = a_job(gpus=1, context=1024)
    need = standing.host_bytes(w, Recipe(offload=True))
    enough = Limits(capacity=40 * GIB, host=need)
    fit = choose(w, enough, C)
    assert fit.chosen and fit.chosen.recipe == Recipe(offload=True, env=True)
    assert choose(w, replace(enough, host=need - 1), C).chosen is None


@given(JOBS, RECIPES)
@settings(max_examples=50)
def test_the_ladder_s_recipes_save_more_and_more(w: Workload, r: Recipe) -> None:
    rungs = [rung for rung in ladder(w, r, LINUX, C) if rung.step.startswith(ORDINALS)]
    saved = [rung.saves_gib for rung in rungs]
    assert saved == sorted(saved) and len(set(saved)) == len(saved)
    assert all(value > 0 for value in saved)


def test_expandable_segments_take_away_the_fragmentation_and_nothing_else() -> None:
    without, with_env = parts(a_job(), VANILLA, C), parts(a_job(), Recipe(env=True), C)
    assert with_env.fragmentation == 0 < without.fragmentation
    assert without.total - with_env.total == pytest.approx(without.fragmentation)


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
def test_gradients_that_stay_never_take_less(w: Workload, r: Recipe) -> None:
    gone, stay = parts(w, r, C).total, parts(replace(w, accumulation=True), r, C).total
    if w.batch is None:
        assert gone == stay
    most = standing.gradient_state_bytes(w, r) + step_bytes(w, r)
    assert stay <= gone + most * 1.0001


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
