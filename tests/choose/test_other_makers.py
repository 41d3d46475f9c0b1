"""Builds for GPUs of AMD, Intel and Apple: 30 described machines; the wrong maker's build never.

What an expert names was written down before `resolve` was asked, from PyTorch's pages (Get
Started; Getting Started on Intel GPU, edition 2.15; MPS backend) and AMD's page "Install PyTorch
on ROCm 7.13.0", read in November 2026; where AMD's index has wheels for more targets since ROCm 10,
from ROCm/TheRock's RELEASES.md and SUPPORTED_GPUS.md of August 2026.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from each_row import each
from maker_tapes import CUDA, amd, intel, mac, snapshot

from gpusetup.accelerators.makers import maker_of
from gpusetup.cli import main
from gpusetup.probe.snapshot_files import dump_snapshot

LINUX, WINDOWS, MACOS = "linux", "windows", "macos"
PYTORCH, AMDS, NONE = "pytorch", "amd", "none"
MACHINES = (
    # GPU, system, whose index, how the backend begins; `none`: no build exists.
    ("RX 580", LINUX, NONE, ""),
    ("RX 5700 XT", LINUX, AMDS, "rocm10"),
    ("RX 6900 XT", LINUX, PYTORCH, "rocm"),
    ("RX 7900 XTX", LINUX, PYTORCH, "rocm"),
    ("RX 7900 XTX", WINDOWS, AMDS, "rocm"),
    ("Intel UHD Graphics 770", LINUX, NONE, ""),
    ("Arc A770", WINDOWS, PYTORCH, "xpu"),
    # A processor is known by its graphics.
    ("Ryzen 7 7840U", WINDOWS, AMDS, "rocm10"),
    ("Core Ultra 7 155H", WINDOWS, PYTORCH, "xpu"),
)


def resolved(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    """The document of `resolve`; what is an error has no torch."""
    code = main(["resolve", "--python", "3.12", "--json", *words])
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document if code == 0 else {"torch": None}


@each("row", MACHINES)
def test_a_described_machine_gets_the_build_that_an_expert_names(
    row: tuple[str, str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    gpu, system, index, backend = row
    document = resolved(capsys, "--gpu", gpu, "--os", system)
    if index == NONE:
        assert document["torch"] is None
        return
    url = str(document["index_url"])
    assert str(document["backend"]).startswith(backend)
    assert url.startswith(
        "https://stable.repo.amd.com/" if index == AMDS else "https://download.pytorch"
    )
    assert document["torchvision"]


BACKENDS = ("auto", "cpu", "cu126", "cu130", "rocm6.4", "rocm7.2", "rocm10.0.0", "xpu")
NAMED = ("RX 7900 XTX", "MI300X", "Arc B580", "M3 Max", "RTX 4090")


def owner(gpu: str) -> str:
    """Whose GPU a name is."""
    if gpu.startswith("Arc"):
        return "intel"
    if gpu.startswith("M3"):
        return "apple"
    return "nvidia" if gpu == "RTX 4090" else "amd"


@each("gpu", NAMED)
def test_the_wrong_makers_build_is_never_chosen_for_a_named_gpu(
    gpu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over all makers, backends and systems: a build of the GPU's own maker, the CPU's, or none."""
    # macOS has one build of each torch, whatever the backend.
    for backend, system in (*product(BACKENDS, (LINUX, WINDOWS)), ("auto", MACOS)):
        document = resolved(capsys, "--gpu", gpu, "--os", system, "--backend", backend)
        chosen = document.get("backend") if document["torch"] else None
        assert maker_of(str(chosen)) in (None, owner(gpu)), (backend, system, chosen)
        # The CPU's build is no stand-in for a GPU that a build was asked for.
        if maker_of(backend) and chosen:
            assert chosen == backend


@pytest.mark.parametrize(
    ("tape", "backend"),
    [
        (amd(None), "rocm7.2"),
        (amd(CUDA), "rocm7.2"),
        (amd(None, device="1114", version=110502), "cpu"),
        (intel(None), "xpu"),
        (intel(None, device="9bc5", driver="i915"), "cpu"),
        (mac(), "cpu"),
    ],
)
def test_this_machines_own_gpu_decides(
    tape: object, backend: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "machine.json"
    file.write_text(dump_snapshot(snapshot(tape)))  # type: ignore[arg-type]
    assert main(["resolve", "--from", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["backend"] == backend


def test_an_amd_gpu_gets_its_own_nightly_and_its_own_build_of_a_project_for_cuda(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nightly = resolved(capsys, "--gpu", "RX 7900 XTX", "--os", "linux", "--torch", "nightly")
    assert "/whl/nightly/rocm" in str(nightly["notes"])
    file = tmp_path / "requirements.txt"
    file.write_text("--extra-index-url https://download.pytorch.org/whl/cu124\ntorch>=2.6,<2.10\n")
    document = resolved(capsys, "--from", "amd", "-r", str(file))
    assert str(document["backend"]).startswith("rocm")
    assert any("cu124, which is for NVIDIA GPUs" in note for note in document["notes"])  # type: ignore[attr-defined]


def test_two_targets_get_the_kernels_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    gpus = ("--gpu", "RX 7900 XTX", "--gpu", "gfx1036")
    code = main(["resolve", *gpus, "--os", "windows", "--python", "3.12", "--installer", "pip"])
    screen = capsys.readouterr().out
    assert code == 0
    assert '"torch[device-gfx1100,device-gfx1036]==2.13.0+rocm10.0.0"' in screen
    # torchaudio has no kernels of its own.
    assert " torchaudio==2.11.0.2+rocm10.0.0" in screen
