"""Guide 003, a GPU that is 20 % busy: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tapes import ReplaySystem, Tape
from tuned_configs import Tuner

from gpusetup.errors import BadInput
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import Capability
from gpusetup.probe.nvidia_smi import PROGRAM, with_gpus_of_nvidia_smi
from gpusetup.system.processes import Output
from gpusetup.system.system import HOLD_BACK
from gpusetup.tune import BatchSizeOptimizer, auto_optimize_config
from gpusetup.tune.case import facts_of

LIGHT = """\
# lightweight config
batch_size: 16        # small
base_channels: 32
num_blocks: 4
num_workers: 0
patch_size: 128
lr: 0.0002
use_mixed_precision: false
use_perceptual: false
compile_model: false
pin_memory: false
grad_clip: 0
"""
EXPERIMENT = ("base_channels", "num_blocks", "patch_size", "use_perceptual", "grad_clip", "lr")


def smi_machine(*cells: str, **environ: str) -> ReplaySystem:
    """A machine on which only nvidia-smi answers."""
    query = ("--query-gpu=index,name,uuid,memory.total,compute_cap", "--format=csv,noheader")
    argv = (sys.executable, "-I", "-S", HOLD_BACK, f"/usr/bin/{PROGRAM}", *query)
    run = {" ".join(argv): Output(argv=argv, exit=0, stdout="\n".join(cells))}
    return ReplaySystem(Tape(run=run, which={PROGRAM: f"/usr/bin/{PROGRAM}"}, environ=environ))


CARD = "0, NVIDIA GeForce RTX 4090, GPU-11, 24564 MiB, 8.9"
SECOND = "1, Tesla T4, GPU-22, 15360 MiB, 7.5"


def seen(*cells: str, machine: Snapshot | None = None, **given: Any) -> Snapshot:
    return with_gpus_of_nvidia_smi(machine or Snapshot(), smi_machine(*cells, **given))


def test_nvidia_smi_tells_the_gpu_where_the_library_does_not_load() -> None:
    """003-3: mixed precision and pinned memory as for any GPU."""
    facts = facts_of(seen(CARD))
    assert (facts.gpu, facts.gpus) == ("NVIDIA GeForce RTX 4090", 1)
    assert (facts.capability, facts.memory_bytes) == (Capability(8, 9), 24564 << 20)


@pytest.mark.parametrize(
    ("variable", "names"),
    [("1", ["Tesla T4"]), ("", []), ("-1", []), ("GPU-22,0", ["Tesla T4", CARD.split(", ")[1]])],
)
def test_gpus_that_the_variable_hides_stay_hidden(variable: str, names: list[str]) -> None:
    """003-3: CUDA_VISIBLE_DEVICES counts in the reduced mode too."""
    found = seen(CARD, SECOND, CUDA_VISIBLE_DEVICES=variable).gpus
    assert [gpu.name for gpu in found or ()] == names


@pytest.mark.parametrize(
    ("card", "gib", "batch", "sizes", "said"),
    [
        ("GeForce RTX 4090", 24, 64, (128, 12, 256), "RTX 4090 \\(24 GB\\), the"),
        ("GeForce RTX 4080", 16, 48, (96, 8, 192), "RTX 4080 \\(16 GB\\), the"),
        ("GeForce RTX 4070", 12, 32, (96, 8, 192), "RTX 4070 \\(12 GB\\), the"),
        ("GeForce GTX 1080", 8, 16, (64, 6, 128), "GTX 1080 \\(8 GB\\), the"),
        ("GeForce RTX 3090", 24, 64, (128, 12, 256), "RTX 4090 \\(24 GB\\), the"),
        ("GeForce GTX 1650", 4, 16, (64, 6, 128), "GTX 1080 \\(8 GB\\), the"),
    ],
)
def test_the_marks_of_the_card_are_named_and_the_experiment_stays(
    card: str, gib: float, batch: int, sizes: tuple[int, int, int], said: str, tuner: Tuner
) -> None:
    """003-5, 003-7, 003-11: batch and size of the network by the class of the card, in words."""
    tuned = tuner.tune(LIGHT, tuner.card(card, gib, (8, 9)))
    assert tuned.sentence_with("image networks", said, rf"batch of (?:up to )?{batch} on a GPU")
    channels, blocks, patch = sizes
    assert tuned.sentence_with(
        said, f"base_channels {channels} ", f"num_blocks {blocks} ", f"patch_size {patch} ",
        "use_perceptual (true|false) ", "never writes them",
    )  # fmt: skip
    assert set(tuned.changes).isdisjoint(EXPERIMENT)


@pytest.mark.parametrize(
    ("setting", "is_named"),
    [
        ("grad_clip: 0", True), ("max_grad_norm: 0.0", True), ("gradient_clip_val: null", True),
        ("clip_grad:", True), ("grad_clip: 1.0", False), ("grad_clip: 5", False),
    ],
)  # fmt: skip
def test_clipping_that_is_off_is_named(setting: str, is_named: bool, tuner: Tuner) -> None:
    """003-10: the guide clips at 1.0."""
    config = f"batch_size: 8\n{setting}\nlr: 0.001\n"
    tuned = tuner.tune(config, "healthy")
    key = setting.partition(":")[0]
    assert bool(tuned.sentence_with(key, r"clips at 1\.0")) is is_named
    assert key not in tuned.changes


DEPRECATED = (
    "FutureWarning: The module torch.distributed.launch is deprecated\n"
    "and will be removed in future. Use torchrun.\n"
)
OLD_COMMAND = "$ python -m torch.distributed.launch --nproc_per_node=2 src/main.py --lr 1e-4\n"


@pytest.mark.parametrize(
    ("text", "cause", "said"),
    [
        *((f"{OLD_COMMAND}{DEPRECATED}{error}\n", "local-rank-argument",
           ('os.environ["LOCAL_RANK"]', "torchrun --nproc-per-node=gpu train.py"))
          for error in (
              "main.py: error: unrecognized arguments: --local-rank=0",
              "usage: main.py [-h] [--lr LR]\nmain.py: error: unrecognized arguments: "
              "--local_rank=1",
              "Error: No such option: --local-rank")),
        # Neighbours, whose program failed by itself.
        (f"{DEPRECATED}KeyError: 'train'\n", "program-failed", ()),
        ("error: unrecognized arguments: --local-batch=4\n", "program-failed", ()),
    ],
)  # fmt: skip
def test_the_old_launchers_error_leads_to_torchrun(
    text: str, cause: str, said: tuple[str, ...], reads: Any
) -> None:
    """003-16: torchrun with LOCAL_RANK from the environment."""
    read = reads(text)
    assert read.cause == cause
    assert all(words in read.screen for words in said), read.screen


@pytest.mark.parametrize(
    "text",
    [
        "loss explodes",
        "step 1200 | loss nan | lr 3e-4",
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05}",
    ],
)
def test_a_diverging_loss_leads_to_clipping_a_lower_rate_and_a_warm_up(
    text: str, reads: Any
) -> None:
    """003-19: in plain words, and in the words of logs."""
    read = reads(text)
    assert read.cause == "loss-diverges"
    for words in ("clip_grad_norm_(model.parameters(), 1.0)", "learning rate", "warm it up"):
        assert words in read.screen


# --- 003-3: monitor without NVIDIA's library ------------------------------------------------------

SMI_COLUMNS = {
    "index": "0", "name": "NVIDIA GeForce RTX 4090", "uuid": "GPU-1", "utilization.gpu [%]": "45 %",
    "utilization.memory [%]": "15 %", "memory.used [MiB]": "6144 MiB",
    "memory.total [MiB]": "24564 MiB", "temperature.gpu": "62", "power.draw [W]": "180.00 W",
    "power.limit [W]": "450.00 W", "clocks.sm [MHz]": "2500 MHz",
}  # fmt: skip
SMI = f"""#!/bin/sh
case "$*" in *clocks_throttle_reasons*)
  echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; exit 2;;
