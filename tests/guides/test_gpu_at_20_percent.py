"""Guide 003, a GPU that is 20 % busy: what its reader does, and what gpusetup must give back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tapes import ReplaySystem, Tape
from tuned_configs import Tuner

from gpusetup.cli import main
from gpusetup.model.machine import Snapshot
from gpusetup.probe.nvidia_smi import PROGRAM, with_gpus_of_nvidia_smi
from gpusetup.system.processes import Output
from gpusetup.system.system import HOLD_BACK

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


def smi_machine(*cells: str, refused: tuple[str, ...] = (), **environ: str) -> ReplaySystem:
    """A machine on which only nvidia-smi answers; `refused` are fields that it does not know."""
    run = {}
    for fields in (("index", "name", "uuid", "memory.total", "compute_cap"),
                   ("index", "name", "uuid", "memory.total")):  # fmt: skip
        query = (f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
        argv = (sys.executable, "-I", "-S", HOLD_BACK, f"/usr/bin/{PROGRAM}", *query)
        known = not set(refused) & set(fields)
        rows = "\n".join(", ".join(cell.split(", ")[: len(fields)]) for cell in cells)
        answer = Output(argv=argv, exit=0 if known else 2, stdout=rows if known else "not valid")
        run[" ".join(argv)] = answer
    return ReplaySystem(Tape(run=run, which={PROGRAM: f"/usr/bin/{PROGRAM}"}, environ=environ))


CARD = "0, NVIDIA GeForce RTX 4090, GPU-11, 24564 MiB, 8.9"
SECOND = "1, Tesla T4, GPU-22, 15360 MiB, 7.5"


def names_of_gpus(machine: Snapshot) -> list[str]:
    return [gpu.name for gpu in machine.gpus or ()]


def test_nvidia_smi_tells_the_gpu_where_the_library_does_not_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-3: the reduced mode: mixed precision and pinned memory as for any GPU."""
    from gpusetup.tune.case import facts_of

    machine = with_gpus_of_nvidia_smi(Snapshot(), smi_machine(CARD))
    facts = facts_of(machine)
    assert (facts.gpu, facts.gpus, facts.capability) == ("NVIDIA GeForce RTX 4090", 1, (8, 9))
    assert facts.memory_bytes == 24564 << 20


def test_an_old_nvidia_smi_gets_the_capability_by_the_name_of_the_card() -> None:
    """003-3: drivers before 470 refuse the field `compute_cap`."""
    system = smi_machine(CARD, refused=("compute_cap",))
    [gpu] = with_gpus_of_nvidia_smi(Snapshot(), system).gpus or ()
    assert str(gpu.compute_capability) == "8.9"


@pytest.mark.parametrize(
    ("variable", "names"),
    [("1", ["Tesla T4"]), ("", []), ("-1", []), ("GPU-22,0", ["Tesla T4", CARD.split(", ")[1]])],
)
def test_gpus_that_the_variable_hides_stay_hidden(variable: str, names: list[str]) -> None:
    """003-3: CUDA_VISIBLE_DEVICES counts in the reduced mode too."""
    system = smi_machine(CARD, SECOND, CUDA_VISIBLE_DEVICES=variable)
    assert names_of_gpus(with_gpus_of_nvidia_smi(Snapshot(), system)) == names


def test_a_machine_whose_gpus_are_known_or_that_has_no_nvidia_smi_stays() -> None:
    """003-3: the reduced mode asks only where nothing else answered."""
    assert with_gpus_of_nvidia_smi(Snapshot(), ReplaySystem(Tape())) == Snapshot()
    known = with_gpus_of_nvidia_smi(Snapshot(), smi_machine(CARD))
    assert with_gpus_of_nvidia_smi(known, smi_machine(SECOND)) == known
    cut = with_gpus_of_nvidia_smi(Snapshot(), smi_machine("0, NVIDIA GeFor", "garbage"))
    assert cut == Snapshot()


