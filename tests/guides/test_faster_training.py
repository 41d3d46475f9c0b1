"""Guide 001, faster training: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tuned_configs import Tuner

from gpusetup.cli import main
from gpusetup.configs.config import read_config
from gpusetup.model.units import GIB
from gpusetup.tune import bench

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
DRAWS = "|    0   N/A  N/A      1201      G   /usr/lib/xorg/Xorg                      2900MiB |"


def doctor_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> tuple[str, str, int]:
    """The cause that `doctor --report` names for a text, the whole screen, and the exit code."""
    file = tmp_path / "report.txt"
    file.write_text(text, encoding="utf-8")
    main(["doctor", "--report", str(file), "--json"])
    cause = json.loads(capsys.readouterr().out)["cause"]
    code = main(["doctor", "--report", str(file)])
    return cause, " ".join(capsys.readouterr().out.split()), code


def test_the_pasted_bad_picture_gets_its_figures_and_the_guides_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-14: 45 % and 6 of 24 GB is told, with batch, workers and mixed precision."""
    text = TABLE.format(used=6144, busy=45, processes=COMPUTES)
    cause, screen, code = doctor_reads(tmp_path, capsys, text)
    assert (cause, code) == ("ok", 0)
    assert "utilisation 45 %, memory 6.0 of 24.0 GiB" in screen
    for words in ("1. larger batch", "num_workers", "mixed precision", "gpusetup monitor -- "):
        assert words in screen