esac
echo '{", ".join(SMI_COLUMNS)}'
row='{", ".join(SMI_COLUMNS.values())}'
echo "$row"
case "$*" in *--loop*) while sleep 0.2; do echo "$row"; done;; esac
"""


def watched_without_library(path: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "gpusetup", "monitor", *words)
    environment = {**os.environ, "PATH": path, "LD_LIBRARY_PATH": "/nowhere"}
    return subprocess.run(argv, capture_output=True, text=True, env=environment)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for nvidia-smi is a shell script")
def test_monitor_watches_by_nvidia_smi_where_the_library_does_not_load(tmp_path: Path) -> None:
    """003-3: the figures are nvidia-smi's, also of an old one that does not know every field."""
    (tmp_path / "nvidia-smi").write_text(SMI, encoding="utf-8")
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = os.pathsep.join((str(tmp_path), os.environ.get("PATH", "")))
    done = watched_without_library(path, "1.5", "--interval", "0.2")
    assert done.returncode == 0, done.stderr
    assert "45 %" in done.stdout and "by nvidia-smi (NVML: " in done.stdout.splitlines()[0]
    assert "with nvidia-smi" in done.stderr.splitlines()[0]


def test_monitor_judges_a_training_without_any_gpu() -> None:
    """003-3: CPU, memory, loaders, disk and network are watched, and a verdict is given."""
    script = "import time; ends = time.time() + 4\nwhile time.time() < ends: sum(range(1000))"
    done = watched_without_library(
        "/nowhere", "--interval", "0.3", "--", sys.executable, "-c", script
    )
    assert done.returncode == 0, done.stderr
    assert "no NVIDIA GPU can be watched" in done.stderr.splitlines()[0]
    assert "Verdict: none" not in done.stderr and "no GPU was watched" in done.stderr


