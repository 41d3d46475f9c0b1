"""What published memory figures taught: the terms of the memory model."""

from __future__ import annotations

from typing import Any

import pytest

from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.question import Question
from gpusetup.plan.answer.workload import shape_of_question, workload_of
from gpusetup.plan.memory.activations import (
    attention_bytes,
    checkpoint_amount,
    layer_bytes,
    layer_bytes_a_token,
    pair_bytes,
)
from gpusetup.plan.memory.constants import shipped_constants
from gpusetup.plan.memory.gaps import gaps
from gpusetup.plan.memory.loss import logit_amount, loss_bytes
from gpusetup.plan.memory.parts import Parts, parts
from gpusetup.plan.memory.states import host_bytes, standing_bytes, state_bytes
from gpusetup.plan.memory.step import step_bytes
from gpusetup.plan.model.named import model_named
from gpusetup.plan.model.trainers import rows, trainer_settings
from gpusetup.plan.model.workload import Recipe, Workload

C = shipped_constants()
VANILLA = Recipe()
LLAMA = model_named("llama-3.1-8b")


def a_job(**how: object) -> Workload:
    usual = {"shape": LLAMA, "context": 4096, "batch": 1, "strategy": "single", "dtype": "bf16",
             "amp": None, "loss": "eager"}  # fmt: skip
    return Workload(**{**usual, **how})  # type: ignore[arg-type]


def gib(w: Workload, r: Recipe = VANILLA) -> float:
    return parts(w, r, C).total / GIB


def test_reserved_is_allocated_and_the_gaps_of_which_those_that_stay_decide() -> None:
    found = parts(a_job(gpus=8, strategy="fsdp", batch=8), VANILLA, C)
    assert found.reserved == pytest.approx(found.allocated + found.fragmentation + found.cached)
    assert found.total == pytest.approx(
        found.allocated + found.fragmentation + C.context_bytes + C.nccl_bytes
    )
    assert found.fragmentation > 0 and found.cached > 0
    env = parts(a_job(gpus=8, strategy="fsdp", batch=8), Recipe(env=True), C)
    assert 0 < env.fragmentation < found.fragmentation
    # Expandable segments leave no more gaps; of logits, which have pieces of one size, only they.
    plain = a_job(gpus=8, strategy="fsdp", batch=8, loss="fused")
    assert parts(plain, Recipe(env=True), C).reserved <= parts(plain, VANILLA, C).reserved + 1
    alone = a_job(batch=8, checkpointing=True)
    with_logits, without = (parts(alone, Recipe(env=env), C) for env in (True, False))
    assert with_logits.logits > 0
    assert with_logits.reserved - without.reserved < C.gaps_expandable * with_logits.logits
    late = a_job(gpus=8, strategy="fsdp1", batch=8)
    assert parts(late, Recipe(env=True), C).reserved < parts(late, VANILLA, C).reserved
    assert env.allocated == found.allocated


def test_a_shorter_copy_of_the_logits_leaves_gaps_only_where_there_is_one() -> None:
    def left(loss: str = "eager-old", **how: Any) -> float:
        return gaps(a_job(loss=loss, **how), VANILLA, C, 1e9, 0.0)

    assert left(batch=1) == pytest.approx(1e9 * C.gaps)
    assert left(batch=4) > left(batch=1)
    assert left(batch=4) == pytest.approx(left("compiled", batch=4) + shifted(4))
    sharded: dict[str, Any] = {"gpus": 2, "strategy": "fsdp", "batch": 8}
    assert left(**sharded) == left("compiled", **sharded)


def shifted(batch: int) -> float:
    """Of the copy of the logits: what its bytes a logit come to."""
    return float(C.gaps_shifted * logit_amount(a_job(loss="eager-old", batch=batch), VANILLA))


def test_a_prepared_quantised_model_has_32_bit_checkpoints_and_logits() -> None:
    job = a_job(lora=16, quantize="nf4", loss="eager-old", amp="bf16")
    prepared = replace(job, upcast_rest=True)
    before, after = parts(job, VANILLA, C), parts(prepared, VANILLA, C)
    assert after.checkpoints == 2 * before.checkpoints
    assert 1.3 < after.logits / before.logits < 1.35
    # Not quantised, nothing was prepared.
    lora = a_job(lora=16, loss="eager-old")
    assert parts(replace(lora, upcast_rest=True), VANILLA, C) == parts(lora, VANILLA, C)


