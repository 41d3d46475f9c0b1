"""A model that is not in the table: by its config.json, from a file or from its hub; no network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gpusetup.cli import main
from gpusetup.errors import GpuSetupError
from gpusetup.plan.config_json import shape_of

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
MAMBA2 = {
    "model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128,
    "head_dim": 64, "state_size": 128, "n_groups": 8, "expand": 2, "conv_kernel": 4,
    "vocab_size": 32768, "tie_word_embeddings": False, "rms_norm": True, "layer_norm_epsilon": 1e-5,
}  # fmt: skip
VIT = {
    "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "image_size": 224, "patch_size": 16, "num_channels": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "parameters", "roughly"),
    [
        (QWEN3_NEXT, 79.67e9, True),
        (DEEPSEEK_V3, 671.03e9, False),
        (MAMBA2, 7.285e9, True),
        (VIT, 86.57e6, False),
    ],
)
def test_hybrids_experts_and_images_are_counted_by_their_keys(
    config: dict[str, Any], parameters: float, roughly: bool
) -> None:
    """The counts are those of transformers' own classes on the meta device."""
    shape = shape_of(config)
    assert shape.parameters == pytest.approx(parameters, rel=0.005)
    assert shape.roughly is roughly


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "jamba"},
        {"hybrid_override_pattern": "M-M*-"},
        {"layer_types": ["conv", "full_attention"]},
        {"model_type": "mamba", "num_heads": 0},
    ],
)
def test_layers_that_are_not_counted_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(GpuSetupError, match="does not count layers of the kind"):
        shape_of({**MAMBA2, **changes})


def test_a_hybrid_never_gets_a_tick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(MAMBA2), encoding="utf-8")
    words = ("--model", str(tmp_path), "--lora", "8", "--context", "512", "--gpu-mem", "900GiB")
    assert main(["plan", *words]) == 0
    assert "! may fit" in capsys.readouterr().out


def test_the_cache_of_latent_attention_is_one_narrow_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """arXiv 2505.09343, table 1: 70,272 bytes a token."""
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V3), encoding="utf-8")
    main(["plan", "--serve", "--model", str(tmp_path), "--gpu-mem", "2000GiB", "--json"])
    token_kib = json.loads(capsys.readouterr().out)["token_kib"]
    assert token_kib * 1024 == pytest.approx(70_272, rel=1e-3)


@contextmanager
def hub(answers: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """A hub on loopback: path -> status and body; all other paths are not found."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, b""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


ASK = ("plan", "--model", "some-lab/Vision-86M", "--gpu-mem", "24GiB", "--batch", "2")
PLACE = "/some-lab/Vision-86M/resolve/main/config.json"


def test_a_config_is_fetched_only_if_asked_and_the_network_is_said_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with hub({PLACE: (200, json.dumps(VIT).encode())}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        main([*ASK])
        screen_of_relative = capsys.readouterr()
        assert "`--fetch-config` reads its own" in screen_of_relative.out
        assert "network" not in screen_of_relative.err
        assert main([*ASK, "--fetch-config"]) == 0
        screen = capsys.readouterr()
    assert screen.err.startswith(f"network: reading {address}{PLACE}")
    assert "Vision-86M (86.6M parameters)" in screen.out


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"", "the hub answers 404"),
        (401, b"", "private or gated"),
        (200, b"{", "config.json"),
        (200, b" " * (2 << 20), "too large"),
    ],
)
def test_a_hub_that_has_no_config_is_said_with_the_way_by_hand(
    status: int, body: bytes, reason: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with hub({PLACE: (status, body)}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert main([*ASK, "--fetch-config"]) != 0
    assert reason in capsys.readouterr().err


def test_a_known_model_is_never_fetched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["plan", "--model", "gpt2", "--gpu-mem", "24GiB", "--fetch-config"]) == 0
    assert "network" not in capsys.readouterr().err


@pytest.mark.parametrize("endpoint", ["file:///etc", "ftp://x"])
def test_a_mirror_is_an_address_of_the_web(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert main([*ASK, "--fetch-config"]) == 2
    assert "HF_ENDPOINT" in capsys.readouterr().err


def test_a_name_that_nobody_knows_says_exactly_how_to_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--model", "my-own-thing-3b", "--gpu-mem", "24GiB"]) == 2
    message = capsys.readouterr().err
    assert "--model path/to/config.json" in message and "--params 3B" in message


@pytest.mark.parametrize(
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
    for config in (QWEN3_NEXT, DEEPSEEK_V3, MAMBA2, VIT):
        try:
            assert shape_of({**config, **changes}).parameters > 0
        except GpuSetupError as problem:
            assert len(problem.message) < 300
