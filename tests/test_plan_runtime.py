"""What stands beside torch's allocator, and answers that hang on what nobody said."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from plan_job import LLAMA, VANILLA, C, a_job

from gpusetup.cli import main
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.odds import doubt
from gpusetup.plan.answer.question import Question
from gpusetup.plan.answer.workload import shape_of_question, workload_of
from gpusetup.plan.memory.activations import layer_bytes_a_token, score_bytes
from gpusetup.plan.memory.capacity import is_linked
from gpusetup.plan.memory.loss import logit_amount
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.memory.runtime import ALL_KERNELS, LINKED_NCCL, nccl_bytes, runtime_bytes
from gpusetup.plan.memory.second_stack import looking_bytes
from gpusetup.plan.memory.states import base_bytes
from gpusetup.plan.memory.step import BUCKET, bucket_buffer_bytes
from gpusetup.plan.model.dated import as_of
from gpusetup.plan.model.named import model_in, model_named
from gpusetup.plan.model.trainers import WITHOUT_SDPA
from gpusetup.plan.model.workload import Workload

HERE = Path(__file__).resolve().parent


def test_nccl_takes_more_where_gpus_are_linked() -> None:
    w = a_job(gpus=8, batch=8, strategy="ddp", linked=True)
    more = nccl_bytes(w, C) - nccl_bytes(replace(w, linked=False), C)
    assert more == LINKED_NCCL - C.nccl_bytes
    assert parts(w, VANILLA, C).total == pytest.approx(
        parts(replace(w, linked=False), VANILLA, C).total + more
    )
    for alone in ({"gpus": 1, "batch": 1, "strategy": "single"}, {"strategy": "dp"}):
        assert nccl_bytes(replace(w, **alone), C) == 0
    # the constants of the measured cells are those of a budget of tokens
    budget = replace(w, batch=None, strategy="fsdp")
    assert nccl_bytes(budget, C) == C.nccl_bytes


def test_the_amount_is_that_of_messages_of_runs_out_of_memory() -> None:
    with (HERE / "plan_runtime.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    beside: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        if int(row["gpus"]) > 1:
            rest = float(row["in_use"]) - float(row["allocated"]) - float(row["cached"])
            beside[is_linked(None, float(row["card"]) * GIB)].append(rest - C.context_bytes / GIB)
    linked, others = beside[True], beside[False]
    assert len(linked) == 7 and len(others) == 6
    assert statistics.median(linked) == pytest.approx(LINKED_NCCL / GIB, abs=0.1)
    assert statistics.median(others) < C.nccl_bytes / GIB
    halves = [statistics.median(linked[start::2]) for start in (0, 1)]
    assert halves == pytest.approx([1.1, 1.3], abs=0.05)


@pytest.mark.parametrize(
    ("name", "gib", "linked"),
    [
        ("NVIDIA H100 80GB HBM3", 80, True),
        ("NVIDIA H100 PCIe", 80, False),
        ("NVIDIA GB200", 184, True),
        ("NVIDIA GeForce RTX 4090", 24, False),
        ("NVIDIA RTX A6000", 48, False),
        ("Tesla V100-SXM2-32GB", 32, False),
        (None, 24, False),
        (None, 44.5, False),
        (None, 80, True),
    ],
)
def test_which_gpus_are_linked(name: str | None, gib: float, linked: bool) -> None:
    assert is_linked(name, gib * GIB) == linked


def test_all_kernels_are_in_the_context_of_older_releases() -> None:
    assert as_of("megatron", "2021-04")["all_kernels"] and as_of("loop", "2022-10")["all_kernels"]
    assert not {"all_kernels"} & {*as_of("loop", "2023"), *as_of("loop", "2020-06")}
    w = a_job(all_kernels=True)
    assert runtime_bytes(w, C) == C.context_bytes + ALL_KERNELS
    # transformers' documentation: 1,343 MiB on a V100
    assert runtime_bytes(w, C) / GIB == pytest.approx(1343 / 1024, rel=0.01)


def test_llamas_scores_were_kept_once_more_for_a_maximum() -> None:
    half = a_job(dtype="bf16", attention="eager", clamped_scores=True)
    wide = a_job(dtype="fp32", amp="bf16", attention="eager", clamped_scores=True)
    for w, width in ((half, 2), (wide, 4)):
        more = score_bytes(w) - score_bytes(replace(w, clamped_scores=False))
        assert more == width * LLAMA.heads
    other = replace(half, shape=replace(LLAMA, kind="qwen2"))
    assert score_bytes(other) == score_bytes(replace(other, clamped_scores=False))
    assert as_of("hf", "2023-07-17")["clamped_scores"]
    assert "clamped_scores" not in as_of("hf", "2023-07-18")


def test_families_without_sdpa_write_their_scores() -> None:
    for model, trainer, said in (("gpt-j-6b", "hf", "eager"), ("gpt-j-6b", "litgpt", "flash"),
                                 ("bloom-7b1", "trl", "eager"), ("qwen3-8b", "hf", "flash"),
                                 ("gpt-oss-20b", "trl", "flash")):  # fmt: skip
        asked = Question(model=model, trainer=trainer, batch=1, context=512)
        assert workload_of(asked, shape_of_question(asked), 1).attention == said
        chosen = replace(asked, attention="sdpa")
        assert workload_of(chosen, shape_of_question(chosen), 1).attention == "sdpa"


@pytest.mark.slow
def test_those_families_are_transformers_own() -> None:
    models = pytest.importorskip("transformers.models").__path__[0]
    for kind in WITHOUT_SDPA:
        name = kind.replace("-", "_").replace("openai_gpt", "openai")
        text = Path(models, name, f"modeling_{name}.py").read_text(encoding="utf-8")
        assert "_supports_sdpa = True" not in text, kind
    text = Path(models, "gpt2", "modeling_gpt2.py").read_text(encoding="utf-8")
    assert "_supports_sdpa = True" in text


def test_a_prepared_base_computes_its_gate_in_32_bits() -> None:
    w = a_job(dtype="bf16", amp="bf16", lora=8, quantize="nf4", upcast_rest=True)
    more = layer_bytes_a_token(w) - layer_bytes_a_token(replace(w, upcast_rest=False))
    assert more == 3 * LLAMA.intermediate * 2


def test_overlapping_reductions_have_a_second_bucket() -> None:
    w = a_job(gpus=2, batch=2, strategy="zero2", dtype="fp32", amp="bf16")
    assert bucket_buffer_bytes(replace(w, overlap_comm=True), VANILLA) == 2 * 2 * BUCKET
    assert bucket_buffer_bytes(w, VANILLA) == 2 * BUCKET
    for day, said in (("2024-06", False), ("2024-07", True), ("2025-12-31", False)):
        assert as_of("llama-factory", day).get("overlap_comm", False) == said
    asked = Question(model="qwen3-8b", trainer="ms-swift", strategy="zero2", batch=2, context=64)
    assert workload_of(asked, shape_of_question(asked), 2).reduce_bucket == 200_000_000


# --- a stack that writes beside one that hears --------------------------------------------------

WHISPER = model_named("whisper-base")


def hears(**how: Any) -> Workload:
    usual = {"dtype": "fp32", "amp": None, "strategy": "single", "batch": 1, "context": 448}
    return Workload(shape=WHISPER, checkpointing=False, **(usual | how))


def of_writer(w: Workload) -> float:
    """What a layer that writes keeps, of what one that hears does."""
    layer = layer_bytes_a_token(w) * w.length
    return w.written + looking_bytes(w, VANILLA) / WHISPER.writers / layer


@pytest.mark.parametrize(("tokens", "share"), [(448, 0.504), (224, 0.311)])
def test_a_layer_that_writes_keeps_what_autograd_saves_of_it(tokens: int, share: float) -> None:
    """Shares of transformers' Whisper (5.23.0), saved tensors, in 32 and in 16 bits."""
    assert of_writer(hears(context=tokens)) == pytest.approx(share, rel=0.02)
    assert of_writer(hears(context=tokens, dtype="bf16")) == pytest.approx(share, rel=0.02)


