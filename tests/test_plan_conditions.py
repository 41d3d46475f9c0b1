"""Conditions of a run beyond its trainer's own: each changes what its source says it changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpusetup.cli import main
from gpusetup.configs.config import read_config
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.question import Question
from gpusetup.plan.answer.workload import shape_of_question, workload_of
from gpusetup.plan.config.question import for_gpus, question_of
from gpusetup.plan.memory.activations import kept_bytes, layer_bytes
from gpusetup.plan.memory.constants import shipped_constants
from gpusetup.plan.memory.parts import beside_flat, parts, terms
from gpusetup.plan.memory.stages import stage_layers
from gpusetup.plan.memory.states import (
    base_bytes,
    gradient_state_bytes,
    kept_by_optimizer,
    local,
    standing_bytes,
    third_bucket_bytes,
)
from gpusetup.plan.memory.step import norm_bytes, step_bytes
from gpusetup.plan.model.dated import as_of
from gpusetup.plan.model.named import model_named, with_classes
from gpusetup.plan.model.workload import Recipe, Workload

C = shipped_constants()
VANILLA = Recipe()
LLAMA = model_named("llama-2-7b")


def workload(**how: Any) -> Workload:
    usual = {"shape": LLAMA, "context": 2048, "batch": 1, "dtype": "bf16", "amp": None}
    return Workload(**{**usual, "checkpointing": False, "loss": "hf", "strategy": "single", **how})


def test_an_interleaved_pipeline_keeps_more_on_its_first_stage() -> None:
    """Four stages of two pieces: 1 + 3 / 8 of what one without pieces keeps."""
    plain = workload(gpus=4, pipeline_parallel=4, strategy="zero1", batch=4)
    assert stage_layers(replace(plain, virtual_pipeline=2)) == pytest.approx(
        stage_layers(plain) * 1.375
    )


def test_a_pipeline_holds_no_more_micro_batches_than_a_step_has() -> None:
    plain = workload(gpus=4, pipeline_parallel=4, strategy="zero1", batch=4)
    for many, share in ((1, 0.25), (2, 0.5), (4, 1.0), (32, 1.0)):
        assert stage_layers(replace(plain, micro_batches=many)) == share * stage_layers(plain)
    pieces = replace(plain, virtual_pipeline=2)
    assert stage_layers(replace(pieces, micro_batches=1)) == stage_layers(plain) / 4
    assert stage_layers(replace(pieces, micro_batches=32)) == stage_layers(pieces)
    question = Question(
        model="llama-2-7b", trainer="megatron", context=2048, batch=4, pipeline_parallel=4
    )
    assert workload_of(question, LLAMA, 4).micro_batches is None
    assert workload_of(replace(question, accumulate=1), LLAMA, 4).micro_batches == 1


def test_a_device_map_divides_layers_and_what_they_keep() -> None:
    alone, spread = workload(), workload(gpus=4, strategy="device-map")
    assert kept_bytes(spread, VANILLA) == kept_bytes(alone, VANILLA) / 4
    part = standing_bytes(alone, VANILLA) / 4
    assert part < standing_bytes(spread, VANILLA) < part * 1.05  # and a table at its end


def test_a_prefix_trains_its_keys_and_values_alone() -> None:
    w = workload(prefix=16)
    assert w.trained == 32 * 2 * 4096 * 16
    assert not w.trains_head
    assert kept_bytes(w, VANILLA) < 0.72 * kept_bytes(workload(), VANILLA)
    projected = replace(w, prefix_projection=True)
    assert projected.trained == 16 * 4096 + 4096 * (4096 + 2 * 32 * 4096 + 1) + 2 * 32 * 4096


def test_fsdp2_in_a_pipeline_holds_gathered_units_and_whole_gradients() -> None:
    """As Llama 3.1 405B on 512 GPUs (torchtitan, December 2024) takes 75 GiB, not 41."""
    how: dict[str, Any] = {"dtype": "fp32", "amp": "bf16", "accumulation": True}
    w = workload(gpus=16, batch=8, strategy="fsdp", pipeline_parallel=2, **how)
    staged, whole = local(w, LLAMA.parameters), terms(w, VANILLA, C)
    assert whole.gathered >= 2 * staged and whole.less == 0
    assert gradient_state_bytes(w, VANILLA) == pytest.approx(4 * staged)
    alone = replace(w, gpus=8, pipeline_parallel=1)
    assert gradient_state_bytes(alone, VANILLA) == pytest.approx(4 * LLAMA.parameters / 8)
    older = replace(w, strategy="fsdp1")
    assert gradient_state_bytes(older, VANILLA) == pytest.approx(4 * staged / 8)


def test_eight_bit_weights_stand_beside_the_others_or_instead_of_them() -> None:
    w = workload(strategy="zero1", gpus=8, batch=8, amp="bf16", dtype="fp32", gradient_dtype="fp32")
    beside = replace(w, quantize="fp8")
    instead = replace(beside, eight_bit_weights=True)
    assert base_bytes(instead) == base_bytes(w)
    inside = LLAMA.parameters - LLAMA.outside
    assert base_bytes(beside) - base_bytes(w) == pytest.approx(2 * inside)


def test_a_tiled_mlp_leaves_its_parts_alone() -> None:
    w = workload(context=65536, checkpointing=True)
    less = layer_bytes(w, VANILLA) - layer_bytes(replace(w, tiled_mlp=True), VANILLA)
    assert less == pytest.approx(
        65536 * 1.5 * 2 * (4 * LLAMA.intermediate - LLAMA.hidden), rel=1e-6
    )


def test_deepspeeds_optimizer_on_the_host_takes_some_of_the_gpu() -> None:
    """The norm of the largest gradient in 64 bits, and of some releases the 32-bit part."""
    how: dict[str, Any] = {"dtype": "fp32", "amp": "bf16", "offload_optimizer": True}
    w = workload(gpus=2, batch=2, strategy="zero2", **how)
    largest = LLAMA.intermediate * LLAMA.hidden
    assert norm_bytes(w, VANILLA) == 8 * max(largest, LLAMA.vocabulary * LLAMA.hidden)
    assert norm_bytes(replace(w, strategy="zero3"), VANILLA) == 0
    assert step_bytes(w, VANILLA) == 0
    copied = replace(w, **as_of("hf", "2025-01-01"))
    assert step_bytes(copied, VANILLA) == 4 * LLAMA.parameters / 2
    assert replace(w, **as_of("diffusers", "2025-03")) == replace(w, parts_on_gpu=True)
    assert not replace(w, **as_of("hf", "2025-06-02")).parts_on_gpu
    assert not replace(w, **as_of("hf", "2024-04-14")).parts_on_gpu


def test_a_run_of_a_kind_that_is_known_too_little_is_close_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    adapters = "plan --model llama-2-7b --context 512 --batch 2 --gpus 2 --gpu-mem 140GiB --json"
    words = [*adapters.split(), "--trainer", "hf", "--lora", "8", "--strategy"]
    assert main([*words, "zero3"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["margin_percent"] > 20 and document["confidence"] == "close"
    assert [one for one in document["advice"] if "of adapters under ZeRO said to fit" in one]
    assert main([*words, "ddp"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["confidence"] == "clear"
    assert not [one for one in document["advice"] if "published runs" in one]


def test_a_model_in_one_unit_is_gathered_whole() -> None:
    w = workload(gpus=8, strategy="fsdp1", batch=8, checkpointing=True)
    more = terms(replace(w, one_unit=True), VANILLA, C).gathered
    assert more == 4 * LLAMA.parameters  # 16-bit weights, and gradients of all
    assert more > 10 * terms(w, VANILLA, C).gathered


@pytest.mark.parametrize(
    ("optimizer", "low", "high"),
    [("galore", 0.2, 0.8), ("apollo", 0.2, 0.7), ("galore8bit", 0.1, 0.5), ("adam-mini", 2, 2)],
)
def test_low_rank_optimizers_keep_states_of_a_rank(optimizer: str, low: float, high: float) -> None:
    """Of Llama 2 7B at rank 128, where AdamW in 16 bits has 4 bytes a parameter."""
    w = workload(optimizer=optimizer)
    assert low <= kept_by_optimizer(w) <= high
    if optimizer != "adam-mini":
        assert kept_by_optimizer(replace(w, optimizer_rank=512)) > kept_by_optimizer(w)


def test_masters_and_moments_may_be_narrower() -> None:
    w = workload(strategy="zero2", gpus=8, batch=8, dtype="fp32", amp="bf16")
    assert kept_by_optimizer(w) == 4 + 8
    assert kept_by_optimizer(replace(w, master_dtype="bf16", moments="bf16")) == 2 + 4
    assert kept_by_optimizer(replace(w, moments="fp8")) == 4 + 2


def test_a_recomputed_core_keeps_no_scores_but_takes_them_in_its_layer() -> None:
    eager = workload(attention="eager")
    core, flash = replace(eager, selective="core"), replace(eager, attention="flash")
    repeated = kept_bytes(core, VANILLA) / kept_bytes(flash, VANILLA)
    assert repeated == pytest.approx(1, rel=0.01)
    assert layer_bytes(core, VANILLA) > layer_bytes(flash, VANILLA) + 12 * 32 * 2048**2 * 0.99


def test_an_evaluation_of_more_sequences_may_be_the_highest_moment() -> None:
    w = workload(shape=model_named("qwen2.5-0.5b"), lora=8, checkpointing=True)
    assert parts(w, VANILLA, C).moment == "step"
    found = parts(replace(w, eval_batch=8), VANILLA, C)
    assert found.moment == "evaluation"
    assert found.logits == 8 * 2048 * 151936 * 10
    assert parts(replace(w, load_whole=True, context=1), VANILLA, C).moment == "step"


def test_a_trainer_may_have_the_name_that_people_give_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["plan", "--model", "gpt2", "--context", "512", "--gpu-mem", "24GiB", "--json"]
    said = []
    for name in ("hf", "Transformers"):
        main([*words, "--trainer", name])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_a_classifier_has_a_table_and_no_logits() -> None:
    llama = model_named("llama-3.1-8b")
    reward = with_classes(llama, 1)
    assert llama.parameters - reward.parameters == (128256 - 1) * 4096
    assert reward.outside == 128256 * 4096
    w = workload(shape=reward, lora=8, quantize="nf4")
    assert parts(w, VANILLA, C).total < parts(replace(w, shape=llama), VANILLA, C).total


def test_what_others_hold_counts_beside_torchs_own() -> None:
    alone, shared = (parts(workload(beside=held), VANILLA, C) for held in (0.0, 8.0))
    assert shared.total - alone.total == 8 * GIB
    assert shared.allocated == pytest.approx(alone.allocated)


def test_a_smaller_evaluation_helps_where_it_is_the_highest_moment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (
        "plan --model qwen2.5-7b --lora 16 --trainer hf --context 2048 --batch 1 --checkpointing"
    )
    main([*words.split(), "--gpu-mem", "24GiB", "--eval-batch", "8"])
    text = capsys.readouterr().out
    assert "the highest moment is the evaluation" in text
    assert "(`--eval-batch 1`)" in text


def test_zero_3_has_its_bucket_from_the_start() -> None:
    w = workload(strategy="zero3", gpus=8, batch=8, dtype="fp32", amp="bf16")
    assert third_bucket_bytes(w) == 2 * 4096**2
    assert third_bucket_bytes(replace(w, reduce_bucket=500_000_000)) == 1e9
    assert third_bucket_bytes(replace(w, strategy="zero2")) == 0


def test_flat_tensors_of_a_step_find_no_room_in_the_segments_of_layers() -> None:
    """Qwen2.5 7B on four GPUs under ZeRO 2 has 68.0 GiB reserved and 56.8 allocated."""
    w = workload(
        shape=model_named("qwen2.5-7b"), strategy="zero2", gpus=4, batch=4, context=512,
        dtype="fp32", amp="bf16", step="loop", accumulation=True,
    )  # fmt: skip
    found = parts(w, VANILLA, C)
    assert found.allocated / GIB == pytest.approx(56.76, rel=0.01)
    assert found.reserved / GIB == pytest.approx(68.0, rel=0.05)
    assert beside_flat(replace(w, strategy="ddp"), VANILLA, terms(w, VANILLA, C)) == 0


def test_eight_bits_of_transformer_engine_keep_copies_of_the_weights() -> None:
    w = workload(strategy="zero1", gpus=8, batch=8, dtype="fp32", amp="bf16", gradient_dtype="fp32")
    more = standing_bytes(replace(w, quantize="fp8"), VANILLA) - standing_bytes(w, VANILLA)
    assert more == pytest.approx(2 * (LLAMA.parameters - LLAMA.outside))
    assert kept_bytes(replace(w, quantize="fp8"), VANILLA) < kept_bytes(w, VANILLA)


def test_an_evaluation_is_read_of_a_config() -> None:
    text = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\ntemplate: qwen"
    text += "\ncutoff_len: 2048\nper_device_train_batch_size: 1\neval_strategy: steps\n"
    for more, batch in (("", 8), ("per_device_eval_batch_size: 2\n", 2)):
        found = question_of(read_config((text + more).encode(), "train.yaml"))
        assert found.question.eval_batch == batch
    assert question_of(read_config(text[:-21].encode(), "train.yaml")).question.eval_batch is None
    question = for_gpus(found, 1)
    w = workload_of(question, shape_of_question(question), 1)
    assert w.eval_batch == 2


@pytest.mark.parametrize(
    ("said", "kind"),
    [("galore_adamw_layerwise", ("galore", "backward")), ("schedule_free_adamw",
     ("schedule-free", "foreach")), ("ademamix_8bit", ("ademamix8bit", "loop"))],
)  # fmt: skip
def test_optimizers_are_read_by_transformers_names(said: str, kind: tuple[str, str]) -> None:
    text = f"model: {{name: gpt2}}\noptim: {said}\nper_device_train_batch_size: 1\n"
    question: Question = question_of(read_config(text.encode(), "train.yaml")).question
    assert (question.optimizer, question.step) == kind


def test_fsdps_own_words_are_understood() -> None:
    text = (
        "model_name_or_path: gpt2\nper_device_train_batch_size: 1\nfsdp: shard_grad_op auto_wrap\n"
    )
    question = question_of(read_config(text.encode(), "train.yaml")).question
    assert (question.strategy, question.reshard) == ("fsdp1", False)


def test_a_trainer_of_a_day_has_that_days_defaults() -> None:
    """`Trainer` of April 2023: eager attention, a shifted loss, gathers without a limit."""
    question = Question(model="llama-2-7b", trainer="hf", strategy="fsdp1", context=512, batch=8)
    now = workload_of(question, LLAMA, 8)
    old = workload_of(replace(question, as_of="2023-04"), LLAMA, 8)
    assert (old.attention, old.loss, old.step) == ("eager", "eager-old", "loop")
    assert old.gather_ahead and old.reentrant and not now.gather_ahead
    assert parts(old, VANILLA, C).total > parts(now, VANILLA, C).total + 10 * GIB
    said = workload_of(replace(question, as_of="2023-04", attention="flash"), LLAMA, 8)
    assert said.attention == "flash"
    assert workload_of(replace(question, as_of="2026-11"), LLAMA, 8) == now
    titan = replace(question, trainer="torchtitan", strategy=None)
    losses = [workload_of(replace(titan, as_of=day), LLAMA, 8).loss for day in ("2025-10", None)]
    assert losses == ["hf", "chunked-head"]


@pytest.mark.parametrize("day", ["soon", "2024-13", "24", ""])
def test_what_is_no_day_is_refused(day: str) -> None:
    with pytest.raises(UsageError, match="is no day"):
        as_of("hf", day)
