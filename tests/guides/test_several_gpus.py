"""Guide 004, memory on several GPUs: what its reader asks, and what gpusetup must give back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tuned_configs import Tuner

GPT2 = ("--model", "gpt2", "--context", "3", "--batch", "2048", "--gpus", "8")
CARD = ("--gpu-mem", "11GiB")
USERS, ITEMS, WIDTH = 20_000_000, 3_706, 64


def states(answer: dict[str, Any]) -> float:
    return float(answer["memory_gib"]["states"])


# --- 004-1: DataParallel --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dp", "dataparallel", "data-parallel", "torch.nn.DataParallel"])
def test_data_parallel_has_its_parts_and_a_first_gpu_that_holds_most(
    name: str, planned: Any, says: Any
) -> None:
    """004-1: the first GPU has Adam's states and all outputs; DDP stands beside it."""
    answer = planned(*GPT2, *CARD, "--strategy", name)
    distributed = planned(*GPT2, *CARD, "--strategy", "ddp")
    memory = answer["memory_gib"]
    assert answer["strategy"] == "dp" and memory["other_gpus"] < memory["total"] / 2
    assert memory["logits"] == pytest.approx(8 * distributed["memory_gib"]["logits"], rel=0.01)
    advice = " ".join(answer["advice"])
    assert "the first GPU holds most" in advice and "torchrun --nproc-per-node 8" in advice
    assert f"{distributed['memory_gib']['total']:.1f} GiB" in advice
    screen = says("plan", *GPT2, *CARD, "--strategy", name).out
    assert "Memory of the first GPU" in screen and "on each of the other GPUs" in screen


# --- 004-2: embedding tables ----------------------------------------------------------------------


TABLES = {
    f"n_users: {USERS}\nn_items: {ITEMS}\nembedding_dim: {WIDTH}\n": USERS + ITEMS,
    f"num_samples: {USERS}\nnum_train_steps: {USERS}\nnum_layers: 12\nembedding_dim: 64\n": 0,
}
"""Lines of a config -> the rows of 64 numbers that they describe."""


@pytest.mark.parametrize("text", TABLES)
def test_tables_of_a_config_are_counted_however_they_are_named(text: str, planned: Any) -> None:
    """004-2: users, items and other entities; never steps, samples or layers."""
    head = "model_name_or_path: gpt2\nbatch_size: 8\nmax_length: 3\n"
    plain, larger = (planned(head + more, "--gpu-mem", "180GiB") for more in ("", text))
    bytes_a_parameter = states(plain) * 2**30 / plain["parameters"]
    added = (states(larger) - states(plain)) * 2**30 / bytes_a_parameter
    assert added == pytest.approx(WIDTH * TABLES[text], rel=0.02, abs=1e5)


# --- 004-4: frozen parts --------------------------------------------------------------------------


FROZEN = {
    "freeze_gpt2: true": 1.0,
    "freeze_embeddings: true": 0.31,
    "freeze_layers: 6": 0.66,
    "freeze_gpt2: false": 0.0,
}
"""A line of a config -> the share of GPT-2's parameters that it freezes."""


@pytest.mark.parametrize("line", FROZEN)
def test_a_config_says_what_is_frozen(line: str, planned: Any) -> None:
    """004-4: by the model's name, or by the part that it calls so."""
    head = "model_name_or_path: gpt2\nper_device_train_batch_size: 8\nmax_length: 3\n"
    card = ("--gpu-mem", "24GiB", "--trainer", "loop", "--gpus", "1")
    answer = planned(f"{head}{line}\nn_users: 1000\nembedding_dim: 64\n", *card)
    shares = [line for line in answer["advice"] if "is frozen" in line]
    assert bool(shares) == bool(FROZEN[line])
    if 0 < FROZEN[line] < 1:
        assert shares[0].startswith(f"{100 * FROZEN[line]:.0f} % of the model")


RECOMMENDER = (
    "{users}: 6040\n{items}: 3706\nembedding_dim: 64\nbatch_size: {batch}\nuse_cache: {cache}\n"
    "gradient_accumulation_steps: 1\n"
)


def recommender(batch: int = 2048, cache: str = "true", users: str = "n_users") -> str:
    items = users.replace("user", "item")
    return RECOMMENDER.format(users=users, items=items, batch=batch, cache=cache)


@pytest.mark.parametrize("users", ["n_users", "num_users", "user_num"])
def test_the_cache_is_counted_and_both_modes_are_named(users: str, tuner: Tuner) -> None:
    """004-7: 6,040 users of 64 numbers take 1.5 MiB."""
    tuned = tuner.tune(recommender(users=users), tuner.card("GeForce RTX 3090", 24, (8, 6), 8))
    assert tuned.sentence_with("use_cache", r"6,040 users of 64 numbers take 1\.5 MiB")
    assert tuned.sentence_with("cached mode", "dynamic mode")
    assert "use_cache" not in tuned.changes


@pytest.mark.parametrize("cache", ["true", "false"])
def test_the_cache_is_switched_off_on_a_small_card(cache: str, tuner: Tuner) -> None:
    """004-7: below 4 GB the guide switches the cache off."""
    text = recommender(cache=cache)
    tuned = tuner.tune(text, tuner.card("GeForce GTX 1060 3GB", 3, (6, 1), 2))
    assert tuned.sentence_with("use_cache", "switches it off for GPUs below 4 GB")


@pytest.mark.parametrize(
    ("gib", "gpus", "batch", "advice"),
    [
        (24, 8, 2048, "batch of 2048 in all, 256 on each of the 8 GPUs"),
        (6, 4, 2048, "batch of 1024 in all, 256 on each .* 1024 x 2 accumulated keeps .* 2048"),
        (8, 1, 2048, "batch of 1024 in all"),
        (4, 1, 512, "batch of 1024 in all.* another experiment"),
        (3, 2, 2048, "batch of 512 in all, 256 on each .* 512 x 4 accumulated"),
    ],
)
def test_a_recommenders_batch_gets_its_tier(
    gib: float, gpus: int, batch: int, advice: str, tuner: Tuner
) -> None:
    """004-10: above 8 GB a GPU 2048 in all, 4 to 8 GB 1024, below 4 GB 512."""
    tuned = tuner.tune(recommender(batch), tuner.card("GeForce GTX", gib, (7, 0), gpus))
    assert tuned.sentence_with("recommenders", advice), tuned.sentences
    assert "batch_size" not in tuned.changes


# --- 004-16: watching from inside -----------------------------------------------------------------

TRAINING = """
import json, time
from gpusetup.monitor import TrainingMonitor
begin = time.process_time()
while time.process_time() - begin < 1.5:
    sum(range(1000))
with TrainingMonitor("run.jsonl", interval=0.3) as monitor:
    time.sleep(3)
print(monitor.summary.verdict)
"""


def test_the_time_before_the_watching_began_is_not_counted(tmp_path: Path) -> None:
    """004-16: the first sample is only the baseline: no sample has more CPU than there is."""
    done = subprocess.run((sys.executable, "-c", TRAINING), capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run.jsonl").read_text(encoding="utf-8").splitlines()
    trees = [json.loads(line).get("tree") for line in lines[:-1]]
    assert trees[0] is None and any(trees[1:])
    most = max(tree["cpu_percent"] for tree in trees if tree)
    assert most <= 130 * (os.cpu_count() or 1)
