"""`plan --serve`: weights and cache against published sizes, and what fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpusetup.cli import main
from gpusetup.errors import UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.plan.models import model_named
from gpusetup.plan.place import sized_gpu
from gpusetup.plan.serve import (
    Serving,
    serve_plan,
    serving,
    token_bytes,
    tokens_within,
    weight_bytes,
)


def a_server(model: str = "llama-3.1-8b", **how: Any) -> Serving:
    usual: dict[str, Any] = {"engine": "vllm", "weights": "bf16", "cache": "bf16", "gpus": 1,
                             "capacity": 79.1 * GIB, "context": 8192, "sequences": 8}  # fmt: skip
    return Serving(shape=model_named(model), **{**usual, **how})


@pytest.mark.parametrize(
    ("model", "bytes_a_token"),
    [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama-3.1-405b", 516_096)],
)
def test_the_cache_of_a_token_is_the_published_one(model: str, bytes_a_token: int) -> None:
    # arXiv 2505.09343, table 1: 70.272 KB, 327.680 KB, 516.096 KB.
    assert token_bytes(a_server(model)) == bytes_a_token


@pytest.mark.parametrize(
    ("weights", "gib"), [("q2_k", 2.96), ("q3_k_s", 3.41), ("q4_0", 4.34), ("q8_0", 7.95)]
)
def test_gguf_files_have_their_published_sizes(weights: str, gib: float) -> None:
    s = a_server(engine="llama.cpp", weights=weights, cache="fp16")
    assert weight_bytes(s) / GIB == pytest.approx(gib, rel=0.01)


def test_the_largest_context_and_concurrency_are_just_what_fits() -> None:
    found = serve_plan(s := a_server(), "H100")
    assert found.fits and found.command and "--max-num-seqs 8" in found.command
    most = replace(s, sequences=found.largest_sequences)
    assert tokens_within(most) >= 8192 * found.largest_sequences
    assert tokens_within(s) < 8192 * (found.largest_sequences + 1)
    few = serve_plan(replace(s, capacity=24 * GIB), "RTX 4090")
    assert few.largest_context < found.largest_context
    longest = replace(s, context=found.largest_context)
    assert tokens_within(longest) >= 8 * found.largest_context > tokens_within(s) - 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"serve": "tgi"}, "is no engine"),
        ({"serve": "llama.cpp", "weights": "int4"}, "is no format"),
        ({"gpus": 5}, "do not divide"),
        ({"model": "dinov2-large"}, "does not generate text"),
    ],
)
def test_what_cannot_be_served_is_said(change: dict[str, Any], said: str) -> None:
    asked = dict.fromkeys(("params", "context", "batch", "weights", "cache", "gpus"))
    with pytest.raises(UsageError, match=said):
        serving({**asked, "serve": "vllm", "model": "llama-3.1-8b", **change}, sized_gpu(GIB))


def test_the_command_answers_with_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--serve", "sglang", "--model", "qwen3-8b", "--context", "16k", "--gpu-mem"]
    assert main([*words, "24GiB", "--weights", "fp8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "gpusetup.plan-serve/1"
    assert found["largest_sequences"] >= 1 and "--context-length 16384" in found["command"]