def test_fsdp1_has_no_32_bit_parameters_beside_a_quantised_base() -> None:
    shape = model_named("mistral-7b")
    job = Workload(shape=shape, context=4096, gpus=2, batch=4, quantize="nf4", lora=16,
                   dtype="bf16", amp="bf16")  # fmt: skip
    for strategy, same in (("fsdp1", True), ("ddp", False)):
        one = replace(job, strategy=strategy)
        assert (parts(replace(one, upcast_rest=True), VANILLA, C) == parts(one, VANILLA, C)) is same


def test_fsdp1_holds_the_gradients_of_checkpoints_beside_frozen_weights() -> None:
    how = {"gpus": 4, "strategy": "fsdp1", "batch": 32, "loss": "fused", "dtype": "bf16"}
    lora = a_job(**how, lora=16, lora_targets="attention")
    one, two = (parts(replace(lora, strategy=s), VANILLA, C) for s in ("fsdp", "fsdp1"))
    assert two.other - one.other == pytest.approx(one.checkpoints)
    full = a_job(**how)
    other = parts(replace(full, strategy="fsdp"), VANILLA, C)
    assert parts(full, VANILLA, C).allocated == pytest.approx(other.allocated)


def test_a_dropout_of_eager_attention_keeps_its_copy_and_mask() -> None:
    shape = model_named("bert-large-uncased")
    w = a_job(shape=shape, context=512, checkpointing=False, attention="eager", dtype="fp32")
    plain = replace(w, shape=replace(shape, dropout=False))
    masks = 2 * shape.hidden
    kept = layer_bytes_a_token(w) - layer_bytes_a_token(plain) - masks
    assert kept == 512 * shape.heads * (1 + 4)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_backward_pass_of_eager_attention_takes_twelve_bytes_a_pair(dtype: str) -> None:
    w = a_job(checkpointing=True, dtype=dtype, repeat_kv=True)
    more = layer_bytes(replace(w, attention="eager"), VANILLA) - layer_bytes(w, VANILLA)
    assert more == 12 * LLAMA.heads * w.context**2
    kept = {"checkpointing": False, "attention": "eager"}
    both = [layer_bytes_a_token(one) * w.context + layer_bytes(one, VANILLA)
            for one in (replace(w, **kept), replace(w, checkpointing=False))]  # fmt: skip
    assert both[0] - both[1] == 12 * LLAMA.heads * w.context**2
    held = [gaps(one, VANILLA, C, 100.0, 1.0) for one in (w, replace(w, attention="eager"))]
    assert held[0] < held[1]


def test_megatron_keeps_its_gradients_in_32_bits() -> None:
    w = Workload(shape=LLAMA, context=4096, batch=1, gpus=8, accumulation=True,
                 **trainer_settings("megatron"))  # fmt: skip
    each = state_bytes(w, VANILLA) / LLAMA.parameters
    assert each == pytest.approx(6 + 12 / 8)
    assert step_bytes(w, VANILLA) == 0


def test_zero_3_steps_one_sub_group_after_the_other() -> None:
    how = {"gpus": 4, "batch": 4, "amp": "bf16", "dtype": "fp32", "step": "fused"}
    two, three = (step_bytes(a_job(strategy=s, **how), VANILLA) for s in ("zero2", "zero3"))
    # a flat copy in 16 bits stands while the 32-bit one is made
    assert two == pytest.approx(LLAMA.parameters * 6 / 4) and three == 4e9
    small = a_job(strategy="zero3", **{**how, "gpus": 16, "batch": 16})
    assert step_bytes(small, VANILLA) == pytest.approx(LLAMA.parameters / 4)


def test_gpt2_drops_out_unless_its_config_says_otherwise() -> None:
    shape = model_named("gpt2")
    assert shape.dropout and not model_named("vit-base-patch16-224").dropout


def test_the_tokens_of_a_denoiser_follow_its_resolution() -> None:
    flux = a_job(shape=model_named("flux"), context=1613)
    assert flux.length == 1613
    assert a_job(shape=model_named("whisper-small"), context=448).length == 1500


def test_a_loss_in_place_holds_the_logits_and_their_gradient() -> None:
    held = [loss_bytes(a_job(loss=name), VANILLA, C) for name in ("eager", "in-place")]
    assert held[0] - held[1] == 10 * logit_amount(a_job(), VANILLA)


