"""Denoisers of video: their counts, their tokens, what a layer keeps and what stands beside it."""

from __future__ import annotations

from typing import Any

import pytest

from gpusetup.cli import main
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer.assumed import assumed
from gpusetup.plan.answer.cell import settings
from gpusetup.plan.answer.choose import Limits
from gpusetup.plan.answer.decide import Case, decide
from gpusetup.plan.answer.question import Question
from gpusetup.plan.answer.workload import shape_of_question, workload_of
from gpusetup.plan.memory.activations import layer_bytes_a_token, rate_of, residual_bytes
from gpusetup.plan.memory.constants import shipped_constants
from gpusetup.plan.memory.parts import parts
from gpusetup.plan.memory.states import base_bytes, encoder_bytes, standing_bytes
from gpusetup.plan.model.config_json import shape_of
from gpusetup.plan.model.named import model_named
from gpusetup.plan.model.sample import of_size
from gpusetup.plan.model.shape import lora_parameters
from gpusetup.plan.model.video import CLASSES
from gpusetup.plan.model.workload import Recipe, Workload

COG = model_named("cogvideox-2b")
VANILLA, C = Recipe(), shipped_constants()
CASE = Case(limits=Limits(capacity=79 * GIB), constants=C)


def a_job(**how: Any) -> Workload:
    shape = how.pop("shape", COG)
    usual = {"dtype": "bf16", "amp": None, "strategy": "single", "batch": 1, "loss": "eager"}
    return Workload(shape=shape, context=shape.tokens, checkpointing=False, **(usual | how))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("THUDM/CogVideoX-2b", 1693783872),
        ("cogvideox-5b", 5570283072),
        ("cogvideox-5b-i2v", 5570479680),
        ("cogvideox1.5-5b", 5570676352),
        ("wan2.1-1.3b", 1418996800),
        ("wan2.1-t2v-14b", 14288491584),
        ("wan2.1-i2v-14b-480p", 16394878784),
        ("wan2.2-ti2v-5b", 4999787712),
        ("hunyuanvideo", 12821012544),
        ("ltx-video", 1923385472),  # finetrainers prints it as its trainable parameters
        ("mochi", 10027677744),
    ],
)
def test_counts_are_those_of_diffusers_classes(name: str, parameters: int) -> None:
    assert model_named(name).parameters == parameters


@pytest.mark.parametrize(
    ("name", "frames", "size", "tokens"),
    [
        ("cogvideox-5b", 49, "480x720", 13 * 30 * 45 + 226),
        ("cogvideox1.5-5b", 81, "768x1360", 11 * 48 * 85 + 226),  # two latents a token in time
        ("wan2.1-14b", 81, "480x832", 21 * 30 * 52),
        ("wan2.2-ti2v-5b", 121, "704x1280", 31 * 22 * 40),  # its VAE has 16 pixels a side
        ("hunyuanvideo", 49, "512x768", 13 * 32 * 48 + 256),
        ("ltx-video", 49, "512x768", 7 * 16 * 24),
        ("mochi", 163, "480x848", 28 * 30 * 53 + 256),
        ("flux", None, "512x512", 32 * 32 + 512),
        ("sdxl", None, "1024", 1024),
    ],
)
def test_tokens_follow_from_frames_and_pixels(
    name: str, frames: int | None, size: str, tokens: int
) -> None:
    assert of_size(model_named(name), frames, size).tokens == tokens


def test_lora_has_the_parameters_that_finetrainers_prints() -> None:
    """Rank 128 beside attention: the training guides of LTX-Video and HunyuanVideo."""
    assert lora_parameters(model_named("ltx-video"), 128, "attention") == 117440512
    assert lora_parameters(model_named("hunyuanvideo"), 128, "attention") == 163577856


