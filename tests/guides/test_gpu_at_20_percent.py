"""Guide 003: optimising a config of a GPU that works 20 % of the time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusetup.cli import main

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