TRAINED = """\
# lightweight config
batch_size: 16        # small
base_channels: 32
num_workers: 0
lr: 0.0002
max_steps: 1000
use_mixed_precision: false
pin_memory: false
"""


@pytest.fixture
def light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide's config, in the folder in which the person is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "light.yaml").write_text(TRAINED)
    return tmp_path / "light.yaml"


@pytest.mark.usefixtures("light")
def test_a_larger_batch_is_tried_up_to_max_or_to_what_the_card_holds_and_only_named(
    play: Any, says: Any, tmp_path: Path
) -> None:
    """003-6: the search goes above the config's 16; the effective batch stays."""
    play(most=400)
    words = ("tune", "light.yaml", "--batch-size", "--code", "a:b", "-o", "new.yaml", "--json")
    document = says(*words, "--max", "64").document
    assert document["batch_size"] == 64
    assert 64 in [trial["batch"] for trial in document["trials"] if trial["status"] == "ok"]
    assert "batch_size: 16        # small" in (tmp_path / "new.yaml").read_text()
    advice = next(word for word in document["recommendations"] if "64 ran here" in word)
    assert "4 times as large is another experiment" in advice
    assert "gpusetup does not write it" in advice
    assert 380 <= says(*words).document["batch_size"] <= 400


def test_the_optimizer_reads_a_training_config(play: Any) -> None:
    """003-14: the guide's dict is the config of the training."""
    torch = pytest.importorskip("torch")
    play(most=400)
    lines: list[str] = []
    config = {"batch_size": 16, "use_mixed_precision": True, "base_channels": 32,
              "max_batch_size": 32, "say": lines.append}  # fmt: skip
    finder = BatchSizeOptimizer(torch.nn.Linear(2, 2), config)
    sample_data = (torch.ones(4, 2), torch.ones(4, 2))
    size, about = finder.find_optimal_batch_size(sample_data, target_gpu_util=85.0)
    sizes = [trial["batch"] for trial in about["trials"]]
    assert size in sizes and max(sizes) <= 32
    assert about["samples_per_second"] == 100.0
    assert lines


UNGUARDED = """\
import torch
from gpusetup.tune import BatchSizeOptimizer
model = torch.nn.Linear(64, 10)
BatchSizeOptimizer(model, {}).find_optimal_batch_size((torch.randn(4, 64), torch.zeros(4).long()))
"""


def test_a_script_that_starts_itself_again_is_told_the_missing_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """003-14: the child runs the script once more, and stops where the search would start."""
    monkeypatch.setenv("GPUSETUP_PROBE", "1")
    with pytest.raises(BadInput) as problem:
        exec(compile(UNGUARDED, "script.py", "exec"), {"__name__": "__mp_main__"})
    assert 'if __name__ == "__main__":' in (problem.value.hint or "")


def test_auto_optimize_config_returns_what_changed(light: Path) -> None:
    """003-15: the second file is written, the first stays."""
    target = light.with_name("new.yaml")
    result = auto_optimize_config(light, target, machine="rtx3050-laptop")
    assert light.read_text() == TRAINED and "use_mixed_precision: true" in target.read_text()
    keys = {change.key for change in result.changes}
    assert "num_workers" in keys and result.written == str(target)
    assert "num_workers" in str(result)
