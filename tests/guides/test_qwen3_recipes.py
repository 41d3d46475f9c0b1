"""Guide 000: which recipe trains which Qwen3 model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusetup.cli import main

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.20 GiB is free."
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
    "line",
    [
        'File "/opt/Trinity-RFT/trinity/trainer/verl/fsdp_workers.py", line 612, in update_actor',
        'File "/venv/lib/python3.12/site-packages/verl/workers/actor/dp_actor.py", line 400',
        'File "/venv/lib/python3.11/site-packages/deepspeed/runtime/zero/stage3.py", line 1',
    ],
)
def test_out_of_memory_in_a_trainer_leads_to_its_steps_in_the_guides_order(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-11: Env, then SP, then Offload, and `gpusetup plan` for the card of the message."""
    cause, screen = doctor_reads(tmp_path, capsys, f"{line}\n{OUT_OF_MEMORY}\n")
    assert cause == "out-of-memory"
    steps = [screen.index(step) for step in ("1. Env", "2. SP", "3. Offload")]
    assert steps == sorted(steps)
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in screen
    assert "gpusetup plan --model qwen3-8b --context 32768 --gpus 4 --gpu-mem 79.15GiB" in screen


def test_a_trainer_without_sequence_parallelism_is_not_sent_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-11: FSDP alone has the variable and the offload."""
    line = 'File "/lib/python3.12/site-packages/torch/distributed/fsdp/_runtime_utils.py", line 9'
    _, screen = doctor_reads(tmp_path, capsys, f"{line}\n{OUT_OF_MEMORY}\n")
    assert screen.index("1. Env") < screen.index("2. Offload")
    assert "SP:" not in screen


def test_windows_has_no_expandable_segments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-11: Env is never offered where the allocator lacks it."""
    _, screen = doctor_reads(tmp_path, capsys, f"Windows 11, RTX 4090\n{OUT_OF_MEMORY}\n")
    assert "expandable_segments" not in screen


def test_out_of_memory_without_a_trainer_names_what_saves_memory_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-11: checkpointing, 8-bit optimizers, LoRA, tune and plan; no trainer's own steps."""
    _, screen = doctor_reads(tmp_path, capsys, f"{OUT_OF_MEMORY}\n")
    for words in ("checkpointing", "8-bit optimizer", "LoRA", "gpusetup tune", "gpusetup plan"):
        assert words in screen
    assert "2. SP" not in screen


def test_a_trainer_that_is_only_spoken_of_gets_the_general_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-11: a neighbour, which names a trainer that did not run."""
    text = f"Should I use verl or deepspeed?\n{OUT_OF_MEMORY}\n"
    _, screen = doctor_reads(tmp_path, capsys, text)
    assert "1. a smaller batch" in screen
