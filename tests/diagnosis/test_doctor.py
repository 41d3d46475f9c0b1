"""`gpusetup doctor` as people call it: screens, exit codes, other hosts, knowledge."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from each_row import each
from judging import HEALTHY, changed, judged
from machines_named import FOLDERS, machine_named, snapshot_of

from gpusetup.cli import main
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Driver, Snapshot
from gpusetup.model.shell import Line
from gpusetup.probe.snapshot_files import dump_snapshot
from gpusetup.render.doctor import doctor_screen

HERE = Path(__file__).resolve().parents[1]

CAUSES = {
    "alpine-rtx3060-musl": "no-wheel-for-platform",
    "docker-l40s-570.172.08-803": "libcuda-driver-mismatch",
    "docker-rtx3090-535.183.01-804": "forward-compat-unsupported",
    "jetson-orin-r36.4.0-cpu-torch": "jetson-wrong-wheel",
    "jetson-orin-r39.2.1-cpu-torch": "jetson-wrong-wheel",
    "jetson-thor-r38.2.0": "ok",
    "linux-4xa100-550.163.01-ecc": "ecc-error",
    "linux-4xa100-550.163.01-gpu-lost": "gpu-fell-off-bus",
    "linux-4xa100-550.163.01-hot": "power-thermal-throttle",
    "linux-4xv100-535.183.01": "ok",
    "linux-8xh100-570.172.08-no-fabric-manager": "system-not-ready-fabric-manager",
    "linux-a100-550.90.07-library-mismatch": "nvml-mismatch",
    "linux-a100-570.172.08-mig": "ok",
    "linux-gb10-580.95.05": "ok",
    "linux-gh200-570.172.08-cpu-torch": "torch-cpu-build",
    "linux-gtx1080ti+rtx3090-580.95.05": "ok",
    "linux-gtx1080ti-580.95.05": "ok",
    "linux-gtx1080ti-580.95.05-cu128": "arch-too-old-for-wheel",
    "linux-gtx1660-nouveau": "driver-missing",
    "linux-h100-580.159.04": "ok",
    "linux-l40s-570.172.08-permission": "device-permission",
    "linux-l40s-580.95.05-cpu-torch": "torch-cpu-build",
    "linux-l40s-container-without-gpu": "container-no-gpu",
    "linux-none-at-all": "no-nvidia-gpu",
    "linux-none-recorded": "ok",
    "linux-rtx3070laptop-580.95.05-999": "cuda-unknown-error",
    "linux-rtx3090-550.120-conda-and-pip": "mixed-conda-pip",
    "linux-rtx3090-550.120-half-installed": "torch-half-installed",
    "linux-rtx3090-550.163.01-no-uvm": "uvm-missing",
    "linux-rtx3090-580.95.05": "ok",
    "linux-rtx3090-580.95.05-externally-managed": "torch-missing",
    "linux-rtx3090-580.95.05-hidden": "cuda-visible-devices-hidden",
    "linux-rtx4070-580.95.05-pipx": "unknown",
    "linux-rtx4070-580.95.05-python-3.15": "torch-missing",
    "linux-rtx4080-615.36.02-banner": "ok",
    "linux-rtx4090-no-driver": "driver-missing",
    "linux-rtx5090-570.133.07-cu124": "arch-too-new-for-wheel",
    "linux-rx7900xtx-rocm": "ok",
    "linux-t4-470.256.02": "driver-too-old",
    "lxc-rtx3060-570.172.08-no-uvm-node": "uvm-missing",
    "macos-arm64": "ok",
    "windows-rtx3050laptop-581.29-cpu-torch": "torch-cpu-build",
    "windows-rtx3060-566.36-32bit-python": "python-32bit",
    "windows-rtx4060-576.80-two-pythons": "torch-missing",
    "wsl-rtx4070-581.29": "ok",
}
"""Machine -> the cause that a person who knows would name."""


def answer_for(machine: Snapshot) -> DoctorAnswer:
    return judged(machine)


def screen(machine: Snapshot, width: int) -> str:
    """The screen as a terminal of that width shows it, without colour."""
    return doctor_screen(answer_for(machine)).for_terminal(width=width, colour=False)


def saved(machine: Snapshot, folder: Path) -> str:
    file = folder / "machine.json"
    file.write_text(dump_snapshot(machine), encoding="utf-8")
    return str(file)


def document_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:  # type: ignore[type-arg]
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


# --- screens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", (80, 120))
def test_the_laptops_screen(width: int, same_as_file) -> None:  # type: ignore[no-untyped-def]
    laptop = machine_named("rtx3050-laptop")
    same_as_file(screen(laptop, width), HERE / "rendered" / f"doctor-rtx3050-laptop-{width}.txt")


@each("folder", FOLDERS)
def test_every_machine_is_judged_as_a_person_would(folder: Path, same_as_file) -> None:  # type: ignore[no-untyped-def]
    machine = snapshot_of(folder)
    assert judged(machine).cause == CAUSES[folder.name]
    same_as_file(screen(machine, 100), folder / "doctor.txt")


EVIL = "[/usr/lib] [bold]x[/bold] \x1b[31mred\x07 ```sh\nrm -rf / <script> @everyone | # *x*"


def evil_answer() -> DoctorAnswer:
    finding = Finding(
        id="torch-missing",
        severity=Severity.ERROR,
        title=EVIL,
        detail=EVIL,
        root=True,
        evidence=(Evidence(source=EVIL, text=EVIL),),
        fix=Fix(text=EVIL, commands=(Line(EVIL),)),
    )
    machine = changed(os={"name": EVIL}, python={"executable": EVIL})
    return replace(answer_for(machine), cause="torch-missing", findings=(finding,))


def test_foreign_text_is_no_markup_and_no_control_code() -> None:
    shown = doctor_screen(evil_answer()).for_terminal(width=400, colour=False)
    assert "[/usr/lib] [bold]x[/bold]" in shown
    assert "\x1b" not in shown and "\x07" not in shown


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "strict", "code"),
    (
        (HEALTHY, False, 0),
        (changed(python={"site_writable": False}), True, 1),
        (changed(env={"NVIDIA_TF32_OVERRIDE": "1"}), True, 0),
        (changed(torch={"backend": "cpu", "cuda": None}), False, 1),
        (Snapshot(), False, 1),
    ),
)
def test_exit_codes(
    machine: Snapshot,
    strict: bool,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["doctor", "--from", saved(machine, tmp_path), *(["--strict"] if strict else [])]
    assert main(arguments) == code
    assert capsys.readouterr().err == ""


# --- another host --------------------------------------------------------------------------------

NO_GPU_HERE = changed(
    gpus=(),
    pci_devices=(),
    devices=(),
    driver=Driver(module_loaded=False, library_found=False),
    container={"kind": "docker"},
)
"""An image build: the torch is right, there is neither driver nor GPU."""


@pytest.mark.parametrize(
    ("host", "cause"),
    (
        (["--gpu", "RTX 4090", "--driver", "580.95.05"], "ok"),
        (["--gpu", "RTX 4090", "--driver", "550.54.14"], "driver-too-old"),
        (["--gpu", "GTX 1080 Ti", "--driver", "580.95.05"], "arch-too-old-for-wheel"),
        (["--gpu", "RTX 4090", "--gpu", "GTX 1080 Ti"], "arch-too-old-for-wheel"),
        ([], "no-nvidia-gpu"),
    ),
)
def test_an_image_is_judged_for_the_host_that_will_run_it(
    host: list[str], cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["doctor", "--from", saved(NO_GPU_HERE, tmp_path), *host]
    code, document = document_of(arguments, capsys)
    assert document["cause"] == cause
    assert code == (0 if cause == "ok" else 1)


def test_without_a_target_doctor_is_blocked_and_says_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    assert main(["doctor"]) == 3
    assert "--python" in capsys.readouterr().err
