"""Models by name, by config.json (from a file or from the hub's cache) and by size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from each_row import each

from gpusetup.cli import main
from gpusetup.errors import GpuSetupError
from gpusetup.plan.config_json import shape_of
from gpusetup.plan.models import (
    model_named,
    model_table,
)

# --- by name --------------------------------------------------------------------------------------


@each(
    "text, name",
    [
        ("llama3.1-8b", "Meta-Llama-3.1-8B"),
        ("mistralai/Mistral-7B-v0.3", "Mistral-7B-v0.3"),
        ("MISTRAL-7b-instruct", "Mistral-7B-v0.1"),
        ("phi-1.5", "phi-1_5"),
        ("Qwen2.5-7B-Instruct-AWQ", "Qwen2.5-7B"),
        ("glm-4-32b", "GLM-4-32B-0414"),
        ("vit-l-16", "vit-large-patch16-224"),
    ],
)
def test_a_model_is_found_by_the_names_people_use(text: str, name: str) -> None:
    assert model_named(text).name == name


@each(
    "name, gib",
    [("Qwen/Qwen3-27B", 27), ("internlm/internlm3-27b", 27), ("meta-llama/Llama-4-8B", 8),
     ("some-lab/Thing-9B", 9)],
)  # fmt: skip
def test_a_name_is_matched_whole_and_by_its_size_and_never_ticked_else(
    name: str, gib: int, planned: Any
) -> None:
    answer = planned("--model", name, "--lora", "16", "--gpu", "H200")
    assert answer["parameters"] == gib * 10**9 and answer["confidence"] == "close"
    assert f"the shape of {name.partition('/')[2]} (the usual one" in answer["uncounted"][0]


def test_a_name_whose_sizes_differ_or_without_one_is_refused() -> None:
    for name in ("deepseek-ai/deepseek-v4", "lab/Llama-3.1-8B-70B-merge"):
        assert main(["plan", "--model", name, "--gpu", "H200"]) == 2


def test_every_row_of_the_table_has_a_sound_shape() -> None:
    for name in model_table().models:
        shape = model_named(name)
        assert 0 < shape.active <= shape.parameters and shape.layers < 200, name
        assert 0 < shape.largest_unit <= shape.parameters, name


@each(
    "name, layers, billions",
    [
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", 48, 14.8),
        ("NousResearch/Hermes-3-Llama-3.1-8B", 32, 8.0),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507-AWQ", 48, 30.5),
        ("Qwen/Qwen3.5-27B", 64, 27.4),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 40, 24.0),
    ],
)
def test_a_fine_tuned_model_has_the_shape_of_its_base(
    name: str, layers: int, billions: float
) -> None:
    shape = model_named(name, assume=True)
    assert not shape.assumed
    assert shape.layers == layers
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.02)


@each(
    "words, said",
    [
        (("--model", "my-own-thing-3b"), "--model path/to/config.json"),
        (("--model", "quen3-8b"), "similar known names: Qwen3-8B"),
        (("--model", "some-lab/Thing"), "hf download some-lab/Thing config.json"),
        (("--model", "microsoft/resnet-50"), "is a convolutional or recurrent network"),
        (("--model", "sdxl"), "is a diffusion model"),
    ],
)
def test_a_name_without_a_number_hears_why_and_what_to_do(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words, "--gpu-mem", "24GiB"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


# --- by config.json -------------------------------------------------------------------------------

QWEN3_NEXT = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "attn_output_gate": True, "full_attention_interval": 4, "linear_num_value_heads": 32,
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "intermediate_size": 5120, "moe_intermediate_size": 512,
    "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512,
    "vocab_size": 151936, "rms_norm_eps": 1e-6, "max_position_embeddings": 262144,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
    "num_attention_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "vocab_size": 129280,
    "rms_norm_eps": 1e-6, "max_position_embeddings": 163840,
}  # fmt: skip
VIT = {
    "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "image_size": 224, "patch_size": 16, "num_channels": 3,
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3",
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
                    "intermediate_size": 10240, "num_attention_heads": 8,
                    "num_key_value_heads": 4, "vocab_size": 262208},
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304},
}  # fmt: skip


@each(
    "config, parameters, roughly",
    [
        (QWEN3_NEXT, 79.67e9, True),
        (DEEPSEEK_V3, 671.03e9, False),
        (VIT, 86.57e6, False),
        (GEMMA3, 4.30e9, False),
    ],
)
def test_layers_are_counted_by_the_usual_keys(
    config: dict[str, Any], parameters: float, roughly: bool
) -> None:
    """The counts are the published ones, or those of transformers' own classes."""
    shape = shape_of(config)
    assert shape.parameters == pytest.approx(parameters, rel=0.005)
    assert shape.roughly is roughly


@each(
    "changes, said",
    [
        ({"model_type": "jamba"}, "cannot estimate layers of the kind"),
        ({"hybrid_override_pattern": "M-M*-"}, "cannot estimate layers of the kind"),
        ({"model_type": "mamba2"}, "cannot estimate layers of the kind"),
        ({"layer_types": ["mamba", "attention"]}, "cannot estimate layers of the kind 'mamba'"),
        ({"hidden_size": None}, "has no `hidden_size`"),
    ],
)
def test_layers_that_are_not_counted_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(GpuSetupError, match=said):
        shape_of({**QWEN3_NEXT, **changes})


@each(
    "changes",
    [
        {"num_hidden_layers": 10**9 - 1},
        {"hidden_size": ["wide", 7]},
        {"layer_types": [None] * 3, "mlp_ratio": "wide"},
        {"attn_layer_indices": 3},
        {"attn_layer_period": "often", "attn_layer_offset": []},
    ],
)
def test_a_config_of_a_stranger_is_counted_or_refused(changes: dict[str, Any]) -> None:
    for config in (QWEN3_NEXT, DEEPSEEK_V3, VIT):
        try:
            assert shape_of({**config, **changes}).parameters > 0
        except GpuSetupError as problem:
            assert len(problem.message) < 300


def test_a_hybrid_never_gets_a_tick(tmp_path: Path, planned: Any) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN3_NEXT), encoding="utf-8")
    hybrid = planned("--model", str(tmp_path), "--lora", "8", "--gpu-mem", "900GiB")
    assert hybrid["fits"] and hybrid["confidence"] == "close"


# --- from the hub's cache -------------------------------------------------------------------------


def test_a_downloaded_config_is_found_in_the_cache_and_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: Any
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    words = ("--model", "some-lab/Vision-86M", "--gpu-mem", "24GiB", "--batch", "2")
    assert "hf download some-lab/Vision-86M config.json" in planned(*words)["uncounted"][0]
    snapshot = tmp_path / "models--some-lab--Vision-86M" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(VIT), encoding="utf-8")
    answer = planned(*words)
    assert answer["model"] == "Vision-86M" and answer["parameters"] == 86_567_656
    (snapshot / "config.json").write_text("{", encoding="utf-8")
    assert "config.json" in planned(*words)["message"]
