"""Guide 004, memory on several GPUs: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tuned_configs import Tuner

RECOMMENDER = (
    "{users}: 6040\n{items}: 3706\nembedding_dim: 64\nbatch_size: {batch}\nuse_cache: {cache}\n"
    "gradient_accumulation_steps: 1\n"
)


def recommender(batch: int = 2048, cache: str = "true", users: str = "n_users") -> str:
    items = users.replace("user", "item")
    return RECOMMENDER.format(users=users, items=items, batch=batch, cache=cache)


@pytest.mark.parametrize("users", ["n_users", "num_users", "user_num"])
def test_the_cache_is_counted_and_both_modes_are_named(
    users: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """004-7: 6,040 users of 64 numbers take 1.5 MiB."""
    tuner = Tuner(tmp_path, capsys)
    tuned = tuner.tune(recommender(users=users), tuner.card("GeForce RTX 3090", 24, (8, 6), 8))
    assert tuned.sentence_with("use_cache", r"6,040 users of 64 numbers take 1\.5 MiB")
    assert tuned.sentence_with("cached mode", "dynamic mode")
    assert "use_cache" not in tuned.changes


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (recommender(), "switches it off on GPUs below 4 GB; here that frees next to nothing"),
        (recommender().replace("6040", "900_000".replace("_", "")), "below 4 GB: do so here"),
        (recommender(cache="false"), "Off is the multi-GPU guide's advice"),
    ],
)
def test_the_cache_is_switched_off_on_a_small_card(
    text: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """004-7: below 4 GB the guide switches the cache off."""
    tuner = Tuner(tmp_path, capsys)
    tuned = tuner.tune(text, tuner.card("GeForce GTX 1060 3GB", 3, (6, 1), 2))
    assert tuned.sentence_with("use_cache", advice)


def test_a_language_models_own_cache_is_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """004-7: transformers calls its keys and values `use_cache` too."""
    config = "model_name_or_path: gpt2\nper_device_train_batch_size: 4\nuse_cache: false\n"
    assert Tuner(tmp_path, capsys).tune(config, "healthy").sentence_with("use_cache") is None


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
    gib: float,
    gpus: int,
    batch: int,
    advice: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """004-10: above 8 GB a GPU 2048 in all, 4 to 8 GB 1024, below 4 GB 512."""
    tuner = Tuner(tmp_path, capsys)
    tuned = tuner.tune(recommender(batch), tuner.card("GeForce GTX", gib, (7, 0), gpus))
    assert tuned.sentence_with("recommenders", advice), tuned.sentences
    assert "batch_size" not in tuned.changes


def test_a_recommender_beside_a_language_model_gets_its_tier_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """004-10: also where plan judges the language model of the config."""
    config = f"model_name_or_path: gpt2\nmax_length: 3\n{recommender(2048)}"
    tuner = Tuner(tmp_path, capsys)
    tuned = tuner.tune(config, tuner.card("GeForce RTX 2060", 6, (7, 5), 4))
    assert tuned.sentence_with("recommenders", "batch of 1024 in all, 256 on each of the 4 GPUs")
