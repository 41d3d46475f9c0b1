"""Formulas that the fourth, the fifth and the sixth set of published runs led to."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from plan_job import LLAMA, VANILLA, C, a_job

from gpusetup import cli
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.question import Question
from gpusetup.plan.answer.workload import workload_of
from gpusetup.plan.memory.activations import (
    adapter_bytes,
    held_bytes,
    kept_bytes,
    layer_bytes_a_token,
    mlp_bytes,
    norm_bytes,
    passing_bytes_a_token,
    quantized_input_bytes,
    score_bytes,
    scores_in_backward,
)
from gpusetup.plan.memory.gaps import gaps
from gpusetup.plan.memory.loss import logit_amount, loss_bytes
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.memory.states import (
    base_bytes,
    cast_bytes,
    live_bytes,
    local,
    standing_bytes,
)
from gpusetup.plan.model.named import model_in, model_named, with_masked_head
from gpusetup.plan.model.shape import targets
from gpusetup.plan.model.trainers import trainer_settings
from gpusetup.plan.model.workload import Recipe

ROOT = Path(__file__).resolve().parent.parent


def test_casts_of_autocast_go_with_the_backward_pass() -> None:
    w = a_job(amp="bf16")
    assert cast_bytes(w) == pytest.approx(2 * (LLAMA.parameters - LLAMA.vocabulary * LLAMA.hidden))
    assert cast_bytes(a_job()) == cast_bytes(replace(w, checkpointing=True)) == 0
    # With one token nothing is kept: the optimizer's step is the peak, and has no copies.
    short = replace(w, context=1)
    plain = replace(short, amp=None)
    assert parts(short, VANILLA, C).allocated <= 1.01 * parts(plain, VANILLA, C).allocated


def test_layers_of_four_bits_keep_their_inputs_where_bitsandbytes_is_old() -> None:
    w = a_job(dtype="bf16", lora=8, quantize="nf4", loss="fused")
    inputs = (2 * LLAMA.hidden + LLAMA.query + LLAMA.intermediate) * 2 * LLAMA.layers * 1024
    kept = replace(w, kept_inputs=2)
    assert kept_bytes(kept, VANILLA) == kept_bytes(w, VANILLA) + 2 * inputs
    assert kept_bytes(replace(kept, checkpointing=True), VANILLA) == 0
    hooks = replace(kept, checkpointing=True, reentrant=False)
    assert kept_bytes(hooks, VANILLA) == 2 * inputs
    assert quantized_input_bytes(replace(kept, quantize=None)) == 0
    assert quantized_input_bytes(replace(w, quantize="int8")) > 0


def test_zero_3_keeps_a_billion_parameters_gathered() -> None:
    w = a_job(strategy="zero3", gpus=8, amp="bf16", batch=8)
    assert live_bytes(w) == 2e9
    small = replace(w, shape=model_named("qwen2.5-0.5b"))
    assert live_bytes(small) == 2 * small.shape.parameters
    assert live_bytes(replace(w, strategy="fsdp")) == 0
    assert live_bytes(replace(w, gpus=1, batch=1)) == 0


def test_torch_compile_keeps_no_activation_of_a_gated_mlp() -> None:
    w = a_job(dtype="bf16")
    kept = mlp_bytes(w)
    assert mlp_bytes(replace(w, compile=True)) == kept * 3 / 4
    assert mlp_bytes(replace(w, fused_kernels=True)) == kept * 3 / 4
    # GPT-2's GELU is written out in transformers: three of its five tensors are computed anew.
    ungated = replace(w, shape=model_named("gpt2"))
    assert mlp_bytes(replace(ungated, compile=True)) == mlp_bytes(ungated) * 2 / 5


def test_deepspeed_steps_a_32_bit_copy_of_16_bit_weights() -> None:
    asked = Question(model="llama-2-7b", trainer="hf", strategy="zero2", context=4096, batch=8)
    w = workload_of(asked, model_named("llama-2-7b"), 8)
    assert (w.dtype, w.amp) == ("fp32", "bf16")
    n = w.shape.parameters
    assert standing_bytes(w, VANILLA) == pytest.approx(2 * n + 12 * n / 8)
    said = workload_of(replace(asked, amp="none"), w.shape, 8)
    assert (said.dtype, said.amp) == ("bf16", None)
    own = replace(asked, strategy="fsdp", trainer="axolotl")
    assert workload_of(own, w.shape, 8).dtype == "bf16"


def test_gathers_without_a_limit_hold_the_whole_model() -> None:
    w = a_job(strategy="fsdp1", gpus=8, amp="bf16", batch=8)
    assert live_bytes(w) == 0
    assert live_bytes(replace(w, gather_ahead=True)) == 2 * w.shape.parameters
    assert live_bytes(replace(w, gather_ahead=True, strategy="fsdp")) == 0


def test_only_re_entrant_checkpointing_holds_a_second_set_under_fsdp1() -> None:
    w = a_job(strategy="fsdp1", gpus=4, dtype="bf16", lora=8, checkpointing=True, batch=4)
    assert held_bytes(w, VANILLA) > held_bytes(replace(w, reentrant=False), VANILLA) == 0


def test_logits_of_one_piece_leave_no_gap() -> None:
    w = a_job(shape=model_named("qwen2.5-0.5b"), dtype="bf16", batch=8, checkpointing=True)
    found = parts(w, VANILLA, C)
    assert found.logits > 10 * GIB
    assert found.fragmentation + found.cached < 0.05 * found.logits
    # A copy of them without the last token is a piece of another size.
    shifted = parts(replace(w, loss="eager-old"), VANILLA, C)
    assert shifted.fragmentation + shifted.cached > 0.1 * shifted.logits


def test_autocast_narrows_a_copy_of_its_own_for_every_adapter() -> None:
    w = a_job(dtype="fp16", amp="fp16", lora=16)
    inputs = sum(a for a, _ in targets(w.shape, "all"))
    assert adapter_bytes(w) - adapter_bytes(replace(w, amp=None)) == 2 * inputs
    assert adapter_bytes(replace(w, strategy="fsdp")) == adapter_bytes(replace(w, amp=None))


def test_a_loss_within_a_compiled_graph_takes_eight_bytes_a_logit() -> None:
    w = a_job(dtype="bf16", loss="in-graph")
    apart = replace(w, loss="compiled")
    assert loss_bytes(w, VANILLA, C) < 0.7 * loss_bytes(apart, VANILLA, C)


def test_a_gpt_neox_is_read_from_its_config(tmp_path: Path) -> None:
    config = {"model_type": "gpt_neox", "hidden_size": 768, "intermediate_size": 3072,
              "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50304,
              "max_position_embeddings": 2048, "tie_word_embeddings": False}  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    read, known = model_in(file), model_named("pythia-160m")
    assert (read.parameters, read.vocabulary) == (known.parameters, known.vocabulary)


@pytest.mark.parametrize(
    ("how", "bytes_a_pair"),
    [({}, 8), ({"amp": "bf16"}, 6), ({"dtype": "bf16"}, 4)],
)
def test_a_softmax_of_ones_own_keeps_its_powers(how: dict[str, Any], bytes_a_pair: int) -> None:
    assert score_bytes(a_job(attention="written", **how)) == bytes_a_pair * LLAMA.heads


def test_scores_that_layers_keep_leave_gaps_like_anything_else() -> None:
    def left(**how: object) -> float:
        return gaps(a_job(**how), VANILLA, C, 1e12, 0.0) / 1e12

    assert left(attention="eager", checkpointing=True) == pytest.approx(C.gaps_eager)
    assert C.gaps < left(attention="eager") < C.gaps_eager
    assert left() == left(checkpointing=True) == pytest.approx(C.gaps)


def test_fsdp2_leaves_the_gaps_of_one_gpu_and_fsdp1_more() -> None:
    def left(strategy: str) -> float:
        w = a_job(strategy=strategy, gpus=4, batch=4, checkpointing=True)
        return gaps(w, VANILLA, C, 1e9, 0.0) / 1e9

    assert left("fsdp") == pytest.approx(C.gaps)
    assert left("fsdp1") == left("zero3") == pytest.approx(C.gaps_sharded)


def test_a_model_that_is_loaded_whole_must_fit_whole() -> None:
    w = a_job(strategy="zero3", gpus=64, batch=64, context=16, amp="bf16", checkpointing=True)
    whole = parts(replace(w, load_whole=True), VANILLA, C)
    assert whole.allocated == 2 * LLAMA.parameters > parts(w, VANILLA, C).allocated
    long = replace(w, context=65536, load_whole=True)
    assert parts(long, VANILLA, C) == parts(replace(long, load_whole=False), VANILLA, C)


def test_a_quantised_base_is_loaded_whole_as_it_is_kept() -> None:
    """axolotl's QLoRA under FSDP2, as its trainer's row says."""
    question = Question(
        model="llama-2-7b", trainer="axolotl", quantize="nf4", lora=8, strategy="fsdp",
        context=16, batch=8,
    )  # fmt: skip
    w = workload_of(question, LLAMA, 8)
    found = parts(w, VANILLA, C)
    assert w.load_whole and found.moment == "loading"
    assert found.allocated == base_bytes(replace(w, gpus=1))
    assert parts(replace(w, load_whole=False), VANILLA, C).allocated < found.allocated / 2
    assert not workload_of(replace(question, strategy="ddp"), LLAMA, 8).load_whole


def test_what_a_step_reserves_is_said_where_loading_has_more_allocated() -> None:
    """CogVideoX 2B beside its encoders: 12.4 GiB of weights, then a step."""
    question = Question(
        model="THUDM/CogVideoX-2b", trainer="diffusers", strategy="zero2", batch=1,
        offload=("optimizer",), checkpointing=True, encoders="loaded", as_of="2025-03",
    )  # fmt: skip
    w = workload_of(question, model_named("THUDM/CogVideoX-2b"), 1)
    loaded, step = (parts(one, VANILLA, C) for one in (w, replace(w, encoders="none")))
    assert (loaded.moment, step.moment) == ("loading", "step")
    assert loaded.allocated > step.allocated and loaded.reserved == pytest.approx(step.reserved)


def test_an_encoder_with_its_masked_head_has_logits_of_every_token() -> None:
    bare = model_named("bert")
    headed = with_masked_head(bare)
    assert headed.parameters == pytest.approx(109_514_298, rel=0.01)
    more = (
        parts(a_job(shape=headed), VANILLA, C).logits - parts(a_job(shape=bare), VANILLA, C).logits
    )
    assert more == pytest.approx(16 * 1024 * 30522, rel=0.02)
    with pytest.raises(UsageError, match="no masked-language head"):
        with_masked_head(LLAMA)


def test_megatron_has_its_gradients_and_masters_whatever_its_optimizer_divides() -> None:
    how = {"gpus": 8, "context": 4096, "batch": 8, **trainer_settings("megatron")}
    whole, divided = a_job(**{**how, "strategy": "ddp"}), a_job(**how)
    each = LLAMA.parameters
    assert standing_bytes(whole, VANILLA) == pytest.approx((2 + 12) * each)
    assert standing_bytes(divided, VANILLA) == pytest.approx((2 + 12 / 8) * each)
    assert cast_bytes(whole) == 0 and divided.gradients_stay and whole.gradients_stay
    assert not replace(divided, strategy="zero2").gradients_stay  # DeepSpeed's engine has its own


def test_megatron_keeps_its_part_of_what_sequence_parallelism_gathers() -> None:
    how = {"gpus": 8, "context": 4096, "batch": 8, "tensor_parallel": 8, "gradient_dtype": "fp32",
           "strategy": "zero1", "amp": "bf16", "fused_kernels": True}  # fmt: skip
    alone = layer_bytes_a_token(a_job(**{**how, "tensor_parallel": 1}))
    mine = layer_bytes_a_token(a_job(**how, sequence_parallel=True))
    assert mine == pytest.approx(alone / 8, rel=0.01)
    others = layer_bytes_a_token(a_job(**{**how, "gradient_dtype": None}, sequence_parallel=True))
    assert others == pytest.approx(mine + 2 * LLAMA.hidden * 2 * 7 / 8)


def test_megatrons_loss_is_six_bytes_a_logit_and_its_gelu_one_kernel() -> None:
    assert trainer_settings("megatron")["loss"] == "vocab-parallel"
    gpt = model_named("gpt2-xl")
    plain = a_job(shape=gpt, amp="bf16", strategy="zero1", loss="vocab-parallel")
    fused = replace(plain, fused_kernels=True)
    assert mlp_bytes(fused) == 2 * 2 * gpt.intermediate < mlp_bytes(plain)
    tokens = logit_amount(plain, VANILLA) * 6
    assert loss_bytes(plain, VANILLA, C) == pytest.approx(tokens, rel=0.05)
    copies = [gaps(one, VANILLA, C, 0.0, 1.0) for one in (plain, replace(plain, loss="in-graph"))]
    assert copies[0] > copies[1] == 0


def test_the_first_stage_of_a_pipeline_has_the_embedding() -> None:
    model = model_in(ROOT / "tests" / "plan_models" / "bigscience-65b.json")
    w = a_job(shape=model, gpus=64, tensor_parallel=4, pipeline_parallel=16, strategy="zero1")
    # BigScience's log: 1,145,723,904 parameters with positions and padding.
    assert local(w, model.parameters) == pytest.approx(1.1457e9, rel=0.01)
    assert local(replace(w, lora=8), 64.0) == 1


def test_what_fsdp_does_not_shard_again_is_whole() -> None:
    w = a_job(strategy="fsdp", gpus=8, amp="bf16", batch=8)
    kept = replace(w, reshard=False)
    assert live_bytes(w) == 0 and live_bytes(kept) == 2 * LLAMA.parameters
    more = parts(kept, VANILLA, C).allocated - parts(w, VANILLA, C).allocated
    assert 0.8 * 2 * LLAMA.parameters < more < 2 * LLAMA.parameters  # less the unit it replaces


def test_bert_takes_its_softmax_in_16_bits_but_under_autocast() -> None:
    bert = model_named("distilbert")
    half, cast = a_job(shape=bert, dtype="bf16"), a_job(shape=bert, amp="bf16")
    dropout = 3 * bert.dropout  # the copy that is multiplied, and its mask
    assert score_bytes(replace(half, attention="eager")) == (2 + dropout) * bert.heads
    assert score_bytes(replace(cast, attention="eager")) == (6 + bert.dropout) * bert.heads
    assert scores_in_backward(replace(half, attention="eager"), VANILLA) == pytest.approx(
        scores_in_backward(replace(cast, attention="eager"), VANILLA) / 2
    )


def test_cuda_takes_half_a_gib_on_one_gpu_beside_what_torch_counts() -> None:
    """What a process has in use, less allocated and cached, by torch's own messages."""
    with (ROOT / "tests" / "plan_runtime.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    left: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        rest = float(row["in_use"]) - float(row["allocated"]) - float(row["cached"])
        left[int(row["gpus"]) == 1].append(rest)
    assert min(map(len, left.values())) >= 10
    assert statistics.median(left[True]) == pytest.approx(C.context_bytes / GIB, abs=0.1)
    assert statistics.median(left[False]) > statistics.median(left[True])


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("--model bert --context 512 --batch 8 --gpu-mem 24GiB", "--mlm"),
        ("--model gpt2 --context 1024 --batch 4 --gpu-mem 80GiB --attention", "eager written"),
        ("--params 11B --context 64 --batch 64 --gpus 64 --gpu-mem 24GiB --strategy zero3",
         "--load-whole"),
        ("--model llama-3.1-8b --context 64 --batch 8 --gpus 8 --gpu-mem 80GiB --strategy fsdp",
         "--no-reshard"),
    ],
)  # fmt: skip
def test_the_conditions_can_be_said(
    words: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, _, more = flag.rpartition(" ")
    sizes = []
    for last in (plain, more):
        cli.main(["plan", *words.split(), *last.split(), "--json"])
        sizes.append(json.loads(capsys.readouterr().out)["memory_gib"]["allocated"])
    assert sizes[0] < sizes[1]


def test_gradients_of_a_gated_mlp_are_written_over_it_by_liger_and_not_by_megatron() -> None:
    """A layer keeps gate, up and product; to them come the product's gradient and its own."""
    liger = a_job(dtype="bf16", checkpointing=True, fused_kernels=True)
    megatron = replace(liger, gradient_dtype="fp32")
    kept = layer_bytes_a_token(liger)
    here, there = (passing_bytes_a_token(w, VANILLA) for w in (liger, megatron))
    assert here == 2 * (LLAMA.intermediate + LLAMA.hidden) < there == pytest.approx(kept / 2)
    norms_alone = a_job(dtype="bf16", fused_norms=True)
    assert mlp_bytes(norms_alone) == 4 * 2 * LLAMA.intermediate
    assert norm_bytes(norms_alone) == norm_bytes(liger) < norm_bytes(a_job(dtype="bf16"))


def test_sequence_parallelism_gives_attention_no_mask() -> None:
    job = a_job(context=10**6, gpus=8, batch=1, strategy="zero3", attention="sdpa", amp="bf16",
                checkpointing=True, loss="fused")  # fmt: skip
    whole, divided = (parts(job, Recipe(sp=sp), C).total for sp in (1, 8))
    flash = parts(replace(job, attention="flash"), Recipe(sp=8), C).total
    assert divided == flash < whole / 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gelu", "gelu_new", "gelu_python", "quick_gelu", "gelu_fast",
                                  "relu"])  # fmt: skip
def test_an_activation_keeps_what_autograd_saves_of_it(name: str) -> None:
    torch = pytest.importorskip("torch")
    activation = pytest.importorskip("transformers.activations").ACT2FN[name]
    up, down = torch.nn.Linear(8, 64), torch.nn.Linear(64, 8)
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        if tensor.shape == (16, 64):
            saved[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        assert down(activation(up(torch.randn(16, 8)))).requires_grad
    shape = replace(LLAMA, gated=False, activation=name, intermediate=64)
    assert mlp_bytes(a_job(shape=shape)) * 16 == sum(saved.values())
