"""Guide 001, faster training: what a reader of it must get, in its order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusetup import cli
from gpusetup.model.units import GIB
from gpusetup.tune import bench

Play = Callable[..., None]
Tune = Callable[..., str]

BENCHMARKED = """\
batch_size: 64
use_mixed_precision: false
compile_model: false
num_workers: 0
gradient_accumulation_steps: 1
lr: 0.001
"""


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Trials are answered by a function of the setting: its samples a second."""

    def played(speed: Callable[[dict[str, Any]], float], dataset: int | None = None) -> None:
        def ask(self: Any, mode: str, batch: int = 1, **changes: Any) -> dict[str, Any]:
            if mode == "devices":
                return {"status": "ok", "device": "cuda", "name": "NVIDIA L4", "counts": True,
                        "limit_bytes": 24 * GIB, "half": "bf16"}  # fmt: skip
            setting = {"amp": self.job.amp, "compile": False, "workers": None, **changes}
            loaded = {"workers": setting["workers"] or 0, "dataset_length": dataset}
            losses = [2.3 - step / 100 + (0.001 if setting["amp"] else 0) for step in range(12)]
            return {
                "status": "ok",
                "peak_bytes": GIB,
                "samples_per_second": speed({**setting, "batch": batch}),
                "spread_percent": 2.0,
                "loss": losses[-1],
                "losses": losses,
                **(loaded if dataset and changes.get("loaded") else {}),
            }

        monkeypatch.setattr(bench.Bench, "ask", ask)

    return played


@pytest.fixture
def tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tune:
    """`gpusetup tune bench.yaml` with these words: what it prints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.yaml").write_text(BENCHMARKED)

    def run(*words: str) -> str:
        assert cli.main(["tune", "bench.yaml", *words]) == 0
        return capsys.readouterr().out

    return run


def gains_by_amp_and_workers(setting: dict[str, Any]) -> float:
    speed = 100.0
    if setting["amp"]:
        speed *= 1.5
    if setting["workers"]:
        speed *= 2
    if setting["compile"]:
        speed *= 0.9
    return speed


def test_the_table_has_a_row_for_each_step_with_time_memory_and_speed_up(
    play: Play, tune: Tune
) -> None:
    """001-9: base, AMP, batch and workers, measured; 001-15: one after the other."""
    play(gains_by_amp_and_workers, dataset=1000)
    screen = tune("--benchmark", "--code", "train:build")
    rows = re.findall(r"(?m)^  (base|\+ \w+|all)\b", screen)
    assert rows == ["base", "+ AMP", "+ batch", "+ workers", "+ compile", "all"]
    assert re.search(r"s / 1000 +s / epoch +peak +samples/s +speed-up", screen)
    workers_row = next(line for line in screen.splitlines() if "+ workers" in line)
    assert re.search(r"3\.00 x  \d+ workers, kept", workers_row)


def test_what_is_written_agrees_with_the_table(play: Play, tune: Tune, tmp_path: Path) -> None:
    """001-10: what gained is on in the new file, what gained nothing is not."""
    play(gains_by_amp_and_workers, dataset=1000)
    document = json.loads(tune("--benchmark", "--code", "a:b", "-o", "new.yaml", "--json"))
    kept = {row["name"]: row["kept"] for row in document["benchmark"]}
    assert (kept["+AMP"], kept["+workers"], kept["+compile"]) == (True, True, False)
    written = (tmp_path / "new.yaml").read_text()
    assert "use_mixed_precision: true" in written and "compile_model: false" in written
    workers = next(row["workers"] for row in document["benchmark"] if row["name"] == "+workers")
    assert f"num_workers: {workers}\n" in written
    change = next(row for row in document["changes"] if row["key"] == "num_workers")
    assert change["source"] == "measured on this machine"


def test_workers_that_brought_nothing_are_not_written(
    play: Play, tune: Tune, tmp_path: Path
) -> None:
    """001-10: the rule's number of workers gives way to what was measured."""
    play(lambda setting: 90.0 if setting["workers"] else 100.0, dataset=1000)
    screen = tune("--benchmark", "--code", "a:b", "-o", "new.yaml")
    assert "num_workers: 0\n" in (tmp_path / "new.yaml").read_text()
    assert re.search(r"num_workers \(line 4\) stays 0: \d+ were not faster", screen)