def test_whispers_text_is_no_longer_than_it_writes() -> None:
    w = hears()
    assert w.length == 1500
    assert logit_amount(w, VANILLA) == pytest.approx(448 * WHISPER.vocabulary)
    most = replace(w, context=1500)
    assert parts(most, VANILLA, C).allocated == parts(w, VANILLA, C).allocated
    many = replace(w, batch=16)
    short = replace(many, context=60)
    assert parts(short, VANILLA, C).allocated < 0.8 * parts(many, VANILLA, C).allocated
    assert model_named("whisper-large-v3-turbo").writers == 4


@pytest.mark.slow
def test_transformers_whisper_keeps_that() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def kept(hearing: int, writing: int) -> int:
        config = transformers.WhisperConfig(
            d_model=64, encoder_layers=hearing, decoder_layers=writing, vocab_size=300,
            encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=256,
            decoder_ffn_dim=256, dropout=0.0, use_cache=False, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1,
        )  # fmt: skip
        model = transformers.WhisperModel(config).train()
        own = {p.untyped_storage().data_ptr() for p in model.parameters()}
        saved: dict[int, tuple[int, Any]] = {}

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                saved[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            words = torch.randint(3, 200, (1, 448))
            model(torch.randn(1, 80, 3000), decoder_input_ids=words)
        return sum(size for size, _ in saved.values())

    base = kept(1, 1)
    share = (kept(1, 2) - base) / (kept(2, 1) - base)
    assert of_writer(hears()) == pytest.approx(share, rel=0.03)


# --- what a trainer and a model do --------------------------------------------------------------


def test_diffusers_keeps_the_base_of_a_lora_in_what_it_computes_in() -> None:
    asked = Question(model="flux", trainer="diffusers", lora=16, batch=1, amp="bf16")
    w = workload_of(asked, shape_of_question(asked), 1)
    assert (w.dtype, w.amp, w.autocast) == ("bf16", None, True)
    assert base_bytes(w) == 2 * w.shape.parameters
    for other in (replace(asked, lora=None), replace(asked, dtype="fp32")):
        wide = workload_of(other, shape_of_question(other), 1)
        assert base_bytes(wide) == 4 * wide.shape.parameters and wide.amp == "bf16"


def test_flux_has_layers_as_hunyuan_videos() -> None:
    flux, schnell, video = map(model_named, ("flux", "flux.1-schnell", "hunyuanvideo"))
    assert flux.sample and schnell.sample and video.sample and video.sample.trained
    assert flux.sample.trained == schnell.sample.trained
    for mine, theirs in zip(flux.sample.trained or (), video.sample.trained, strict=True):
        assert mine == pytest.approx(theirs, rel=0.03)


def test_chatglm_writes_its_activation_out(tmp_path: Path) -> None:
    shape = model_named("chatglm-6b")
    written = a_job(shape=shape, dtype="fp16", context=1560)
    more = layer_bytes_a_token(written) - layer_bytes_a_token(replace(written, compile=True))
    assert more == 6 * shape.intermediate * 2
    named = tmp_path / "config.json"
    named.write_text(json.dumps({"model_type": "chatglm", "hidden_size": 64, "num_layers": 2,
                                 "num_attention_heads": 2, "inner_hidden_size": 256,
                                 "vocab_size": 300, "layernorm_epsilon": 1e-5}))  # fmt: skip
    assert model_in(named).activation == shape.activation


# --- what nobody said ---------------------------------------------------------------------------


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_fit_is_not_clear_where_no_length_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--params", "1B", "--batch", "8", "--gpu-mem", "80GiB")
    found = plan(capsys, *asked)
    assert found["fits"] and found["confidence"] == "close"
    what = "give `--context` (1: a row), or measure one step"
    assert any(what in line for line in found["advice"])
    said = plan(capsys, *asked, "--context", "128")
    assert said["confidence"] == "clear"
    rows = plan(capsys, *asked, "--users", "1000", "--embedding-dim", "64")
    assert rows["confidence"] == "clear"


def test_encoders_that_may_stand_beside_a_denoiser_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--model", "flux", "--lora", "16", "--batch", "1", "--checkpointing")
    found = plan(capsys, *asked, "--gpu-mem", "40GiB")
    assert found["confidence"] == "close"
    assert any("GiB are needed: `--encoders none`" in line for line in found["advice"])
    said = plan(capsys, *asked, "--gpu-mem", "40GiB", "--encoders", "none")
    assert said["confidence"] == "clear"
    assert plan(capsys, *asked, "--gpu-mem", "80GiB")["confidence"] == "clear"
    before = plan(capsys, *asked, "--gpu-mem", "40GiB", "--trainer", "finetrainers")
    assert not any("--encoders none" in line for line in before["advice"])


def test_what_a_trained_tower_keeps_is_not_known() -> None:
    w = a_job(shape=model_named("qwen2.5-vl-7b"), context=4096)
    assert "tower of images" in str(doubt(w, VANILLA))
    for known in (replace(w, lora=8), replace(w, frozen=1.0), replace(w, trained_layers=4)):
        assert "tower" not in str(doubt(known, VANILLA))
