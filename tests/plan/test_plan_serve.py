"""`plan --serve`: weights and cache against published sizes, and what fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpusetup.cli import main

Served = Callable[..., dict[str, Any]]


@pytest.fixture
def served(capsys: pytest.CaptureFixture[str]) -> Served:
    def answer(engine: str, *words: str, code: int = 0) -> dict[str, Any]:
        assert main(["plan", "--serve", engine, *words, "--json"]) == code
        return dict(json.loads(capsys.readouterr().out))

    return answer


# arXiv 2505.09343, table 1: 70.272 KB, 327.680 KB, 516.096 KB.
@pytest.mark.parametrize(
    ("model", "bytes_a_token"),
    [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama-3.1-405b", 516_096)],
)
def test_the_cache_of_a_token_is_the_published_one(
    model: str, bytes_a_token: int, served: Served
) -> None:
    found = served("vllm", "--model", model, "--gpu-mem", "2000GiB")
    assert found["token_kib"] * 1024 == pytest.approx(bytes_a_token, rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "gib"), [("q2_k", 2.96), ("q3_k_s", 3.41), ("q4_0", 4.34), ("q8_0", 7.95)]
)
def test_gguf_files_have_their_published_sizes(weights: str, gib: float, served: Served) -> None:
    words = ("--model", "llama-3.1-8b", "--gpu-mem", "80GiB", "--weights", weights)
    assert served("llama.cpp", *words)["weights_gib"] == pytest.approx(gib, rel=0.01)


def test_the_largest_context_and_concurrency_are_just_what_fits(served: Served) -> None:
    words = ("--model", "qwen3-8b", "--weights", "fp8", "--gpu-mem", "24GiB")
    found = served("sglang", *words, "--context", "16384")
    assert found["schema"] == "gpusetup.plan-serve/1"
    assert "--context-length 16384" in found["command"]
    most = found["largest_sequences"]
    assert most >= 1
    served("sglang", *words, "--context", "16384", "--batch", str(most))
    served("sglang", *words, "--context", "16384", "--batch", str(most + 1), code=1)
    served("sglang", *words, "--context", str(found["largest_context"]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tgi", "is not a valid engine"),
        ("llama.cpp --weights int4", "is not a valid format"),
        ("vllm --gpus 5", "do not divide"),
        ("vllm --model dinov2-large", "does not generate text"),
    ],
)
def test_what_cannot_be_served_is_said(words: str, said: str, served: Served) -> None:
    usual = ("--model", "llama-3.1-8b", "--gpu-mem", "24GiB")
    engine, *more = words.split()
    assert said in served(engine, *usual, *more, code=2)["message"]


# The files on the Hub: 13.8 GB and 65.3 GB.
@pytest.mark.parametrize(("model", "gib"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_a_model_is_served_in_the_format_of_its_files(
    model: str, gib: float, served: Served
) -> None:
    found = served("vllm", "--model", model, "--gpu-mem", "80GiB")
    assert found["weights"] == "mxfp4"
    assert found["weights_gib"] == pytest.approx(gib, rel=0.06)


def test_a_context_beyond_the_model_has_no_command(served: Served) -> None:
    words = ("--model", "llama-2-7b", "--gpu-mem", "80GiB", "--context", "16384")
    assert served("vllm", *words)["command"] is None


def test_an_engine_serves_no_gpu_that_is_too_old_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--serve", "vllm", "--model", "qwen3-4b", "--gpu", "P40"]) == 1
    assert "capability 7.0 or newer; Tesla P40 has 6.1" in capsys.readouterr().err


def test_a_model_by_its_size_is_served_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A shape by `--params` has no native context that a sequence could be beyond."""
    assert main(["plan", "--serve", "--params", "7B", "--gpu", "L4"]) == 0
    assert "7B" in capsys.readouterr().out


def test_a_server_that_tries_images_gets_no_tick(served: Served) -> None:
    words = ("--model", "qwen2.5-vl-72b", "--context", "4096", "--batch", "2", "--gpu", "H200",
             "--gpu-memory-utilization", "0.95")  # fmt: skip
    answer = served("vllm", *words, "--tp", "4")
    assert any("image" in reason for reason in answer["uncounted"])
    assert answer == served("vllm", *words, "--gpus", "4")


def test_a_server_is_divided_among_all_of_its_gpus(served: Served) -> None:
    words = ("--model", "qwen3-8b", "--gpu", "A100 40GB", "--gpus", "4", "--tp", "2")
    served("vllm", *words, code=2)
