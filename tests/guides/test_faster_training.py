"""Guide 001, faster training: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tuned_configs import Tuner

from gpusetup.configs.config import read_config

LSTM = (
    "model_type: lstm\nhidden_size: 128\nbatch_size: {batch}\namp: false\nnum_workers: 0\n"
    "pin_memory: false\ngradient_accumulation_steps: {steps}\n"
)


@pytest.mark.parametrize(
    ("card", "gib", "mark"),
    [
        ("GeForce RTX 3070", 8, "256 to 512"),
        ("GeForce RTX 2080 Ti", 11, "256 to 512"),
        ("GeForce RTX 3060", 12, "512 to 1024"),
        ("Tesla T4", 14.75, "1024 to 2048"),
        ("GeForce RTX 4090", 24, "1024 to 2048"),
        ("GeForce RTX 2060", 6, "128 to 256"),
    ],
)
@pytest.mark.parametrize("model", ["model_type: lstm", "arch: BiGRU", "d_model: 64\nn_layers: 2"])
def test_the_batch_by_the_memory_of_the_card_is_a_mark_to_measure(
    card: str,
    gib: float,
    mark: str,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """001-3: 8 GB 256 to 512, 12 GB 512 to 1024, 16 GB and more 1024 to 2048."""
    tuner = Tuner(tmp_path, capsys)
    tuned = tuner.tune(f"{model}\nbatch_size: 64\n", tuner.card(card, gib, (8, 6)))
    most = mark.rpartition(" ")[2]
    assert tuned.sentence_with(mark, rf"tune \S+ --batch-size .*--max {most}`")
    assert "batch_size" not in tuned.changes


@pytest.mark.parametrize(
    "config",
    [
        "model_name_or_path: Qwen/Qwen3-0.6B\nper_device_train_batch_size: 2\nmax_length: 4096\n",
        "model: resnet50\nbatch_size: 64\n",
        "model: yolo11n.pt\nbatch: 16\nimgsz: 640\n",
        "model: swin_transformer_tiny\nbatch_size: 64\n",
        "network_g: {type: RRDBNet, num_feat: 64}\nbatch_size: 16\n",
    ],
)
def test_other_models_get_no_mark_of_small_sequences(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-3: the marks are for small recurrent models and transformers."""
    tuner = Tuner(tmp_path, capsys)
    tuned = tuner.tune(config, tuner.card("GeForce RTX 4090", 24, (8, 9)))
    assert tuned.sentence_with("acceleration guide starts with a batch") is None


@pytest.mark.parametrize(
    ("batch", "steps", "advice"),
    [
        (128, 1, "up to 128 .* 128 x 2 is a batch of 256"),
        (512, 1, "128 x 4 accumulated keeps the effective batch of 512"),
        (96, 4, "up to 128"),
        (250, 2, "125 x 4 accumulated keeps the effective batch of 500"),
    ],
)
def test_a_card_below_5_gb_gets_128_or_less_with_accumulation(
    batch: int, steps: int, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-4: below 5 GB up to 128; a batch of 512 is told to become 128 with accumulation."""
    tuned = Tuner(tmp_path, capsys).tune(LSTM.format(batch=batch, steps=steps), "rtx3050-laptop")
    assert tuned.sentence_with(advice)


PRESETS = {
    "top": {
        "model_type": "transformer", "epochs": "100", "batch_size": "512", "hidden_size": "256",
        "amp": "true", "num_workers": "4", "gradient_accumulation_steps": "1",
    },
    "balanced": {
        "model_type": "lstm", "epochs": "50", "batch_size": "256", "hidden_size": "128",
        "amp": "true", "num_workers": "2", "gradient_accumulation_steps": "1",
    },
    "saving": {
        "model_type": "lstm", "epochs": "50", "batch_size": "128", "hidden_size": "64",
        "amp": "true", "gradient_accumulation_steps": "2",
    },
}  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), PRESETS.items())
def test_a_preset_is_a_config_with_a_reason_for_each_line(
    name: str, settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-8: top, balanced and saving are written as configs to start from."""
    file = tmp_path / "my config.yaml"
    printed = Tuner(tmp_path, capsys).printed("--preset", name, "-o", str(file))
    assert printed.splitlines()[-1].startswith("Next, fit it to this machine: `gpusetup tune '")
    config = read_config(file.read_bytes(), file.name)
    values = {str(one.path[-1]): one.text for one in config.settings if one.kind == "scalar"}
    assert settings.items() <= values.items()
    setting_lines = [line for line in config.text.splitlines() if line and line[0] != "#"]
    assert all(" guide" in line.partition("  # ")[2] for line in setting_lines)
    comments = "\n".join(line for line in config.text.splitlines() if line.startswith("#"))
    assert "--benchmark --code" in comments
    assert "torch.cuda.amp is deprecated" in config.text


def test_a_preset_becomes_the_machines_by_tune_and_the_list_names_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-8: what tune writes to start from, tune reads."""
    tuner = Tuner(tmp_path, capsys)
    listed = tuner.printed("--preset", "list")
    names = ("top", "balanced", "saving", "rtx-4090", "rtx-4080", "rtx-4070", "gtx-1080")
    assert all(f"  {name} " in listed for name in names)
    for name in names:
        text = tuner.printed("--preset", name)
        tuned = tuner.tune(text, "healthy")
        assert set(tuned.changes) == {"num_workers"}, name


def test_a_preset_keeps_the_file_that_it_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-8: somebody's own config is not lost."""
    file = tmp_path / "train.yaml"
    file.write_text("mine: true\n", encoding="utf-8")
    Tuner(tmp_path, capsys).printed("--preset", "top", "-o", str(file))
    kept = tmp_path / "train.yaml.gpusetup-previous"
    assert (kept.read_text(), "batch_size: 512" in file.read_text()) == ("mine: true\n", True)