@pytest.mark.parametrize(
    ("change", "most"),
    [
        ({"lora": 16}, 1.0),
        ({"lora": 16, "quantize": "int8"}, 0.65),
        ({"lora": 16, "quantize": "nf4"}, 0.47),
        ({"lora": 16, "quantize": "nf4-dq"}, 0.45),
    ],
)
def test_a_quantised_base_takes_its_bits(change: dict[str, object], most: float) -> None:
    w = a_job(**change)
    assert standing_bytes(w, VANILLA) / (2 * LLAMA.parameters) < most + 0.06


def test_what_is_not_quantised_may_be_made_32_bit() -> None:
    small = a_job(lora=16, quantize="nf4")
    grown = standing_bytes(replace(small, upcast_rest=True), VANILLA)
    assert grown - standing_bytes(small, VANILLA) == 2 * LLAMA.outside


SAVING = (
    {"checkpointing": True},
    {"fused_kernels": True},
    {"compile": True},
    {"loss": "compiled"},
    {"loss": "fused"},
    {"step": "backward"},
    {"step": "fused"},
    {"optimizer": "adamw8bit"},
    {"optimizer": "paged-adamw8bit"},
    {"optimizer": "muon"},
    {"offload_optimizer": True},
)


@pytest.mark.parametrize("change", SAVING, ids=str)
def test_what_saves_memory_never_takes_more(change: dict[str, object]) -> None:
    w = a_job(checkpointing=False)
    assert gib(replace(w, **change)) <= gib(w)


def test_selective_checkpointing_lies_between_all_and_none() -> None:
    full, none = a_job(loss="fused"), a_job(loss="fused", checkpointing=False)
    for selective in ("op", "2", "4"):
        assert gib(full) < gib(replace(full, selective=selective)) < gib(none)
    assert gib(replace(full, selective="4")) > gib(replace(full, selective="2"))


def test_a_checkpoint_of_several_layers_keeps_fewer_inputs_and_computes_more_anew() -> None:
    one = a_job(loss="fused", lora=8)
    two = replace(one, checkpoint_layers=2)
    assert checkpoint_amount(two, VANILLA) == checkpoint_amount(one, VANILLA) / 2
    more = layer_bytes(two, VANILLA) - layer_bytes(one, VANILLA)
    assert more == pytest.approx(layer_bytes_a_token(one) * one.context)
    whole = replace(one, checkpoint_layers=one.shape.layers)
    assert layer_bytes(replace(one, checkpoint_layers=1000), VANILLA) == layer_bytes(whole, VANILLA)
    plain = replace(two, checkpointing=False)
    assert layer_bytes(plain, VANILLA) < layer_bytes(one, VANILLA)
    question = Question(
        model="llama-3.1-8b", context=2048, batch=1, checkpointing=True, checkpoint_layers=4
    )
    assert workload_of(question, LLAMA, 1).checkpoint_layers == 4
    with pytest.raises(UsageError, match="checkpoint-layers"):
        shape_of_question(replace(question, checkpoint_layers=0))


def test_eager_attention_grows_with_the_square_of_the_length() -> None:
    w = a_job(checkpointing=False, attention="eager", repeat_kv=True)
    short = layer_bytes_a_token(w) - layer_bytes_a_token(replace(w, attention="flash"))
    w = replace(w, context=8192)
    long = layer_bytes_a_token(w) - layer_bytes_a_token(replace(w, attention="flash"))
    assert long == 2 * short == 8192 * 32 * 6


def test_keys_and_values_that_heads_share_are_copied_but_by_flash_attention() -> None:
    w = a_job(checkpointing=False)
    more = 2 * (LLAMA.query - LLAMA.key_value) * 2
    for how in ({"attention": "sdpa"}, {"repeat_kv": True}):
        kept = attention_bytes(replace(w, **how)) - attention_bytes(w)
        assert kept - more == pair_bytes(replace(w, **how))
    alone = a_job(shape=model_named("llama-2-7b"), checkpointing=False)
    assert attention_bytes(replace(alone, repeat_kv=True)) == attention_bytes(alone)


