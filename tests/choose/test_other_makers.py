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
from maker_tapes import CPU, CUDA, OLD_ROCM, XPU, amd, intel, mac, snapshot

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.catalog.file import load_catalog
from gpusetup.cli import main
from gpusetup.model.machine import Snapshot
from gpusetup.probe.snapshot_files import dump_snapshot

LINUX, WINDOWS, MACOS = "linux", "windows", "macos"
PYTORCH, AMDS, NONE = "pytorch", "amd", "none"
MACHINES = (
    # GPU, system, whose index, how the backend begins; `none`: no build exists.
    ("RX 580", LINUX, NONE, ""),
    ("RX Vega 64", LINUX, PYTORCH, "rocm6.3"),
    ("RX 5700 XT", LINUX, AMDS, "rocm10"),
    ("RX 5500 XT", WINDOWS, AMDS, "rocm10"),
    ("RX 6700 XT", LINUX, AMDS, "rocm10"),
    ("RX 6700 XT", WINDOWS, AMDS, "rocm"),
    ("RX 6900 XT", LINUX, PYTORCH, "rocm"),
    ("RX 6900 XT", WINDOWS, AMDS, "rocm"),
    ("RX 7900 XTX", LINUX, PYTORCH, "rocm"),
    ("RX 7900 XTX", WINDOWS, AMDS, "rocm"),
    ("Radeon 780M", LINUX, PYTORCH, "rocm"),
    ("Radeon 890M", WINDOWS, AMDS, "rocm"),
    ("Radeon 860M", LINUX, AMDS, "rocm"),
    ("Strix Halo", LINUX, PYTORCH, "rocm"),
    ("Radeon 8060S", WINDOWS, AMDS, "rocm"),
    ("RX 9070 XT", LINUX, PYTORCH, "rocm"),
    ("RX 9070 XT", WINDOWS, AMDS, "rocm"),
    ("Instinct MI100", LINUX, PYTORCH, "rocm"),
    ("Instinct MI300X", LINUX, PYTORCH, "rocm"),
    ("Instinct MI355X", LINUX, PYTORCH, "rocm"),
    ("Intel UHD Graphics 770", LINUX, NONE, ""),
    ("Arc A380", LINUX, PYTORCH, "xpu"),
    ("Arc A770", WINDOWS, PYTORCH, "xpu"),
    ("Arc B580", LINUX, PYTORCH, "xpu"),
    ("Intel Data Center GPU Max 1550", LINUX, PYTORCH, "xpu"),
    ("M1", MACOS, PYTORCH, "cpu"),
    # A processor is known by its graphics.
    ("Ryzen 7 7840U", WINDOWS, AMDS, "rocm10"),
    ("AMD Ryzen AI 9 HX 370", LINUX, PYTORCH, "rocm7.2"),
    ("Core Ultra 7 155H", WINDOWS, PYTORCH, "xpu"),
    ("Intel Core Ultra 5 125U", WINDOWS, NONE, ""),
    ("Instinct MI300X", WINDOWS, NONE, ""),
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
NAMED = ("RX 7900 XTX", "RX 9070 XT", "MI300X", "Strix Halo", "Arc B580", "Arc A770", "M3 Max",
         "RTX 4090", "H100 SXM5")  # fmt: skip
SYSTEMS = (LINUX, WINDOWS, MACOS)


def owner(gpu: str) -> str:
    """Whose GPU a name is."""
    if gpu.startswith("Arc"):
        return "intel"
    if gpu.startswith("M3"):
        return "apple"
    return "nvidia" if gpu in ("RTX 4090", "H100 SXM5") else "amd"


@each("gpu", NAMED)
def test_the_wrong_makers_build_is_never_chosen_for_a_named_gpu(
    gpu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over all makers, backends and systems: a build of the GPU's own maker, the CPU's, or none."""
    for backend, system in product(BACKENDS, SYSTEMS):
        document = resolved(capsys, "--gpu", gpu, "--os", system, "--backend", backend)
        chosen = document.get("backend") if document["torch"] else None
        assert maker_of(str(chosen)) in (None, owner(gpu)), (backend, system, chosen)
        # The CPU's build is no stand-in for a GPU that a build was asked for.
        if maker_of(backend) and chosen:
            assert chosen == backend


LIVE = {
    "amd": (amd(), amd(CUDA), amd(CPU), amd(XPU), amd(None), amd(OLD_ROCM, device="7550",
            version=120001), amd(CPU, device="164e", version=100306)),
    "intel": (intel(), intel(CUDA), intel(CPU), intel(None), intel(CPU, device="9bc5")),
    "apple": (mac(), mac(macos="13.6")),
}  # fmt: skip


def machines() -> list[tuple[str, Snapshot]]:
    return [(maker, snapshot(tape)) for maker, tapes in LIVE.items() for tape in tapes]


def test_the_wrong_makers_build_is_never_advised_on_a_machine_that_was_read() -> None:
    from gpusetup.diagnosis.diagnose import diagnose
    from gpusetup.model.finding import command_lines

    labels = {maker.id: maker.label for maker in BY_ID.values() if maker.label}
    for maker, machine in machines():
        diagnosis = diagnose(machine, load_catalog())
        build = diagnosis.resolution.backend if diagnosis.resolution.torch else None
        # The torch that is there may be another maker's: then it is the error that is named.
        if build and build != machine.torch.backend:
            assert maker_of(build) in (None, maker), (maker, build)
        lines = [line for finding in diagnosis.findings for line in command_lines(finding.fix)]
        for other, label in labels.items():
            for line in lines:
                assert other == maker or f"/whl/{label}" not in line, (maker, line)


@pytest.mark.parametrize(
    ("tape", "backend"),
    [
        (amd(None), "rocm7.2"),
        (amd(CUDA), "rocm7.2"),
        (amd(None, device="1586", version=110501), "rocm7.2"),
        (amd(None, device="1114", version=110502), "cpu"),
        (amd(None, device="67df", version=80003), "cpu"),
        (amd(None, device="164e", version=100306), "cpu"),
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


@each(
    "words, said, unsaid",
    [
        (("--gpu", "RX 6700 XT", "--os", "windows"), "`torch[device-gfx1031]`", "HSA_OVERRIDE"),
        (("--gpu", "MI50"), "run `gpusetup verify`", "AMD's own index"),
    ],
)
def test_the_notes_agree_with_the_build(
    words: tuple[str, ...], said: str, unsaid: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = " ".join(map(str, resolved(capsys, *words)["notes"]))  # type: ignore[call-overload]
    assert said in notes and unsaid not in notes


def test_an_amd_gpu_gets_its_own_nightly_and_its_own_build_of_a_project_for_cuda(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nightly = resolved(capsys, "--gpu", "RX 7900 XTX", "--os", "linux", "--torch", "nightly")
    assert "/whl/nightly/rocm" in str(nightly["notes"])
    file = tmp_path / "requirements.txt"
    file.write_text("--extra-index-url https://download.pytorch.org/whl/cu124\ntorch>=2.6,<2.10\n")
    document = resolved(capsys, "--from", "amd", "-r", str(file))
    assert str(document["backend"]).startswith("rocm")
    assert any("cu124, which is for GPUs of NVIDIA" in note for note in document["notes"])  # type: ignore[attr-defined]


def test_two_targets_get_the_kernels_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    gpus = ("--gpu", "RX 7900 XTX", "--gpu", "gfx1036")
    code = main(["resolve", *gpus, "--os", "windows", "--python", "3.12", "--installer", "pip"])
    screen = capsys.readouterr().out
    assert code == 0
    assert '"torch[device-gfx1100,device-gfx1036]==2.13.0+rocm10.0.0"' in screen
    # torchaudio has no kernels of its own.
    assert " torchaudio==2.11.0.2+rocm10.0.0" in screen
