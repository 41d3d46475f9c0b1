"""`plan --serve`: weights and cache against published sizes, and what fits."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each

from gpusetup.cli import main
from gpusetup.plan.models import model_named

LLAMA = ("--model", "llama-3.1-8b", "--gpu", "RTX 3090")


# arXiv 2505.09343, table 1: 70.272 KB, 327.680 KB, 516.096 KB.
@each(
    "model, bytes_a_token",
    [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama-3.1-405b", 516_096)],
)
def test_the_cache_of_a_token_is_the_published_one(
    model: str, bytes_a_token: int, planned: Any
) -> None:
    found = planned("--serve", "vllm", "--model", model, "--gpu-mem", "2000GiB")
    assert found["token_kib"] * 1024 == pytest.approx(bytes_a_token, rel=1e-3)


def test_a_hybrid_caches_only_in_its_layers_of_attention(planned: Any) -> None:
    shape = model_named("Qwen3.5-27B")
    answer = planned("--serve", "--model", "Qwen3.5-27B", "--gpu", "H200")
    assert answer["token_kib"] == 16 * 2 * shape.key_value * 2 / 1024


# llama.cpp's files of Llama 3 8B; gpt-oss's files on the hub (13.8 GB and 65.3 GB).
@each(
    "words, gib",
    [
        ("llama.cpp --model llama-3.1-8b --weights q2_k", 2.96),
        ("llama.cpp --model llama-3.1-8b --weights q8_0", 7.95),
        ("vllm --model gpt-oss-20b", 12.8),
        ("vllm --model gpt-oss-120b", 60.8),
        ("vllm --model Qwen3-32B-FP8", 31.9),
    ],
)
def test_weights_have_the_size_of_the_published_files(words: str, gib: float, planned: Any) -> None:
    found = planned("--serve", *words.split(), "--gpu-mem", "80GiB")
    assert found["weights_gib"] == pytest.approx(gib, rel=0.06)


def test_the_largest_context_and_concurrency_are_just_what_fits(planned: Any) -> None:
    def served(*more: str) -> Any:
        return planned(
            "--serve", "sglang", "--model", "qwen3-8b", "--weights", "fp8",
            "--gpu-mem", "24GiB", *more,
        )  # fmt: skip

    found = served("--context", "16384")
    assert found["schema"] == "gpusetup.plan-serve/1"
    assert "--context-length 16384" in found["command"]
    most = found["largest_sequences"]
    assert most >= 1
    assert served("--context", "16384", "--batch", str(most))["fits"]
    assert not served("--context", "16384", "--batch", str(most + 1))["fits"]
    assert served("--context", str(found["largest_context"]))["fits"]


@each(
    "words, said",
    [
        ("tgi", "is not a valid engine"),
        ("llama.cpp --weights int4", "is not a valid format"),
        ("vllm --gpus 5", "do not divide"),
        ("vllm --model dinov2-large", "does not generate text"),
        ("vllm==new", "not a version"),
        ("vllm --gpu-memory-utilization 95", "not a share"),
    ],
)
def test_what_cannot_be_served_is_said(words: str, said: str, planned: Any) -> None:
    engine, *more = words.split()
    assert said in planned("--serve", engine, *LLAMA, *more)["message"]


def test_a_tick_is_only_for_what_was_counted(
    planned: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for version, counted in (("0.11.2", True), ("0.6.3", False), ("0.1", False)):
        answer = planned("--serve", f"vllm=={version}", *LLAMA, "--context", "8192")
        assert answer["fits"] and (not answer["uncounted"]) is counted
    images = planned("--serve", "vllm", "--model", "qwen2.5-vl-72b", "--gpu", "H200", "--gpus", "4",
                     "--gpu-memory-utilization", "0.95", "--batch", "2")  # fmt: skip
    assert any("image" in reason for reason in images["uncounted"])
    beyond = ("--model", "llama-2-7b", "--gpu-mem", "80GiB", "--context", "16384")
    assert planned("--serve", "vllm", *beyond)["command"] is None
    assert main(["plan", "--serve", "vllm", "--model", "qwen3-4b", "--gpu", "P40"]) == 1
    assert "capability 7.0 or newer; Tesla P40 has 6.1" in capsys.readouterr().err
    assert main(["plan", "--serve", "--params", "7B", "--gpu", "L4"]) == 0


def test_the_share_of_the_gpu_is_the_servers_own(planned: Any) -> None:
    usual = planned("--serve", "vllm", *LLAMA)
    larger = planned("--serve", "vllm", *LLAMA, "--gpu-memory-utilization", "0.95")
    assert larger["free_gib"] - usual["free_gib"] == pytest.approx(0.05 * 23.6, abs=0.1)
    assert "--gpu-memory-utilization 0.95" in larger["command"]
