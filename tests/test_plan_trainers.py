"""What trainers do by default, as their sources say, and what DeepSpeed's step takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plan_job import LLAMA, VANILLA, C, a_job

from gpusetup.cli import main
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.assumed import assumed
from gpusetup.plan.answer.choose import Limits, candidates
from gpusetup.plan.answer.decide import Case
from gpusetup.plan.answer.question import Question
from gpusetup.plan.answer.workload import workload_of
from gpusetup.plan.memory.activations import checkpoint_amount, kept_bytes
from gpusetup.plan.memory.loss import loss_bytes
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.memory.states import (
    base_bytes,
    gradient_state_bytes,
    local,
    standing_bytes,
)
from gpusetup.plan.memory.step import bucket_buffer_bytes, largest_tensor, step_bytes
from gpusetup.plan.model.named import model_named
from gpusetup.plan.model.trainers import trainer_settings
from gpusetup.plan.model.workload import Strategy, Workload


def test_accelerate_and_llama_factory_train_16_bit_weights_in_32_bits() -> None:
    asked = Question(model="llama-2-7b", trainer="hf", strategy="fsdp", context=4096, batch=8)
    shape = model_named("llama-2-7b")
    w = workload_of(asked, shape, 8)
    assert (w.dtype, w.amp) == ("fp32", "bf16")
    assert workload_of(replace(asked, dtype="bf16"), shape, 8).dtype == "bf16"
    assert workload_of(replace(asked, strategy="ddp"), shape, 8).dtype == "bf16"
    factory = replace(asked, trainer="llama-factory", strategy=None, batch=1)
    assert workload_of(factory, shape, 1).dtype == "fp32"
    lora = workload_of(replace(factory, lora=8), shape, 1)
    assert (lora.dtype, lora.adapter_dtype) == ("bf16", "fp32")


@pytest.mark.parametrize("trained", [{"trained_layers": 2}, {"frozen": 0.75}])
def test_only_what_is_trained_is_made_32_bit(trained: dict[str, Any]) -> None:
    asked = Question(model="llama-3.1-8b", trainer="llama-factory", context=1024, batch=1)
    w = workload_of(replace(asked, **trained), LLAMA, 1)
    assert base_bytes(w) == pytest.approx(2 * LLAMA.parameters + 2 * w.trained)
    named = workload_of(replace(asked, dtype="bf16", **trained), LLAMA, 1)
    assert base_bytes(named) == pytest.approx(2 * LLAMA.parameters)


def test_megatrons_lora_has_no_buffer_of_deepspeeds() -> None:
    asked = Question(model="llama-3.1-8b", trainer="megatron", lora=8, context=1024, batch=8)
    assert bucket_buffer_bytes(workload_of(asked, LLAMA, 8), VANILLA) == 0


def test_a_base_in_32_bits_beside_a_lora_can_be_in_16(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("plan", "--model", "llama-2-7b", "--lora", "16", "--gpu", "RTX 4090", "--batch", "1")
    ask = (*words, "--context", "2048", "--trainer", "trl")
    assert main(ask) == 1
    assert "`--dtype bf16`" in capsys.readouterr().out
    assert main((*ask, "--dtype", "bf16")) == 0


def test_trl_loads_a_name_in_32_bits_and_keeps_adapters_of_a_quantised_base_in_16() -> None:
    asked = Question(model="llama-2-7b", trainer="trl", lora=16, context=1024, batch=1)
    shape = model_named("llama-2-7b")
    plain = workload_of(asked, shape, 1)
    assert (plain.dtype, plain.amp, plain.adapter_dtype) == ("fp32", "bf16", "fp32")
    small = workload_of(replace(asked, quantize="nf4"), shape, 1)
    assert small.adapter_dtype == "bf16" and small.checkpointing and not small.reentrant


def test_torchtitan_selects_what_it_checkpoints_unless_all_is_asked_for() -> None:
    asked = Question(model="llama-3.1-8b", trainer="torchtitan", context=8192, batch=8)
    shape = model_named("llama-3.1-8b")
    assert workload_of(asked, shape, 8).selective == "op"
    assert workload_of(replace(asked, checkpointing=True), shape, 8).selective is None
    w = workload_of(asked, shape, 8)
    assert loss_bytes(w, VANILLA, C) < loss_bytes(replace(w, loss="chunked"), VANILLA, C)


def test_a_trainer_that_sets_expandable_segments_is_asked_with_them() -> None:
    w = a_job(expandable=True)
    assert {r.env for r in candidates(w, Limits(capacity=0))} == {True}
    assert {r.env for r in candidates(w, Limits(capacity=0, env=False))} == {False}
    assert {r.env for r in candidates(a_job(), Limits(capacity=0))} == {False, True}


def test_deepspeed_collects_gradients_in_a_buffer_and_takes_them_to_an_optimizer_on_the_host() -> (
    None
):
    w = a_job(gpus=8, batch=8, strategy="zero2", amp="bf16", checkpointing=True)
    host = replace(w, offload_optimizer=True)
    assert gradient_state_bytes(w, VANILLA) == pytest.approx(2 * w.shape.parameters / 8)
    assert gradient_state_bytes(host, VANILLA) == 0
    assert bucket_buffer_bytes(w, VANILLA) == 1e9
    assert bucket_buffer_bytes(replace(w, strategy="zero3"), VANILLA) == 0
    adapters = replace(w, amp=None, dtype="bf16", lora=8, gpus=1)
    assert bucket_buffer_bytes(adapters, VANILLA) == 1e9
    # The buffer stands beside the backward pass of a layer; the step is without it.
    longer = replace(host, context=65536)
    plain = replace(longer, strategy="ddp", amp=None, dtype="bf16")
    assert bucket_buffer_bytes(plain, VANILLA) == 0
    at_loss = parts(longer, VANILLA, C)
    assert at_loss.states == pytest.approx(standing_bytes(longer, VANILLA) + 1e9)


def test_zero_3_has_its_part_of_the_gradients_from_the_start() -> None:
    w = a_job(gpus=8, batch=64, strategy="zero3", amp="bf16", checkpointing=True)
    assert w.gradients_stay and not replace(w, strategy="zero2").gradients_stay
    assert not replace(w, amp=None).gradients_stay
    peak = parts(w, VANILLA, C)
    assert peak.checkpoints > 0
    assert peak.states > standing_bytes(w, VANILLA) + gradient_state_bytes(w, VANILLA)


def test_an_answer_near_the_limit_says_how_such_runs_went(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = ["plan", "--model", "qwen2.5-0.5b", "--context", "1024", "--batch", "4", "--json"]
    main([*job, "--gpu-mem", "80GiB"])
    far = json.loads(capsys.readouterr().out)
    assert far["confidence"] == "clear" and not [a for a in far["advice"] if "published" in a]
    near = round(far["memory_gib"]["total"] / 0.96 * 1024)
    main([*job, "--gpu-mem", f"{near}MiB"])
    close = json.loads(capsys.readouterr().out)
    assert close["confidence"] == "close"
    assert [a for a in close["advice"] if "published runs said to need" in a]


def test_deepspeeds_norm_reads_a_large_tensor_in_64_bits() -> None:
    w = a_job(shape=model_named("qwen2.5-0.5b"), gpus=8, batch=8, strategy="zero2", amp="bf16")
    part = local(w, w.trained) / 8
    assert largest_tensor(w) > part
    assert step_bytes(w, VANILLA) == pytest.approx(8 * part)
    assert step_bytes(replace(w, shape=LLAMA), VANILLA) == pytest.approx(LLAMA.parameters * 6 / 8)


def test_deepspeeds_masters_are_one_tensor_that_torchs_adamw_copies_twice() -> None:
    w = a_job(gpus=4, batch=4, amp="bf16", step="loop", shape=LLAMA)
    part = LLAMA.parameters / 4
    high = [step_bytes(one, VANILLA) + gradient_state_bytes(one, VANILLA)
            for one in (replace(w, strategy="zero1"), replace(w, strategy="zero2"))]  # fmt: skip
    # Of the gradients of stage 1 those of the part are left at the step, as at stage 2.
    assert high == [pytest.approx(12 * part)] * 2
    assert step_bytes(replace(w, strategy="zero3"), VANILLA) == pytest.approx(12e9)


def test_frozen_layers_below_the_trained_ones_are_in_no_graph() -> None:
    question = Question(model="llama-3.1-8b", context=2048, batch=1, trained_layers=4)
    w = workload_of(question, LLAMA, 1)
    share = 4 / LLAMA.layers
    assert w.trained == pytest.approx((LLAMA.parameters - LLAMA.outside) * share)
    whole = replace(w, trained_layers=None)
    plain = {"checkpointing": False}
    assert kept_bytes(replace(w, **plain), VANILLA) == pytest.approx(
        kept_bytes(replace(whole, **plain), VANILLA) * share
    )
    # A backward pass within the backward pass needs an input that asks for a gradient.
    for reentrant, expected in ((True, 1.0), (False, share)):
        how = {"checkpointing": True, "reentrant": reentrant}
        mine, all_of_them = (checkpoint_amount(replace(x, **how), VANILLA) for x in (w, whole))
        assert mine == pytest.approx(all_of_them * expected)
    assert parts(w, VANILLA, C).total < parts(whole, VANILLA, C).total


def test_megatron_without_apex_steps_by_torch() -> None:
    w = Workload(shape=LLAMA, context=4096, batch=1, **trainer_settings("megatron"))
    each = [step_bytes(replace(w, step=step), VANILLA) for step in ("fused", "foreach", "loop")]
    assert each == [0, 4 * LLAMA.parameters, 8 * largest_tensor(w)]


@pytest.mark.parametrize(
    ("strategy", "trainer", "each"), [("zero2", "hf", 2), ("zero3", "hf", 2 / 8), ("ddp", "trl", 4),
                                      ("ddp", "llama-factory", 2), ("fsdp", "trl", 4 / 8)],
)  # fmt: skip
def test_a_reference_model_is_kept_as_it_was_loaded(
    strategy: Strategy, trainer: str, each: float
) -> None:
    alone = Question(
        model="llama-3.1-8b", trainer=trainer, strategy=strategy, context=1024, batch=16
    )
    without, beside = (
        standing_bytes(workload_of(q, LLAMA, 8), VANILLA)
        for q in (alone, replace(alone, reference=True))
    )
    assert (beside - without) / LLAMA.parameters == pytest.approx(each)


def test_a_reference_beside_a_lora_is_as_the_base_and_said_to_be_needless() -> None:
    asked = Question(
        model="llama-3.1-8b", trainer="trl", lora=8, context=1024, batch=1, quantize="nf4"
    )
    both = replace(asked, reference=True)
    without, beside = (workload_of(q, LLAMA, 1) for q in (asked, both))
    added = standing_bytes(beside, VANILLA) - standing_bytes(without, VANILLA)
    assert added == pytest.approx(base_bytes(without))
    case = Case(limits=Limits(capacity=80 * GIB), constants=C)
    assert not any("--reference" in note for note in assumed(asked, without, case))
    assert any("--reference" in note for note in assumed(both, beside, case))


def test_prodigy_keeps_four_numbers_a_parameter() -> None:
    states = [standing_bytes(a_job(optimizer=name), VANILLA) for name in ("adamw", "prodigy")]
    assert states[1] - states[0] == pytest.approx(8 * LLAMA.parameters)


def test_litgpt_recomputes_layers_on_several_gpus_alone() -> None:
    asked = Question(model="llama-3.1-8b", trainer="litgpt", context=512, batch=4)
    assert not workload_of(asked, LLAMA, 1).checkpointing
    several = workload_of(asked, LLAMA, 4)
    assert several.checkpointing and several.strategy == "fsdp1"