def test_a_capped_family_writes_its_scores_unless_its_trainer_has_a_kernel() -> None:
    question = Question(model="gemma-2-9b", context=2048, batch=1)
    shape = model_named("gemma-2-9b")
    said = {name: workload_of(replace(question, trainer=name), shape, 1).attention
            for name in ("hf", "litgpt", "unsloth")}  # fmt: skip
    assert said == {"hf": "eager", "litgpt": "eager", "unsloth": "flash"}
    assert workload_of(replace(question, attention="flash"), shape, 1).attention == "flash"
    plain = replace(shape, kind="gemma")
    w = workload_of(question, shape, 1)
    more = loss_bytes(w, VANILLA, C) - loss_bytes(replace(w, shape=plain), VANILLA, C)
    assert more == logit_amount(w, VANILLA) * w.compute_bytes


def test_what_is_gathered_is_not_there_at_the_optimizers_step() -> None:
    how = {"strategy": "fsdp", "context": 64, "loss": "fused"}
    w = a_job(**how, checkpointing=True)
    found = parts(w, VANILLA, C)
    assert found.states + found.other - found.runtime == pytest.approx(
        state_bytes(w, VANILLA) + step_bytes(w, VANILLA)
    )


def test_logits_that_are_let_go_take_less_and_leave_a_gap() -> None:
    held, gone = (a_job(loss=loss, batch=4, lora=8) for loss in ("eager", "hf"))
    a, b = parts(held, VANILLA, C), parts(gone, VANILLA, C)
    assert a.allocated - b.allocated == pytest.approx(2 * logit_amount(held, VANILLA))
    assert a.reserved - a.allocated < b.reserved - b.allocated


def test_who_writes_the_softmax_out_writes_the_gate_out() -> None:
    w = a_job(checkpointing=False, attention="eager")
    more = layer_bytes_a_token(replace(w, attention="written", dtype="bf16"))
    scores = [pair_bytes(replace(w, attention=one)) for one in ("written", "eager")]
    gate = LLAMA.intermediate * w.compute_bytes
    assert more - scores[0] == pytest.approx(layer_bytes_a_token(w) - scores[1] + gate)


def test_megatrons_softmax_is_one_kernel_in_16_bits() -> None:
    shape = replace(model_named("gpt2-medium"), dropout=True)
    ours = a_job(shape=shape, checkpointing=False, attention="eager", dtype="fp32", amp="fp16",
                 fused_kernels=True)  # fmt: skip
    megatrons = replace(ours, gradient_dtype="fp16")
    more = [pair_bytes(w) / w.context / shape.heads for w in (ours, megatrons)]
    assert more == [4 + 2 + 1, 2 + 2 + 1]


def test_a_step_of_one_tensor_after_the_other_takes_copies_of_the_largest() -> None:
    table = LLAMA.vocabulary * LLAMA.hidden
    assert step_bytes(a_job(step="loop"), VANILLA) == 2 * 2 * table
    assert step_bytes(a_job(step="loop", optimizer="sgd"), VANILLA) == 0
    assert step_bytes(a_job(optimizer="adafactor"), VANILLA) == pytest.approx(4.4 * 4 * table)
    assert step_bytes(a_job(step="loop", lora=8), VANILLA) < table


def test_logits_leave_idle_segments_at_another_peak() -> None:
    w = a_job(context=1024, lora=None)
    found = parts(w, VANILLA, C)
    assert found.logits == 0
    assert found.cached > parts(replace(w, loss="fused"), VANILLA, C).cached
    late = parts(w, Recipe(env=True), C)
    assert found.reserved > late.reserved
    # Where the logits are the peak, what they had first is partly the optimizer's.
    many = {"gpus": 8, "strategy": "fsdp", "batch": 64, "accumulation": True}
    for more in ({}, {"optimizer": "sgd"}):
        one = parts(a_job(**many, **more), VANILLA, C)
        assert one.logits > 0
        states = 4 * LLAMA.parameters / 8 * (not more)
        assert one.cached == pytest.approx(gaps_of(one) + 0.5 * min(states, one.logits), rel=0.2)


def gaps_of(found: Parts) -> float:
    """What is cached of the gaps of what comes and goes, without the logits, under FSDP2."""
    return (C.gaps - 0.05) * found.checkpoints


def test_a_prepared_base_has_checkpointing_unless_it_is_said() -> None:
    question = Question(model="llama-2-7b", context=1024, batch=1, trainer="llama-recipes")
    shape = model_named("llama-2-7b")
    said = {"lora": 8, "quantize": "nf4"}
    assert workload_of(replace(question, **said), shape, 1).checkpointing
    assert not workload_of(replace(question, **said, checkpointing=False), shape, 1).checkpointing
    assert not workload_of(replace(question, lora=8), shape, 1).checkpointing


