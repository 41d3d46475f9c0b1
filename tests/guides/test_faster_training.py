"""Guide 001, faster training: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from tuned_configs import Tuner

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
@pytest.mark.parametrize("model", ["model_type: lstm", "arch: BiGRU"])
def test_the_batch_by_the_memory_of_the_card_is_a_mark_to_measure(
    card: str, gib: float, mark: str, model: str, tuner: Tuner
) -> None:
    """001-3: 8 GB 256 to 512, 12 GB 512 to 1024, 16 GB and more 1024 to 2048."""
    tuned = tuner.tune(f"{model}\nbatch_size: 64\n", tuner.card(card, gib, (8, 6)))
    most = mark.rpartition(" ")[2]
    assert tuned.sentence_with(mark, rf"tune \S+ --batch-size .*--max {most}`")
    assert "batch_size" not in tuned.changes


@pytest.mark.parametrize(
    "config",
    [
        "model_name_or_path: Qwen/Qwen3-0.6B\nper_device_train_batch_size: 2\nmax_length: 4096\n",
        "model: resnet50\nbatch_size: 64\n",
        "network_g: {type: RRDBNet, num_feat: 64}\nbatch_size: 16\n",
    ],
)
def test_other_models_get_no_mark_of_small_sequences(config: str, tuner: Tuner) -> None:
    """001-3: the marks are for small recurrent models and transformers."""
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
    batch: int, steps: int, advice: str, tuner: Tuner
) -> None:
    """001-4: below 5 GB up to 128; a batch of 512 is told to become 128 with accumulation."""
    tuned = tuner.tune(LSTM.format(batch=batch, steps=steps), "rtx3050-laptop")
    assert tuned.sentence_with(advice)


TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.120                Driver Version: 550.120        CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  Off |
| 30%   55C    P2            180W /  450W |   {used:>5}MiB /  24564MiB |    {busy:>3}%    Default |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
{processes}
+-----------------------------------------------------------------------------------------+
"""
COMPUTES = "|    0   N/A  N/A      4711      C   python                                  6144MiB |"
BAD = TABLE.format(used=6144, busy=45, processes=COMPUTES)
AS_CSV = (
    "name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
    "NVIDIA GeForce RTX 4090, 45, 6144, 24564\n"
)


@pytest.mark.parametrize("text", [BAD, AS_CSV], ids=["table", "csv"])
def test_the_pasted_bad_picture_gets_its_figures_and_the_guides_steps(
    text: str, reads: Any
) -> None:
    """001-14: 45 % and 6 of 24 GB is told, with batch, workers and mixed precision."""
    read = reads(text)
    assert (read.cause, read.code) == ("ok", 0)
    assert "utilisation 45 %, memory 6.0 of 24.0 GiB" in read.screen
    for words in ("1. larger batch", "num_workers", "mixed precision", "gpusetup monitor -- "):
        assert words in read.screen


def test_out_of_memory_leads_to_a_smaller_batch_and_last_to_a_smaller_model(reads: Any) -> None:
    """001-18: the bare line."""
    read = reads("RuntimeError: CUDA out of memory\n")
    assert read.cause == "out-of-memory"
    steps = ("smaller batch", "accumulation", "checkpointing", "smaller model")
    places = [read.screen.index(step) for step in steps]
    assert places[0] < places[1] and places[2] < places[3]


@pytest.mark.parametrize(
    "text",
    [
        "Mixed precision is enabled but training speed did not improve",
        "no speedup with bf16 on my card",
    ],
)
def test_mixed_precision_without_a_gain_names_its_likely_causes(text: str, reads: Any) -> None:
    """001-20: slow data, a small model, and how to find out."""
    read = reads(text)
    assert (read.cause, read.code) == ("mixed-precision-no-gain", 0)
    for words in ("data", "too small", "gpusetup monitor -- ", "--benchmark"):
        assert words in read.screen


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [
        ("RuntimeError: DataLoader worker (pid XXXX) is killed by signal",
         "dataloader-worker-killed", "fewer workers"),
        ("RuntimeError: DataLoader worker (pid 12345) is killed by signal: Killed.",
         "dataloader-worker-killed", "fewer workers"),
        ("DataLoader worker was killed by a signal.", "dataloader-worker-killed", "fewer workers"),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error.",
         "shm-too-small", "shared memory"),
    ],
)  # fmt: skip
def test_a_killed_loader_worker_leads_to_fewer_workers_or_more_shared_memory(
    text: str, cause: str, words: str, reads: Any
) -> None:
    """001-21: also with the guide's placeholder and without a signal's name."""
    read = reads(text)
    assert read.cause == cause and words in read.screen