@pytest.mark.parametrize(
    ("used", "busy", "processes"),
    [(18432, 98, COMPUTES), (300, 0, COMPUTES), (3072, 22, DRAWS)],
    ids=["98 %", "idle", "a desktop"],
)
def test_a_good_picture_an_idle_card_and_a_desktop_get_no_steps(
    used: int, busy: int, processes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-14: the neighbours of the bad picture."""
    text = TABLE.format(used=used, busy=busy, processes=processes)
    cause, screen, _ = doctor_reads(tmp_path, capsys, text)
    assert cause == "ok"
    assert "batch" not in screen


def test_the_same_picture_as_csv_gets_the_same_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-14: `nvidia-smi --query-gpu` without units."""
    text = (
        "name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
        "NVIDIA GeForce RTX 4090, 45, 6144, 24564\n"
    )
    _, screen, _ = doctor_reads(tmp_path, capsys, text)
    assert "utilisation 45 %, memory 6.0 of 24.0 GiB" in screen


def test_a_low_utilisation_beside_a_failure_is_not_what_the_text_is_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-14: a neighbour, the same table above an error."""
    text = TABLE.format(used=6144, busy=45, processes=COMPUTES) + "CUDA out of memory.\n"
    cause, screen, _ = doctor_reads(tmp_path, capsys, text)
    assert cause == "out-of-memory"
    assert "works little" not in screen


def test_out_of_memory_leads_to_a_smaller_batch_and_last_to_a_smaller_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-18: the bare line."""
    cause, screen, _ = doctor_reads(tmp_path, capsys, "RuntimeError: CUDA out of memory\n")
    assert cause == "out-of-memory"
    assert screen.index("smaller batch") < screen.index("accumulation")
    assert screen.index("checkpointing") < screen.index("smaller model")


@pytest.mark.parametrize(
    "text",
    [
        "Mixed precision is enabled but training speed did not improve",
        "I turned on torch.autocast, still the same it/s as before",
        "no speedup with bf16 on my card",
        "Automatic mixed precision doesn't make training any faster",
        "training is slower with AMP",
        "Mixed Precision bringt keinen Geschwindigkeitsgewinn",
        "La precisión mixta no hace el entrenamiento más rápido",
        "混合精度训练没有加速",
        "혼합 정밀도를 켜도 빨라지지 않습니다",
    ],
)
def test_mixed_precision_without_a_gain_names_its_likely_causes(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-20: slow data, a small model, and how to find out."""
    cause, screen, code = doctor_reads(tmp_path, capsys, text)
    assert (cause, code) == ("mixed-precision-no-gain", 0)
    for words in ("data", "too small", "gpusetup monitor -- ", "--benchmark"):
        assert words in screen


def test_a_card_without_tensor_cores_is_named_as_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-20: the card that the text names has no tensor cores; one that has them is not blamed."""
    said = "AMP is on, but training is not faster."
    for card in ("GTX 1080 Ti", "GTX 1660 SUPER"):
        _, screen, _ = doctor_reads(tmp_path, capsys, f"{said}\nGPU: NVIDIA GeForce {card}")
        assert f"{card}: without tensor cores" in screen
    _, screen, _ = doctor_reads(tmp_path, capsys, f"{said}\nGPU: NVIDIA GeForce RTX 4090")
    assert "without tensor cores" not in screen.partition("before Volta")[0]


@pytest.mark.parametrize(
    "text",
    [
        "AMP is enabled and training is twice as fast",
        "without mixed precision it is slower",
        "how do I enable AMP to make training faster?",
        "Epoch 5: val_loss did not improve (mixed precision)",
    ],
)
def test_mixed_precision_that_gains_or_is_asked_for_is_no_such_complaint(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-20: neighbours."""
    cause, _, _ = doctor_reads(tmp_path, capsys, text)
    assert cause != "mixed-precision-no-gain"


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: DataLoader worker (pid XXXX) is killed by signal",
        "RuntimeError: DataLoader worker (pid 12345) is killed by signal: Killed.",
        "DataLoader worker was killed by a signal.",
    ],
)
def test_a_killed_loader_worker_leads_to_fewer_workers(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-21: also with the guide's placeholder and without a signal's name."""
    cause, screen, _ = doctor_reads(tmp_path, capsys, text)
    assert cause == "dataloader-worker-killed"
    assert "fewer workers" in screen


def test_a_worker_killed_by_a_bus_error_lacks_shared_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-21: the neighbour with another cause."""
    text = "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error."
    cause, _, _ = doctor_reads(tmp_path, capsys, text)
    assert cause == "shm-too-small"


# --- 001-14 and 001-17: monitor -------------------------------------------------------------------


@pytest.mark.parametrize(("use", "used", "steps"), [(45, 6144, 3), (98, 18432, 0)])
@pytest.mark.parametrize("count", [1, 60])
def test_monitor_judges_a_picture_and_a_log_of_nvidia_smi_alike(
    use: int, used: int, steps: int, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """001-14: 45 % and 6 of 24 GB gets the steps in order; 98 % and 18 of 24 GB is good."""
    heading = "index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
    row = f"0, NVIDIA GeForce RTX 4090, {use} %, {used} MiB, 24564 MiB\n"
    file = tmp_path / "gpus.csv"
    file.write_text(heading + row * count, encoding="utf-8")
    assert main(["monitor", "--replay", str(file), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["verdict"] == "good") == (steps == 0)
    words = [("batch", "workers", "precision").index(w) for line in summary["advice"]
             for w in ("batch", "workers", "precision") if w in line.split("(")[0]]  # fmt: skip
    assert words == list(range(steps))


def test_a_training_that_prints_its_epochs_gets_their_seconds(tmp_path: Path) -> None:
    """001-17: you watch the seconds that an epoch takes, and see your output as before."""
    lines = "".join(f"Epoch [{n}/100] - Train Loss: 0.23\n" for n in range(1, 5))
    script = "import time\nfor n in range(1, 5):\n    time.sleep(0.4)\n"
    script += "    print(f'Epoch [{n}/100] - Train Loss: 0.23', flush=True)\n"
    monitor = (sys.executable, "-m", "gpusetup", "monitor", "--csv", str(tmp_path / "run.csv"))
    done = subprocess.run(
        (*monitor, "--interval", "0.2", "--", sys.executable, "-c", script),
        capture_output=True,
        text=True,
    )
    assert done.stdout == lines and done.returncode == 0
    assert "s an epoch" in done.stderr and "3 epochs measured" in done.stderr
    assert (tmp_path / "run.csv").read_text(encoding="utf-8").startswith("timestamp,")


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
        assert main(["tune", "bench.yaml", *words]) == 0
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
    assert re.search(r"num_workers \(line 4\) stays 0: \d+ were not clearly faster", screen)


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