@pytest.mark.parametrize(
    ("card", "gib", "batch", "sizes", "said"),
    [
        ("GeForce RTX 4090", 24, 64, (128, 12, 256), "an RTX 4090 \\(24 GB\\), the"),
        ("GeForce RTX 4080", 16, 48, (96, 8, 192), "an RTX 4080 \\(16 GB\\), the"),
        ("GeForce RTX 4070", 12, 32, (96, 8, 192), "an RTX 4070 \\(12 GB\\), the"),
        ("GeForce GTX 1080", 8, 16, (64, 6, 128), "a GTX 1080 \\(8 GB\\), the"),
        ("GeForce RTX 3090", 24, 64, (128, 12, 256), "the class of your 24 GB card"),
        ("RTX A4000", 16, 48, (96, 8, 192), "the class of your 16 GB card"),
        ("GeForce RTX 3060", 12, 32, (96, 8, 192), "the class of your 12 GB card"),
        ("H100 80GB HBM3", 80, 64, (128, 12, 256), "largest card \\(yours has 80 GB\\)"),
        ("GeForce GTX 1650", 4, 16, (64, 6, 128), "yours has 4 GB, so stay below"),
    ],
)
def test_the_marks_of_the_card_are_named_and_the_experiment_stays(
    card: str,
    gib: float,
    batch: int,
    sizes: tuple[int, int, int],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """003-5, 003-7, 003-11: batch and size of the network by the class of the card, in words."""
    tuner = Tuner(tmp_path, capsys)
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
def test_clipping_that_is_off_is_named_with_what_else_calms_a_loss(
    setting: str, is_named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-10: clipping at 1.0; then a lower learning rate and a warm-up, with the config's own."""
    config = f"batch_size: 8\n{setting}\nlr: 0.001\nwarmup_steps: 0\n"
    tuned = Tuner(tmp_path, capsys).tune(config, "healthy")
    key = setting.partition(":")[0]
    assert bool(tuned.sentence_with(key, r"clips at 1\.0")) is is_named
    steps = tuned.sentence_with("NaN", r"learning rate.*lr \(line 3\) is 0\.001", "warmup_steps")
    assert bool(steps) is is_named
    assert key not in tuned.changes


IMAGE_PRESETS = {
    "RTX 4090": ("64", "128", "12", "256", "true", "12"),
    "rtx_4080": ("48", "96", "8", "192", "true", "8"),
    "rtx-4070": ("32", "96", "8", "192", "true", "8"),
    "GTX 1080": ("16", "64", "6", "128", "false", "6"),
}


@pytest.mark.parametrize(("name", "values"), IMAGE_PRESETS.items())
def test_the_guides_files_for_cards_are_presets(
    name: str, values: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-21: files for an RTX 4090, 4080, 4070 and a GTX 1080, named as people write them."""
    text = Tuner(tmp_path, capsys).printed("--preset", name)
    settings = dict(
        line.partition("  #")[0].split(": ") for line in text.splitlines() if line[:1].isalpha()
    )
    keys = ("batch_size", "base_channels", "num_blocks", "patch_size", "use_perceptual",
            "num_workers")  # fmt: skip
    assert tuple(settings[key].strip() for key in keys) == values


DEPRECATED = (
    "FutureWarning: The module torch.distributed.launch is deprecated\n"
    "and will be removed in future. Use torchrun.\n"
)


def doctor_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> tuple[str, str]:
    """The cause that `doctor --report` names for a text, and the whole screen."""
    file = tmp_path / "report.txt"
    file.write_text(text, encoding="utf-8")
    main(["doctor", "--report", str(file), "--json"])
    cause = json.loads(capsys.readouterr().out)["cause"]
    main(["doctor", "--report", str(file)])
    return cause, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "error",
    [
        "main.py: error: unrecognized arguments: --local-rank=0",
        "usage: main.py [-h] [--lr LR]\nmain.py: error: unrecognized arguments: --local_rank=1",
        "Error: No such option: --local-rank",
    ],
)
def test_the_old_launchers_argument_becomes_the_same_command_by_torchrun(
    error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-16: torchrun with LOCAL_RANK from the environment."""
    command = "python -m torch.distributed.launch --nproc_per_node=2 src/main.py --lr 1e-4"
    cause, screen = doctor_reads(tmp_path, capsys, f"$ {command}\n{DEPRECATED}{error}\n")
    assert cause == "local-rank-argument"
    assert 'os.environ["LOCAL_RANK"]' in screen
    assert "torchrun --nproc_per_node=2 src/main.py --lr 1e-4" in screen


def test_the_translated_command_keeps_variables_and_quotes_and_drops_what_torchrun_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-16: a command over several lines, with a pipe behind it."""
    text = (
        "$ CUDA_VISIBLE_DEVICES=0,1 python3 -m torch.distributed.launch --use_env \\\n"
        "    --nproc_per_node=2 \\\n"
        "    train.py --name 'my run' 2>&1 | tee log\n" + DEPRECATED
    )
    cause, screen = doctor_reads(tmp_path, capsys, text)
    assert cause == "launcher-deprecated"
    assert "export CUDA_VISIBLE_DEVICES=0,1" in screen
    assert "torchrun --nproc_per_node=2 train.py --name 'my run' This machine" in screen


def test_a_command_whose_words_a_shell_would_change_is_not_translated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-16: a stranger's `$(…)` is never typed; the form of the command is shown instead."""
    text = f"python -m torch.distributed.launch train.py $(rm -rf ~)\n{DEPRECATED}"
    _, screen = doctor_reads(tmp_path, capsys, text)
    assert "rm -rf" not in screen.partition("What to do")[2]
    assert "torchrun --nproc-per-node=gpu train.py" in screen


def test_another_failure_below_the_deprecation_is_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-16: a neighbour, whose program failed by itself."""
    text = f"{DEPRECATED}KeyError: 'train'\n"
    cause, _ = doctor_reads(tmp_path, capsys, text)
    assert cause == "program-failed"
    cause, _ = doctor_reads(tmp_path, capsys, "error: unrecognized arguments: --local-batch=4\n")
    assert cause == "program-failed"


@pytest.mark.parametrize(
    "text",
    [
        "loss explodes",
        "loss is nan",
        "I get NaN after 200 steps",
        "Epoch 3 loss=nan",
        "step 1200 | loss nan | lr 3e-4",
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05}",
        "Loss is nan, stopping training",
        "my training loss suddenly goes to infinity",
        "Der Verlust explodiert nach der zweiten Epoche",
        "Loss wird NaN",
        "la perte devient nan",
        "La pérdida explota",
        "A perda diverge",
        "функция потерь расходится",
        "loss становится nan",
        "训练几个epoch后loss就nan了",
        "損失が発散する",
        "손실이 폭발해요",
    ],
)
def test_a_diverging_loss_leads_to_clipping_a_lower_rate_and_a_warm_up(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-19: in nine languages, and in the words of logs."""
    cause, screen = doctor_reads(tmp_path, capsys, text)
    assert cause == "loss-diverges"
    for words in ("clip_grad_norm_(model.parameters(), 1.0)", "learning rate", "warm it up"):
        assert words in screen
    assert "bfloat16" not in screen


@pytest.mark.parametrize(
    "text",
    ["Training is unstable, loss explodes with AMP fp16", "loss is nan as soon as I use float16"],
)
def test_a_diverging_loss_in_float16_leads_to_bfloat16_or_a_scaler(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-19: where the text shows float16."""
    _, screen = doctor_reads(tmp_path, capsys, text)
    assert screen.index("bfloat16 instead of float16") < screen.index("GradScaler")
    _, screen = doctor_reads(tmp_path, capsys, f"GPU: NVIDIA GeForce GTX 1660\n{text}")
    assert "Switch mixed precision off on this card" in screen


@pytest.mark.parametrize(
    "text",
    [
        "if the loss is nan, lower the learning rate",
        "the loss is not nan",
        "assert not torch.isnan(loss)",
        "we clip at 1.0 to avoid exploding gradients",
        "Epoch 3 loss=0.231",
    ],
)
def test_a_loss_that_is_fine_or_only_spoken_of_does_not_diverge(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-19: neighbours."""
    cause, _ = doctor_reads(tmp_path, capsys, text)
    assert cause != "loss-diverges"


def test_a_diverging_loss_does_not_hide_a_failure_of_the_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-19: a neighbour, whose GPU ran out of memory."""
    text = "Epoch 1 loss=nan\ntorch.OutOfMemoryError: CUDA out of memory.\n"
    cause, _ = doctor_reads(tmp_path, capsys, text)
    assert cause == "out-of-memory"
