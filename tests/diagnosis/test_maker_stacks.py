"""Stacks of AMD, Intel and Apple on machines that were read: healthy ones are ok, and what keeps
torch from the GPU has a cause of its own. By composed tapes; nobody ran this on such hardware."""

from __future__ import annotations

import pytest
from each_row import each
from maker_tapes import (
    CPU,
    CUDA,
    OLD_ROCM,
    amd,
    forbid,
    in_docker,
    intel,
    mac,
    snapshot,
    with_driver,
)
from tapes import Tape

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines
from gpusetup.report.read import read_bytes


def doctor(tape: Tape, **environ: str) -> DoctorAnswer:
    return diagnose(snapshot(tape, **environ), load_catalog())


def fix_of(diagnosis: DoctorAnswer) -> str:
    """The root's way out: its text and every command."""
    root = next(finding for finding in diagnosis.findings if finding.root)
    assert root.fix is not None
    return "\n".join((root.fix.text, *command_lines(root.fix)))


HEALTHY = {
    "Radeon RX 7900 XTX with ROCm 7.2": amd(),
    "Arc B580 with xe": intel(),
    "M3 Max": mac(),
}


@each("name", tuple(HEALTHY))
def test_a_healthy_stack_is_ok(name: str) -> None:
    diagnosis = doctor(HEALTHY[name])
    assert diagnosis.cause == "ok"
    assert diagnosis.findings == ()
    assert "right build for this GPU, device" in (diagnosis.proof or "")


def without_rights() -> Tape:
    tape = amd()
    forbid(tape, "/dev/kfd", "/dev/dri/renderD128")
    return tape


BROKEN = (
    (with_driver(amd(), None), "maker-driver-not-loaded", "sudo modprobe amdgpu"),
    (without_rights(), "maker-device-permission", 'sudo usermod -aG render,video "$USER"'),
    (in_docker(amd()), "container-no-maker-gpu", "--device /dev/kfd --device /dev/dri"),
    (amd(CUDA), "maker-wrong-build", "rocm"),
    (intel(CPU), "maker-wrong-build", "xpu"),
    (amd(OLD_ROCM, device="7550", version=120001), "rocm-arch-missing", "rocm7.2"),
    (amd(device="73df", version=100301), "rocm-arch-missing", "HSA_OVERRIDE_GFX_VERSION=10.3.0"),
    (mac(macos="13.6"), "apple-silicon", "14.0"),
)


@pytest.mark.parametrize(("tape", "cause", "way"), BROKEN)
def test_what_is_wrong_has_its_cause_and_a_way_out(tape: Tape, cause: str, way: str) -> None:
    diagnosis = doctor(tape)
    assert diagnosis.cause == cause
    assert way in fix_of(diagnosis)
    errors = [f.id for f in diagnosis.findings if f.severity.value == "error" and not f.root]
    assert all(f.explained_by for f in diagnosis.findings if f.id in errors)


def test_the_override_of_a_relative_is_taken_as_what_somebody_chose() -> None:
    diagnosis = doctor(amd(device="73df", version=100301), HSA_OVERRIDE_GFX_VERSION="10.3.0")
    assert diagnosis.cause == "ok"


def test_an_override_on_a_gpu_that_is_served_is_wrong() -> None:
    diagnosis = doctor(amd(), HSA_OVERRIDE_GFX_VERSION="10.3.0")
    assert diagnosis.cause == "rocm-override-wrong"
    assert "unset HSA_OVERRIDE_GFX_VERSION" in fix_of(diagnosis)


TEXTS = (
    ("Unable to open /dev/kfd read-write: Permission denied\nGPU: Radeon RX 7900 XTX\n",
     "maker-device-permission", "sudo usermod -aG render,video"),
    ("RuntimeError: The MPS backend is supported on MacOS 14.0+. Current OS version can be queried"
     " using `sw_vers`\nPyTorch version: 2.10.0\nOS: macOS 13.7.4 (arm64)\n",
     "apple-silicon", "14.0"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "cause", "way"), TEXTS)
def test_a_text_in_which_the_makers_own_tool_speaks_has_the_same_causes(
    text: str, cause: str, way: str
) -> None:
    diagnosis = diagnose(read_bytes(text.encode()), load_catalog())
    assert diagnosis.cause == cause
    assert way in fix_of(diagnosis)