def test_a_gain_that_the_next_run_denies_is_within_the_noise(
    play: Play, tune: Tune, tmp_path: Path
) -> None:
    """001-10: each setting runs again until it is clear; what stays unclear is not written."""
    runs_with_amp = []

    def noisy(setting: dict[str, Any]) -> float:
        if not setting["amp"]:
            return 100.0
        runs_with_amp.append(setting)
        return 130.0 if len(runs_with_amp) % 2 else 95.0

    play(noisy)
    screen = tune("--benchmark", "--code", "a:b", "-o", "new.yaml")
    assert "bf16, within the noise: left out" in screen
    assert 3 <= len(runs_with_amp) <= 5
    assert "use_mixed_precision: false" in (tmp_path / "new.yaml").read_text()


def test_the_loss_is_shown_with_and_without_mixed_precision(play: Play, tune: Tune) -> None:
    """001-11: after the same number of steps from the same seed."""
    play(gains_by_amp_and_workers)
    screen = tune("--benchmark", "--code", "a:b")
    sentence = "Loss after 12 steps from the same seed: 2.191 with mixed precision, 2.19 without"
    assert sentence in screen


def test_mixed_precision_that_is_on_already_is_compared_with_a_run_without_it(
    play: Play, tune: Tune, tmp_path: Path
) -> None:
    """001-11: the fear is the same if the config has it on."""
    (tmp_path / "bench.yaml").write_text(BENCHMARKED.replace("precision: false", "precision: true"))
    play(gains_by_amp_and_workers)
    screen = tune("--benchmark", "--code", "a:b")
    assert "it is on already" in screen
    assert "2.191 with mixed precision, 2.19 without" in screen


def test_a_loader_that_was_the_limit_asks_for_a_second_benchmark(play: Play, tune: Tune) -> None:
    """001-15: mixed precision gains nothing while the training waits for its data."""
    play(lambda setting: 300.0 if setting["workers"] else 100.0, dataset=1000)
    screen = tune("--benchmark", "--code", "a:b")
    assert "run the same command once more with the tuned config" in screen


def test_a_benchmark_grows_the_batch_only_if_asked(play: Play, tune: Tune, tmp_path: Path) -> None:
    """001-9: with `--grow-batch` the row of the batch tries sizes up to `--max`."""
    play(lambda setting: float(setting["batch"]))
    words = ("--benchmark", "--code", "a:b", "-o", "new.yaml", "--max", "256")
    tune(*words)
    assert "batch_size: 64\n" in (tmp_path / "new.yaml").read_text()
    screen = tune(*words, "--grow-batch")
    assert "batch_size: 256\n" in (tmp_path / "new.yaml").read_text()
    assert "lr (line 6) is 0.001" in screen and "0.004 for SGD" in screen


def test_the_batch_is_found_by_trial(play: Play, tune: Tune) -> None:
    """001-16: several sizes run, and the answer is one of them."""
    play(lambda setting: 100.0)
    document = json.loads(tune("--batch-size", "--code", "a:b", "--max", "1024", "--json"))
    sizes = [trial["batch"] for trial in document["trials"] if trial["status"] == "ok"]
    assert document["batch_size"] == 1024 and 1024 in sizes and len(sizes) > 1


def test_the_table_has_the_seconds_of_an_epoch(play: Play, tune: Tune) -> None:
    """001-17: the data set's length divided by the samples a second."""
    play(gains_by_amp_and_workers, dataset=1000)
    document = json.loads(tune("--benchmark", "--code", "a:b", "--json"))
    seconds = {row["name"]: row["seconds_per_epoch"] for row in document["benchmark"]}
    assert seconds["base"] == pytest.approx(10.0)
    assert seconds["all"] == pytest.approx(1000 / 300)
