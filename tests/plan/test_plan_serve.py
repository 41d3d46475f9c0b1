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
    found = planned("--serve", "--model", model, "--gpu-mem", "2000GiB")
    assert found["token_kib"] * 1024 == pytest.approx(bytes_a_token, rel=1e-3)


def test_a_hybrid_caches_only_in_its_layers_of_attention(planned: Any) -> None:
    shape = model_named("Qwen3.5-27B")
    answer = planned("--serve", "--model", "Qwen3.5-27B", "--gpu", "H200")
    assert answer["token_kib"] == 16 * 2 * shape.key_value * 2 / 1024


# gpt-oss's files on the hub (13.8 GB and 65.3 GB).
@each(
    "words, gib",
    [
        ("--model gpt-oss-20b", 12.8),
        ("--model gpt-oss-120b", 60.8),
        ("--model Qwen3-32B-FP8", 31.9),
    ],
)
def test_weights_have_the_size_of_the_published_files(words: str, gib: float, planned: Any) -> None:
    found = planned("--serve", *words.split(), "--gpu-mem", "80GiB")
    assert found["weights_gib"] == pytest.approx(gib, rel=0.06)


def test_the_largest_context_and_concurrency_are_just_what_fits(planned: Any) -> None:
    def served(*more: str) -> Any:
        return planned(
            "--serve", "--model", "qwen3-8b", "--weights", "fp8",
            "--gpu-mem", "24GiB", *more,
        )  # fmt: skip

    found = served("--context", "16384")
    assert found["schema"] == "gpusetup.plan-serve/1"
    assert "--max-model-len 16384" in found["command"]
    most = found["largest_sequences"]
    assert most >= 1
    assert served("--context", "16384", "--batch", str(most))["fits"]
    assert not served("--context", "16384", "--batch", str(most + 1))["fits"]
    assert served("--context", str(found["largest_context"]))["fits"]


@each(
    "words, said",
    [
        ("--weights q4_k_m", "invalid choice"),
        ("--gpus 5", "do not divide"),
        ("--model dinov2-large", "does not generate text"),
    ],
)
def test_what_cannot_be_served_is_said(words: str, said: str, planned: Any) -> None:
    assert said in planned("--serve", *LLAMA, *words.split())["message"]


def test_a_tick_is_only_for_what_was_counted(
    planned: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = planned("--serve", *LLAMA, "--context", "8192")
    assert answer["fits"] and not answer["uncounted"]
    images = planned("--serve", "--model", "qwen2.5-vl-72b", "--gpu", "H200", "--gpus", "4")
    assert any("image" in reason for reason in images["uncounted"])
    beyond = ("--model", "llama-2-7b", "--gpu-mem", "80GiB", "--context", "16384")
    assert planned("--serve", *beyond)["command"] is None
    assert main(["plan", "--serve", "--model", "qwen3-4b", "--gpu", "P40"]) == 1
    assert "capability 7.0 or newer; Tesla P40 has 6.1" in capsys.readouterr().err
    assert main(["plan", "--serve", "--params", "7B", "--gpu", "L4"]) == 0