def test_a_shifted_loss_in_place_copies_more_than_one_sequence() -> None:
    w = a_job(loss="in-place-shifted")
    one, two = (loss_bytes(replace(w, batch=n), VANILLA, C) / n for n in (1, 2))
    assert two - one == pytest.approx(logit_amount(w, VANILLA) * 2)


def test_offloaded_checkpoints_and_optimizers_leave_the_gpu() -> None:
    w = a_job()
    assert parts(replace(w, offload_checkpoints=True), VANILLA, C).checkpoints == 0
    assert host_bytes(replace(w, offload_optimizer=True), VANILLA) == 4 * LLAMA.parameters
    assert step_bytes(replace(w, offload_optimizer=True), VANILLA) == 0


def test_tensor_parallelism_divides_checkpoints_only_with_sequence_parallelism() -> None:
    w = a_job(gpus=8, strategy="fsdp", tensor_parallel=8, batch=8)
    alone = parts(w, VANILLA, C).checkpoints
    both = parts(replace(w, sequence_parallel=True), VANILLA, C).checkpoints
    assert both == alone / 8


def test_context_parallelism_divides_the_tokens_and_not_the_states() -> None:
    w = a_job(gpus=8, strategy="fsdp", context=65536, batch=8)
    four = replace(w, context_parallel=4, batch=2)
    assert parts(four, VANILLA, C).checkpoints == parts(w, VANILLA, C).checkpoints / 4
    assert standing_bytes(four, VANILLA) == standing_bytes(w, VANILLA)


def test_expert_parallelism_divides_the_experts_and_their_gradients() -> None:
    shape = model_named("mixtral-8x7b")
    eight = 32 * 8 * 3 * 4096 * 14336
    assert shape.routed == eight
    w = a_job(shape=shape, gpus=8, strategy="ddp", expert_parallel=8)
    kept = state_bytes(w, VANILLA) / state_bytes(replace(w, expert_parallel=1), VANILLA)
    assert kept == pytest.approx(1 - eight * 7 / 8 / shape.parameters)
    cut = replace(w, strategy="fsdp")
    assert state_bytes(cut, VANILLA) == state_bytes(replace(cut, expert_parallel=1), VANILLA)


def test_a_frozen_layer_under_fsdp_holds_no_gradients() -> None:
    how = {"gpus": 8, "strategy": "fsdp", "batch": 8, "dtype": "bf16"}
    lora, full = a_job(**how, lora=16), a_job(**how)
    units = [parts(w, VANILLA, C).states - standing_bytes(w, VANILLA) for w in (lora, full)]
    assert units[0] == pytest.approx(4 * LLAMA.largest_unit)
    assert units[1] > 2 * units[0]


def test_every_trainer_has_a_source_and_fields_of_a_workload() -> None:
    wanted = {"hf", "trl", "axolotl", "llama-factory", "torchtune", "torchtitan", "litgpt",
              "unsloth", "megatron", "trinity", "loop", "lightning", "accelerate", "nanogpt",
              "llama-recipes", "ms-swift", "llm-foundry", "verl", "openrlhf", "deepspeed", "nemo",
              "gpt-neox", "diffusers", "finetrainers", "timm", "nanotron"}  # fmt: skip
    assert set(rows().trainers) == wanted
    for name in wanted:
        assert rows().trainers[name]["source"]
        Workload(shape=LLAMA, context=1, **trainer_settings(name))


@pytest.mark.parametrize(
    ("trainer", "strategy"),
    [("hf", "ddp"), ("torchtune", "fsdp"), ("torchtitan", "fsdp"), ("megatron", "zero1")],
)
def test_a_trainer_on_several_gpus_does_what_it_does_there(trainer: str, strategy: str) -> None:
    question = Question(model="llama-3.1-8b", trainer=trainer, context=2048, batch=8)
    assert workload_of(question, LLAMA, 8).strategy == strategy
    alone = replace(question, batch=1)
    assert workload_of(alone, LLAMA, 1).strategy in ("single", "fsdp", "zero1")


def test_an_unknown_trainer_hears_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        trainer_settings("paddlenlp")
    assert "torchtitan" in (caught.value.hint or "")
