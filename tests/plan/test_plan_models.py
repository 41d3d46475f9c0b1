"""Models by name, by config and by size; their counts are those of transformers' own classes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusetup.errors import BadInput, UsageError
from gpusetup.model.frozen import replace
from gpusetup.plan.config_json import shape_of
from gpusetup.plan.models import (
    model_in,
    model_named,
    model_table,
    parameter_count,
    shape_or_assumed,
    size_in_name,
)

HERE = Path(__file__).resolve().parent

QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}


USUAL_KINDS = (
    "llama", "qwen2", "qwen3", "gemma", "gemma2", "gpt2", "gpt_neox", "mixtral", "qwen3_moe",
    "opt", "bloom", "falcon", "mpt", "starcoder2", "olmo2", "olmoe", "cohere", "glm4",
    "gpt_oss", "qwen2_5_vl", "qwen3_vl", "gemma3", "llava",
    "qwen3_next", "deepseek_v3", "bamba", "glm4_moe", "ernie4_5_moe",
)  # fmt: skip


@pytest.fixture(scope="module")
def reference() -> Any:
    """What transformers says, from one child for all tests."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "plan_reference.py"), *USUAL_KINDS],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_row_of_the_table_has_its_published_count_and_a_sound_shape() -> None:
    rows = model_table().models
    assert len(rows) >= 190
    assert sum(row["checked"] == "published" for row in rows.values()) >= 170
    for name in rows:
        shape = model_named(name)
        assert 0 < shape.active <= shape.parameters and shape.layers < 200, name
        assert 0 < shape.largest_unit <= shape.parameters, name

    # v0.1 and v0.3 differ in their vocabulary; each is found by its whole id


@pytest.mark.parametrize(
    ("text", "name"),
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


def test_an_unknown_hub_id_says_how_its_config_is_fetched() -> None:
    with pytest.raises(UsageError) as caught:
        model_named("some-lab/Thing-9B")
    assert "hf download some-lab/Thing-9B config.json" in (caught.value.hint or "")


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_a_config_without_a_needed_key_says_which(key: str) -> None:
    config = {name: value for name, value in QWEN3_8B.items() if name != key}
    with pytest.raises(BadInput, match=f"has no `{key}`"):
        shape_of(config)


def test_a_model_of_text_and_images_has_its_text_and_the_towers_weights() -> None:
    """Published: 8,292,166,656 parameters, of which the text has 7,615,616,512."""
    both = model_named("Qwen/Qwen2.5-VL-7B-Instruct")
    assert both.parameters == pytest.approx(8292166656, rel=1e-3)
    assert replace(both, name="", parameters=0, active=0, native_context=0, tower=0) == replace(
        model_named("qwen2.5-7b"), name="", parameters=0, active=0, native_context=0
    )
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
              "hidden_size": 2560, "num_hidden_layers": 34, "intermediate_size": 10240,
              "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208},
              "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27,
                                "intermediate_size": 4304}}  # fmt: skip
    assert shape_of(config).parameters == pytest.approx(4.30e9, rel=0.01)  # the published count


@pytest.mark.parametrize(
    ("kind", "config", "parameters"),
    [
        ("internlm2", {"num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
                       "intermediate_size": 14336, "vocab_size": 92544}, 7.738e9),
        ("chatglm", {"num_layers": 28, "multi_query_group_num": 2, "kv_channels": 128,
                     "ffn_hidden_size": 13696, "rmsnorm": True, "layernorm_epsilon": 1e-5,
                     "padded_vocab_size": 65024}, 6.244e9),
        ("falcon", {"hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32,
                    "multi_query": True, "vocab_size": 65024}, 6.922e9),
    ],
)  # fmt: skip
def test_a_family_without_a_row_is_read_by_the_usual_keys(
    kind: str, config: dict[str, Any], parameters: float
) -> None:
    """The counts are the published ones."""
    usual = {"model_type": kind, "hidden_size": 4096, "num_attention_heads": 32}
    shape = shape_of({**usual, **config})
    assert shape.parameters == pytest.approx(parameters, rel=1e-3)


@pytest.mark.slow
def test_usual_keys_count_what_the_classes_have(reference: Any) -> None:
    """Each class's own default config, on the meta device."""
    for kind, case in reference["counts"].items():
        said = shape_of(case["config"]).parameters
        assert said == pytest.approx(case["parameters"], rel=0.03), kind


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "\udcff"])
def test_a_broken_config_is_bad_input(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput):
        model_in(file)


def test_an_unknown_model_hears_the_nearest_names() -> None:
    with pytest.raises(UsageError, match="No model is called 'quen3-8b'") as problem:
        model_named("quen3-8b")
    assert "Qwen3-8B" in (problem.value.hint or "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("microsoft/resnet-50", "has no attention layers"),
        ("yolov8n", "has no attention layers"),
        ("sdxl", "is a diffusion model"),
        ("black-forest-labs/FLUX.1-dev", "is a diffusion model"),
        ("Wan-AI/Wan2.1-T2V-14B-Diffusers", "is a diffusion model"),
    ],
)
def test_what_plan_cannot_count_gets_a_reason_and_no_number(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as problem:
        model_named(name)
    assert "--code" in (problem.value.hint or "")


@pytest.mark.parametrize("text", ["", "7x", "-1B", "8", "900000T"])
def test_absurd_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parameter_count(text)


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen3-27B", "internlm/internlm3-27b", "baichuan-inc/baichuan3-27b", "qwen3-27b",
     "meta-llama/Llama-4-8B", "deepseek-ai/deepseek-v4", "lab/Llama-3.1-8B-70B-merge"],
)  # fmt: skip
def test_a_name_is_matched_whole_and_by_its_size_or_not_at_all(name: str) -> None:
    try:
        shape = shape_or_assumed(name)
    except UsageError as problem:
        assert "No model is called" in problem.message
    else:
        assert shape.assumed and not shape.base
        assert shape.parameters == size_in_name(name).parameters
