"""What no answer says, whatever the machine or the text: every example machine and every composed
text is judged once, and each invariant is asked of all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest
import tree_sitter_pwsh
from machines_named import snapshots
from report_asked import NO_DRIVER, UNAVAILABLE
from tree_sitter import Language, Parser

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.evidence.context import cuda_needed
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding, Fix, command_lines
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.report.read import read_report

CATALOG = load_catalog()
TOO_OLD = "CUDA error: CUDA driver version is insufficient for CUDA runtime version"
TEXTS = (
    f"Windows 11, RTX 4070\n{UNAVAILABLE}",
    f"RTX 5070 Ti, Windows 11\n{NO_DRIVER}",
    "Windows 11, torch 2.5.1+cpu\nAssertionError: Torch not compiled with CUDA enabled",
    f"Driver Version: 470.256.02   CUDA Version: 11.4\nPyTorch version: 2.6.0+cu124\n{TOO_OLD}",
    "nvidia-smi: Driver Version: 418.87   CUDA Version: 10.1\nRuntimeError: The NVIDIA driver on "
    "your system is too old (found version 10010).",
    f"Driver Version: 575.64.03   CUDA Version: 12.9\nPyTorch version: 2.6.0+cu124\n{TOO_OLD}",
    "Linux ubuntu 5.15.148-tegra #1 SMP aarch64 GNU/Linux\n>>> torch.cuda.is_available()\nFalse",
    "$ docker run -it trainer:latest python train.py\nRuntimeError: No CUDA GPUs are available",
)


@cache
def every_answer() -> dict[str, DoctorAnswer]:
    texts = {text: read_report(text) for text in TEXTS}
    return {name: diagnose(one, CATALOG) for name, one in {**texts, **snapshots()}.items()}


def fixes() -> Iterator[tuple[str, DoctorAnswer, Finding, Fix]]:
    for name, answer in every_answer().items():
        for finding in answer.findings:
            if finding.fix is not None:
                yield name, answer, finding, finding.fix


def floor_on(machine: Snapshot, cuda: str | None) -> str | None:
    family = "windows" if machine.os.wsl else machine.os.family or "linux"
    return CATALOG.driver_floor(cuda, family) if cuda and not machine.os.jetson else None


def floors_of(machine: Snapshot, lines: tuple[str, ...]) -> set[str]:
    """The least drivers of the CUDA builds that lines install."""
    backends = {
        b for line in lines for b in re.findall(r"\bcu\d{2,3}\b", line) if "install" in line
    }
    return {floor for b in backends if (floor := floor_on(machine, cuda_of(b)))}


def test_no_driver_is_called_too_old_that_meets_the_need() -> None:
    called = [
        (name, answer.snapshot, fix.min_driver)
        for name, answer, finding, fix in fixes()
        if finding.id == "driver-too-old" and answer.snapshot.driver.version
    ]
    wrong = [
        (name, needs)
        for name, machine, asked in called
        if (needs := asked or floor_on(machine, cuda_needed(machine.torch)))
        and parsed(machine.driver.version or "0") >= parsed(needs)
    ]
    assert len(called) >= 3
    assert wrong == []


def test_every_torch_that_is_prescribed_names_its_least_driver() -> None:
    asked = [
        (name, finding.id, floor, fix.text)
        for name, answer, finding, fix in fixes()
        for floor in floors_of(answer.snapshot, command_lines(fix))
    ]
    assert asked
    assert [one for one in asked if not names(one[2], one[3])] == []


def names(floor: str, text: str) -> bool:
    """Whether a text names that driver, or the newer one that the GPU needs."""
    told = re.findall(r"\d{3}(?:\.\d+)*(?= or newer)", text)
    return floor in text or any(parsed(one) >= parsed(floor) for one in told)


def test_no_torch_is_prescribed_above_the_driver_that_was_read() -> None:
    wrong = [
        (name, finding.id, floor)
        for name, answer, finding, fix in fixes()
        for floor in floors_of(answer.snapshot, command_lines(fix))
        if (has := answer.snapshot.driver.version)
        and parsed(has) < parsed(floor)
        # An update of the driver in the same block is the way out.
        and not (fix.min_driver and parsed(fix.min_driver) >= parsed(floor))
    ]
    assert wrong == []


MISSING = "ERROR: No matching distribution found for torch==2.1.0+cu118"
FAILED = (
    "AssertionError: Torch not compiled with CUDA enabled",
    "RuntimeError: operator torchvision::nms does not exist\ntorch 2.4.0 torchvision 0.15.0",
    f"ERROR: Could not find a version (from versions: 2.5.0, 2.6.0)\n{MISSING}",
    *(NO_DRIVER, UNAVAILABLE, MISSING, "ModuleNotFoundError: No module named 'torch'"),
)
CUDA = r"(?:whl/|\+|--backend |from )cu\d|nvidia-driver"
SAID = {
    "it as if I only have a CPU|no GPU memory left|one that works on a PC without GPU": (
        CUDA,
        True,
    ),
    "an RTX 4090|a Tesla T4|an RTX 4070, and an AMD Ryzen processor": (CUDA, True),
    "an AMD Radeon RX 6700 XT|only Intel Iris Xe graphics|an Intel Arc A770|a Radeon 780M": (
        CUDA,
        False,
    ),
    "me@jetson-orin-nano:~$ python3 a.py|the Jetson Nano dev kit|Orin NX": (CUDA, False),
}
"""What people call their machine -> what commands have in them, and whether they may."""


@pytest.mark.parametrize(
    "machine, form, may", [(one, *SAID[k]) for k in SAID for one in k.split("|")]
)
def test_what_a_person_calls_the_machine_decides(machine: str, form: str, may: bool) -> None:
    """Each error is told of each machine; the neighbours have an NVIDIA GPU."""
    shown = [
        line
        for error in FAILED
        for one in diagnose(read_report(f"I have {machine}.\n{error}"), CATALOG).findings
        if one.root and one.fix
        for line in command_lines(one.fix)
    ]
    assert bool([line for line in shown if re.search(form, line)]) == may


def test_powershell_reads_every_line_for_windows() -> None:
    powershell = Parser(Language(tree_sitter_pwsh.language()))
    lines = {
        line
        for _, answer, _, fix in fixes()
        if answer.snapshot.os.family == "windows"
        for line in command_lines(fix)
    }
    assert lines
    assert powershell.parse(b'python -m pip install "torch').root_node.has_error
    assert [one for one in lines if powershell.parse(one.encode()).root_node.has_error] == []
    assert [one for one in lines if re.search(r"'|&&|\bsudo\b|\bexport\b", one)] == []
