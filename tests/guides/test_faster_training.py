"""Guide 001: faster training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusetup.cli import main

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