@pytest.mark.parametrize("name", CLASSES)
def test_a_bare_config_is_the_published_model_and_a_wrong_one_names_its_key(name: str) -> None:
    assert shape_of({"_class_name": name}).parameters > 10**9
    for wrong in (0, -1, "many", 10**9):
        with pytest.raises(BadInput, match="num_attention_heads"):
            shape_of({"_class_name": name, "num_attention_heads": wrong})


@pytest.mark.parametrize("value", ["x", [], ["x", 2, 2], 0, [1, 2, 0], 1.5])
def test_a_patch_that_is_no_size_is_named(value: object) -> None:
    with pytest.raises(BadInput, match="patch_size"):
        shape_of({"_class_name": "WanTransformer3DModel", "patch_size": value})


@pytest.mark.parametrize(
    ("frames", "size", "model", "words"),
    [
        (None, "3x", "cogvideox-2b", "no size in pixels"),
        (None, "8x720", "cogvideox-2b", "less than one token"),
        (49, None, "flux", "makes images"),
        (None, "480x720", "qwen3-8b", "is for a denoiser"),
    ],
)
def test_a_size_that_means_nothing_says_so(
    frames: int | None, size: str | None, model: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        shape_of_question(Question(model=model, frames=frames, size=size, batch=1))


def test_a_layer_keeps_what_its_class_keeps() -> None:
    """Measured on diffusers' block: 46.2 bytes an element in 16 bits, 62.3 under autocast."""
    assert layer_bytes_a_token(a_job()) / COG.hidden == pytest.approx(46.2)
    assert layer_bytes_a_token(a_job(autocast=True)) / COG.hidden == pytest.approx(62.3)
    whole = layer_bytes_a_token(a_job(dtype="fp32", amp="fp16"))
    assert whole / COG.hidden == pytest.approx(62.3)
    small = a_job(lora=16, lora_targets="attention", adapter_dtype="bf16")
    assert 28 < layer_bytes_a_token(small) / COG.hidden < 28.6
    more = layer_bytes_a_token(replace(small, lora_targets="all")) - layer_bytes_a_token(small)
    assert more == 2 * (COG.hidden + COG.intermediate)


def test_sharding_engines_compute_without_autocast() -> None:
    how = {"dtype": "fp32", "amp": "bf16", "gpus": 2, "batch": 2}
    rates = [rate_of(a_job(**how, strategy=one)) for one in ("ddp", "zero2", "fsdp")]
    assert rates == [2, 1, 1]
    assert residual_bytes(a_job(dtype="fp32", amp="fp16")) == 2


def test_a_wider_mlp_keeps_more() -> None:
    small, large = model_named("wan2.1-1.3b").sample, model_named("wan2.1-14b").sample
    assert small and large and small.trained and large.trained
    assert small.trained[1] - large.trained[1] == pytest.approx(4 * (8960 / 1536 - 13824 / 5120))


def test_encoders_stand_beside_or_are_loaded_first() -> None:
    none, loaded, resident = (
        a_job(lora=16, encoders=where) for where in ("none", "loaded", "resident")
    )
    beside = encoder_bytes(none)
    assert beside == 2 * (4762310656 + 215583907)
    more = standing_bytes(resident, VANILLA) - standing_bytes(none, VANILLA)
    assert more == beside and standing_bytes(loaded, VANILLA) == standing_bytes(none, VANILLA)
    short = replace(loaded, checkpointing=True)
    found = parts(short, VANILLA, C)
    assert found.moment == "loading"
    assert found.allocated == pytest.approx(base_bytes(short) + beside)


def test_a_question_says_its_sample_and_what_is_not_on_the_gpu() -> None:
    asked = Question(model="cogvideox-5b", trainer="finetrainers", lora=64, frames=25, batch=1,
                     lora_targets="attention", checkpointing=True)  # fmt: skip
    w = workload_of(asked, shape_of_question(asked), 1)
    assert w.context == 7 * 30 * 45 + 226 and w.autocast and w.adapter_dtype == "bf16"
    first, second = assumed(asked, w, CASE)[:2]
    assert first.startswith("25 frames of 480 x 720 are 9,676 tokens, 226 of them text's")
    assert "9.3 GiB" in second and "--encoders" in second
    assert settings(w, VANILLA)["mixed_precision"] == "bf16"
    plain = workload_of(replace(asked, amp="none"), shape_of_question(asked), 1)
    assert not plain.autocast and settings(plain, VANILLA)["mixed_precision"] == "none"


@pytest.mark.parametrize(
    ("model", "sample", "tokens"),
    [
        ("wan2.1-1.3b", "video", 32760),
        ("flux", "image", 4608),
        ("whisper-large-v3", "sample of 1,500 tokens", 1500),
        ("vit-large", "sample of 197 tokens", 197),
        ("roberta-large", "sequence", 512),
    ],
)
def test_what_writes_no_text_comes_one_sample_a_gpu(model: str, sample: str, tokens: int) -> None:
    """Nobody fills a budget of tokens with videos, images, sound, or texts that are read whole."""
    asked = Question(model=model)
    w = workload_of(asked, shape_of_question(asked), 2)
    assert (w.batch, w.context, w.strategy) == (2, tokens, "ddp")
    said = " ".join(assumed(asked, w, CASE))
    assert f"no `--batch`: one {sample} a GPU" in said
    assert "in 32 bits and without checkpointing, as plain loops run" in said
    written = replace(asked, batch=2)
    assert w == workload_of(written, shape_of_question(written), 2)


def test_settings_of_what_writes_no_text_are_no_rl_trainers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--model", "vit-large", "--gpu-mem", "24GiB", "--format", "yaml"]) == 0
    said = capsys.readouterr().out
    assert "Trinity" not in said and "max_prompt_tokens" not in said and "fsdp" not in said.lower()
    assert "launch: " in said and "batch_per_gpu: 1" in said


def test_a_text_is_still_a_budget_of_tokens_and_its_length_asked_for() -> None:
    asked = Question(model="qwen3-8b", context=4096)
    assert workload_of(asked, shape_of_question(asked), 2).batch is None
    for silent in (Question(model="t5-large", batch=1), Question(model="llama-3.1-8b", classes=1)):
        with pytest.raises(UsageError, match="`--context` is missing"):
            workload_of(silent, shape_of_question(silent), 1)
    seeing = Question(model="qwen2.5-vl-7b")
    with pytest.raises(UsageError, match="those of its images among them"):
        workload_of(seeing, shape_of_question(seeing), 1)


@pytest.mark.parametrize("model", ["qwen2.5-vl-7b", "qwen3-8b", "wan2.1-14b"])
def test_parts_on_the_host_are_close_unless_cells_tell_of_their_kind(model: str) -> None:
    asked = Question(model=model, context=4096, strategy="fsdp", checkpointing=True)
    fit = decide(workload_of(asked, shape_of_question(asked), 1), CASE).fit
    assert fit.chosen is not None and fit.chosen.recipe.offload and fit.margin > 0.3
    assert fit.clear == (model == "qwen3-8b")


def test_encoders_are_a_denoisers() -> None:
    asked = Question(model="gpt2", context=1024, batch=1, encoders="resident")
    with pytest.raises(UsageError, match="stand beside a denoiser of video"):
        workload_of(asked, shape_of_question(asked), 1)


def test_gptq_leaves_a_tower_of_images_in_16_bits() -> None:
    w = a_job(shape=replace(model_named("qwen-vl-chat"), tokens=512), lora=64)
    four, packed = replace(w, quantize="nf4"), replace(w, quantize="int4")
    tower = w.shape.tower
    assert tower == w.shape.parameters - model_named("qwen-7b").parameters
    inside = w.shape.parameters - w.shape.outside
    assert base_bytes(four) - base_bytes(w) == pytest.approx(inside * (0.5625 - 2))
    kept = (inside - tower) * (0.5 + 2.5 / 128 - 2)
    assert base_bytes(packed) - base_bytes(w) == pytest.approx(kept)