# --- 001-9 to 001-17: the benchmark ---------------------------------------------------------------

BENCHMARKED = """\
batch_size: 64
use_mixed_precision: false
compile_model: false
num_workers: 0
gradient_accumulation_steps: 1
lr: 0.001
"""
BENCHMARK = ("tune", "bench.yaml", "--benchmark", "--code", "train:build", "-o", "new.yaml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the training, in which the person is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.yaml").write_text(BENCHMARKED)
    return tmp_path


def gains_by_amp_and_workers(setting: dict[str, Any]) -> float:
    gains = {"amp": 1.5, "workers": 2.0, "compile": 0.9}
    return 100.0 * math.prod(gain for name, gain in gains.items() if setting[name])


def test_the_table_has_a_row_for_each_step_with_time_memory_and_speed_up(
    play: Any, says: Any
) -> None:
    """001-9: base, AMP, batch and workers, measured; 001-15: one after the other."""
    play(gains_by_amp_and_workers, dataset=1000)
    screen = says(*BENCHMARK).out
    rows = re.findall(r"(?m)^  (base|\+ \w+)\b", screen)
    assert rows == ["base", "+ AMP", "+ batch", "+ workers", "+ compile"]
    assert re.search(r"s / 1000 +s / epoch +peak +samples/s +speed-up", screen)
    workers_row = next(line for line in screen.splitlines() if "+ workers" in line)
    assert re.search(r"3\.00 x  \d+ workers, kept", workers_row)
    # 001-11: after the same number of steps from the same seed.
    sentence = "Loss after 12 steps from the same seed: 2.191 with mixed precision, 2.19 without"
    assert sentence in screen


def test_what_is_written_agrees_with_the_table(play: Any, says: Any, folder: Path) -> None:
    """001-10: what gained is on in the new file, what gained nothing is not."""
    play(gains_by_amp_and_workers, dataset=1000)
    document = says(*BENCHMARK, "--json").document
    rows = {row["name"]: row for row in document["benchmark"]}
    kept = [rows[name]["kept"] for name in ("+AMP", "+workers", "+compile")]
    assert kept == [True, True, False]
    written = (folder / "new.yaml").read_text()
    assert "use_mixed_precision: true" in written and "compile_model: false" in written
    assert f"num_workers: {rows['+workers']['workers']}\n" in written
    change = next(row for row in document["changes"] if row["key"] == "num_workers")
    assert change["source"] == "measured on this machine"
    # 001-17: the data set's length divided by the samples a second.
    assert rows["base"]["seconds_per_epoch"] == pytest.approx(10.0)
    assert rows["+workers"]["seconds_per_epoch"] == pytest.approx(1000 / 300)


def test_workers_that_brought_nothing_are_not_written(play: Any, says: Any, folder: Path) -> None:
    """001-10: the rule's number of workers gives way to what was measured."""
    play(lambda setting: 90.0 if setting["workers"] else 100.0, dataset=1000)
    assert "no gain: left out" in says(*BENCHMARK).out
    assert "num_workers: 0\n" in (folder / "new.yaml").read_text()


def test_a_gain_that_the_next_run_denies_is_within_the_noise(
    play: Any, says: Any, folder: Path
) -> None:
    """001-10: each setting runs again until it is clear; what stays unclear is not written."""
    runs_with_amp = []

    def noisy(setting: dict[str, Any]) -> float:
        if not setting["amp"]:
            return 100.0
        runs_with_amp.append(setting)
        return 130.0 if len(runs_with_amp) % 2 else 95.0

    play(noisy)
    assert "bf16, within the noise: left out" in says(*BENCHMARK).out
    assert 3 <= len(runs_with_amp) <= 5
    assert "use_mixed_precision: false" in (folder / "new.yaml").read_text()
