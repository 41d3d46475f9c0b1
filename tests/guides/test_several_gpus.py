"""Guide 004, memory on several GPUs: what its reader asks, and what gpusetup must give back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli import main

GPT2 = ("--model", "gpt2", "--context", "3", "--batch", "2048", "--gpus", "8")
CARD = ("--gpu-mem", "11GiB")
USERS, ITEMS, WIDTH = 20_000_000, 3_706, 64


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["plan", *words, "--json"])
    return dict(json.loads(capsys.readouterr().out))


def states(answer: dict[str, Any]) -> float:
    return float(answer["memory_gib"]["states"])


# --- 004-1: DataParallel --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dp", "dataparallel", "data-parallel", "torch.nn.DataParallel"])
def test_data_parallel_has_its_parts_and_a_first_gpu_that_holds_most(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """004-1: the first GPU has Adam's states and all outputs; DDP stands beside it."""
    answer = plan(capsys, *GPT2, *CARD, "--strategy", name)
    distributed = plan(capsys, *GPT2, *CARD, "--strategy", "ddp")
    memory = answer["memory_gib"]
    assert answer["strategy"] == "dp" and memory["other_gpus"] < memory["total"] / 2
    assert memory["logits"] == pytest.approx(8 * distributed["memory_gib"]["logits"], rel=0.01)
    advice = " ".join(answer["advice"])
    assert "the first GPU holds most" in advice and "torchrun --nproc-per-node 8" in advice
    assert f"{distributed['memory_gib']['total']:.1f} GiB" in advice
    main(["plan", *GPT2, *CARD, "--strategy", name])
    screen = capsys.readouterr().out
    assert "Memory of the first GPU" in screen and "on each other GPU" in screen


# --- 004-2: embedding tables ----------------------------------------------------------------------


def test_tables_of_options_are_weights_with_gradients_and_states(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """004-2: n x dim x 4 bytes of weights; DDP keeps 20 bytes a trained parameter."""
    plain = plan(capsys, *GPT2, *CARD, "--strategy", "ddp")
    tables = ("--embedding", f"users={USERS}x{WIDTH}", "--embedding", f"items={ITEMS}x{WIDTH}")
    larger = plan(capsys, *GPT2, *CARD, "--strategy", "ddp", *tables)
    weights_gib = 4 * WIDTH * (USERS + ITEMS) / 2**30
    assert states(larger) - states(plain) == pytest.approx(5 * weights_gib, rel=0.03)
    assert any("are 4.8 GiB of weights" in line for line in larger["advice"])


TABLES = {
    f"n_users: {USERS}\nn_items: {ITEMS}\nembedding_dim: {WIDTH}\n": USERS + ITEMS,
    f"user_num: {USERS}\nemb_dim: {WIDTH}\n": USERS,
    f"num_movies: {USERS}\nmovie_dim: {WIDTH}\n": USERS,
    f"tables:\n  ads: {{num_embeddings: {USERS}, embedding_dim: {WIDTH}}}\n": USERS,
    f"cardinalities: [{USERS}, 100]\nembedding_dim: {WIDTH}\n": USERS + 100,
    f"num_samples: {USERS}\nnum_train_steps: {USERS}\nnum_layers: 12\nembedding_dim: 64\n": 0,
    f"n_users: {USERS}\n": 0,
}
"""Lines of a config -> the rows of 64 numbers that they describe."""


@pytest.mark.parametrize("text", TABLES)
def test_tables_of_a_config_are_counted_however_they_are_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """004-2: users, items and other entities; never steps, samples or layers."""
    file = tmp_path / "train.yaml"
    head = "model_name_or_path: gpt2\nbatch_size: 8\nmax_length: 3\n"
    file.write_text(head, encoding="utf-8")
    plain = plan(capsys, "--from-config", str(file), "--gpu-mem", "180GiB")
    file.write_text(head + text, encoding="utf-8")
    larger = plan(capsys, "--from-config", str(file), "--gpu-mem", "180GiB")
    bytes_a_parameter = states(plain) * 2**30 / plain["parameters"]
    added = (states(larger) - states(plain)) * 2**30 / bytes_a_parameter
    assert added == pytest.approx(WIDTH * TABLES[text], rel=0.02, abs=1e5)


# --- 004-4: frozen parts --------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("--freeze",), ("--freeze", "all"), ("--freeze", "100%")])
def test_a_frozen_model_has_weights_alone(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """004-4: neither gradients nor Adam's states."""
    trained = plan(capsys, *GPT2, *CARD, "--strategy", "ddp")
    frozen = plan(capsys, *GPT2, *CARD, "--strategy", "ddp", *words)
    assert states(frozen) == pytest.approx(4 * 124.4e6 / 2**30, rel=0.02)
    assert states(frozen) < states(trained) / 2


FROZEN = {
    "freeze_gpt2: true": 1.0,
    "freeze_backbone: yes": 1.0,
    "model: {frozen: true}": 1.0,
    "train_backbone: false": 1.0,
    "freeze_embeddings: true": 0.31,
    "freeze_layers: 6": 0.66,
    "freeze_gpt2: false": 0.0,
    "freeze_bn: true": 0.0,
    "freeze_epochs: 3": 0.0,
}
"""A line of a config -> the share of GPT-2's parameters that it freezes."""


@pytest.mark.parametrize("line", FROZEN)
def test_a_config_says_what_is_frozen(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """004-4: by the model's name, or by the part that it calls so."""
    file = tmp_path / "train.yaml"
    head = "model_name_or_path: gpt2\nper_device_train_batch_size: 8\nmax_length: 3\n"
    file.write_text(f"{head}{line}\nn_users: 1000\nembedding_dim: 64\n", encoding="utf-8")
    card = ("--gpu-mem", "24GiB", "--trainer", "loop", "--gpus", "1")
    answer = plan(capsys, "--from-config", str(file), *card)
    shares = [line for line in answer["advice"] if "is frozen" in line]
    assert bool(shares) == bool(FROZEN[line])
    if 0 < FROZEN[line] < 1:
        assert shares[0].startswith(f"{100 * FROZEN[line]:.0f} % of the model")
