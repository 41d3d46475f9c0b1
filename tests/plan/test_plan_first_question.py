"""What a newcomer asks in one command: a name, a method, an engine's version, the smallest card."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpusetup.cli import main
from gpusetup.plan.models import model_named, shape_or_assumed

Planned = Callable[..., dict[str, Any]]


@pytest.fixture
def planned(capsys: pytest.CaptureFixture[str]) -> Planned:
    def answer(*words: str) -> dict[str, Any]:
        main(["plan", *words, "--json"])
        return dict(json.loads(capsys.readouterr().out))

    return answer


@pytest.mark.parametrize(
    ("name", "layers", "billions"),
    [
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", 48, 14.8),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 36, 8.2),
        ("NousResearch/Hermes-3-Llama-3.1-8B", 32, 8.0),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507-AWQ", 48, 30.5),
        ("Qwen/Qwen3-235B-A22B-FP8", 94, 235),
        ("Qwen/Qwen3.5-27B", 64, 27.4),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 48, 79.6),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 40, 24.0),
    ],
)
def test_the_names_of_2024_to_2026_have_their_shapes(
    name: str, layers: int, billions: float
) -> None:
    shape = shape_or_assumed(name)
    assert not shape.assumed
    assert shape.layers == layers
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.02)


def test_an_unknown_model_with_a_size_is_planned_and_never_ticked(planned: Planned) -> None:
    answer = planned("--model", "some-lab/Thing-9B", "--lora", "16", "--gpu", "H200")
    assert answer["fits"] and answer["confidence"] == "close"
    assert answer["parameters"] == 9_000_000_000
    assert "the shape of Thing-9B (the usual one of its size" in answer["uncounted"][0]


def test_a_fine_tuned_model_of_another_kind_says_what_its_base_lacks(planned: Planned) -> None:
    answer = planned("--model", "me/Qwen3-8B-Audio-Chat", "--lora", "16", "--gpu", "H200")
    assert "without what audio adds" in answer["uncounted"][0]


def test_weights_in_a_name_are_the_format_of_the_base_and_of_a_server(planned: Planned) -> None:
    whole = planned("--model", "qwen3-8b", "--lora", "8", "--context", "512", "--gpu", "H200")
    small = planned("--model", "Qwen3-8B-AWQ", "--lora", "8", "--context", "512", "--gpu", "H200")
    assert small["memory_gib"]["states"] < 0.6 * whole["memory_gib"]["states"]
    assert planned("--serve", "--model", "Qwen3-32B-FP8", "--gpu", "H200")["weights"] == "fp8"


@pytest.mark.parametrize(("text", "gpus"), [("8x H100", 8), ("2 x RTX 3090", 2)])
def test_a_gpu_is_named_with_its_number(text: str, gpus: int, planned: Planned) -> None:
    assert planned("--model", "qwen3-0.6b", "--batch", "8", "--gpu", text)["gpus"] == gpus


@pytest.mark.parametrize("text", ["4090", "RTX 3080", "5070 Ti"])
def test_a_card_is_found_by_what_people_call_it(text: str, planned: Planned) -> None:
    assert planned("--model", "qwen3-0.6b", "--gpu", text)["memory_gib"]["capacity"] > 0


def test_a_method_counts_what_it_holds_beside_the_policy(planned: Planned) -> None:
    words = ("--model", "qwen2.5-1.5b", "--context", "1024", "--batch", "2", "--gpu", "H200")
    by_method = {
        method: planned(*words, "--method", method)["memory_gib"]["total"]
        for method in ("sft", "dpo", "ppo")
    }
    assert by_method["sft"] < by_method["dpo"] < by_method["ppo"]
    assert planned(*words, "--method", "grpo")["confidence"] == "close"
    assert "No method" in planned(*words, "--method", "magic")["message"]


def test_experts_are_divided_among_gpus(planned: Planned) -> None:
    words = ("--model", "qwen3-30b-a3b", "--lora", "8", "--batch", "4", "--gpu", "4x H200")
    whole, divided = planned(*words), planned(*words, "--ep", "4")
    assert divided["memory_gib"]["states"] < 0.4 * whole["memory_gib"]["states"]
    assert "no experts" in planned("--model", "gpt2", "--ep", "2", "--gpu", "2x L4")["message"]


def test_gemma_3_keeps_its_scores_in_trainers_on_transformers(planned: Planned) -> None:
    """Published: 67 GB of an A100 for the 4B model, whole, with 16,384 tokens in axolotl."""
    words = ("--model", "gemma-3-4b-it", "--context", "16384", "--batch", "1", "--gpu", "H200")
    memory = planned(*words, "--trainer", "axolotl")["memory_gib"]
    assert memory["reserved"] == pytest.approx(67 * 1e9 / 2**30, rel=0.15)
    flash = planned(*words, "--trainer", "axolotl", "--attention", "flash")["memory_gib"]
    assert flash["total"] < 0.7 * memory["total"]


# --- servers --------------------------------------------------------------------------------------

LLAMA = ("--model", "llama-3.1-8b", "--gpu", "RTX 3090")


def test_an_older_vllm_is_asked_by_its_version(planned: Planned) -> None:
    for version, counted in (("0.11.2", True), ("0.6.3", False), ("0.1", False)):
        answer = planned("--serve", f"vllm=={version}", *LLAMA, "--context", "8192")
        assert answer["fits"] and (not answer["uncounted"]) is counted
    assert "not a version" in planned("--serve", "vllm==new", *LLAMA)["message"]


def test_the_share_of_the_gpu_is_the_servers_own(planned: Planned) -> None:
    usual = planned("--serve", "vllm", *LLAMA)
    larger = planned("--serve", "vllm", *LLAMA, "--gpu-memory-utilization", "0.95")
    assert larger["free_gib"] - usual["free_gib"] == pytest.approx(0.05 * 23.6, abs=0.1)
    assert "--gpu-memory-utilization 0.95" in larger["command"]
    words = (*LLAMA, "--gpu-memory-utilization", "95")
    assert "not a share" in planned("--serve", "vllm", *words)["message"]


def test_a_hybrid_caches_only_in_its_layers_of_attention(planned: Planned) -> None:
    shape = model_named("Qwen3.5-27B")
    assert shape.cached_layers == 16
    answer = planned("--serve", "--model", "Qwen3.5-27B", "--gpu", "H200")
    assert answer["token_kib"] == 16 * 2 * shape.key_value * 2 / 1024
