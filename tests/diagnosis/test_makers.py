"""GPUs of AMD, Intel and Apple, on machines that were read (by composed tapes; nobody ran this on
such hardware) and in texts: healthy stacks are ok, what keeps torch from the GPU has a cause of its
own, and no way out leads to another maker's build."""

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

from gpusetup.api import read_report
from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines


def doctor(tape: Tape, **environ: str) -> DoctorAnswer:
    return diagnose(snapshot(tape, **environ), load_catalog())


def way_of(answer: DoctorAnswer) -> str:
    """The main finding's way out: its text and every command."""
    fix = next((one.fix for one in answer.findings if one.root), answer.findings[0].fix)
    assert fix is not None
    return "\n".join((fix.text, *command_lines(fix)))


# --- machines -------------------------------------------------------------------------------------


@each("tape", [amd(), intel(), mac()])
def test_a_healthy_stack_is_ok(tape: Tape) -> None:
    answer = doctor(tape)
    assert (answer.cause, answer.findings) == ("ok", ())
    assert "right build for this GPU, device" in (answer.proof or "")


def without_rights() -> Tape:
    tape = amd()
    forbid(tape, "/dev/kfd", "/dev/dri/renderD128")
    return tape


BROKEN = (
    (with_driver(amd(), None), "driver-not-loaded", "sudo modprobe amdgpu"),
    (without_rights(), "device-permission", 'sudo usermod -aG render,video "$USER"'),
    (in_docker(amd()), "container-no-gpu", "--device /dev/kfd --device /dev/dri"),
    (amd(CUDA), "amd-gpu", "rocm"),
    (intel(CPU), "intel-gpu", "xpu"),
    (amd(OLD_ROCM, device="7550", version=120001), "amd-gpu", "rocm7.2"),
    (amd(device="73df", version=100301), "amd-gpu", "HSA_OVERRIDE_GFX_VERSION=10.3.0"),
    (mac(macos="13.6"), "apple-silicon", "14.0"),
)


@pytest.mark.parametrize(("tape", "cause", "way"), BROKEN)
def test_what_is_wrong_has_its_cause_and_a_way_out(tape: Tape, cause: str, way: str) -> None:
    answer = doctor(tape)
    assert answer.cause == cause
    assert way in way_of(answer)
    errors = [one for one in answer.findings if one.severity.value == "error" and not one.root]
    assert all(one.explained_by for one in errors)


def test_an_override_is_wrong_on_a_gpu_that_is_served_and_chosen_on_its_relative() -> None:
    override = {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}
    wrong = doctor(amd(), **override)
    assert wrong.cause == "rocm-override-wrong"
    assert "unset HSA_OVERRIDE_GFX_VERSION" in way_of(wrong)
    assert doctor(amd(device="73df", version=100301), **override).cause == "ok"


# --- texts ----------------------------------------------------------------------------------------

NOT_COMPILED = "AssertionError: Torch not compiled with CUDA enabled"
NO_DRIVER = (
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU "
    "and installed a driver from http://www.nvidia.com/Download/index.aspx"
)
INVALID = "RuntimeError: HIP error: invalid device function"


@each(
    "text, cause, way, never",
    [
        # How a text names the GPU.
        (f"我用的是苹果M1芯片，已经改成MPS了\n{NOT_COMPILED}", "apple-silicon", "mps", "cu1"),
        (f"英特尔锐炫A770显卡，怎么解决？\n{NOT_COMPILED}", "intel-gpu", "whl/xpu", "cu1"),
        (f"**GPU:** MI50\n{NOT_COMPILED}", "amd-gpu", "whl/rocm6.3", "cu1"),
        (f"### GPU\n\nNVIDIA RTX 3060\n{NO_DRIVER}", "driver-missing", "driver", "rocm"),
        # The right build, or the variable with which the installed one runs.
        (f"RX 5700 XT (gfx1010), Ubuntu 24.04\ntorch 2.9.1+rocm6.4\n{INVALID}", "amd-gpu",
         "torch[device-gfx1010]", "HSA_OVERRIDE"),
        (f"RX 6700 XT (gfx1031), Ubuntu 24.04\ntorch 2.9.1+rocm6.4\n{INVALID}", "amd-gpu",
         "export HSA_OVERRIDE_GFX_VERSION=10.3.0", "cu1"),
        ("RuntimeError: The MPS backend is supported on MacOS 14.0+. Current OS version can be "
         "queried using `sw_vers`\nPyTorch version: 2.10.0\nOS: macOS 13.7.4 (arm64)\n",
         "apple-silicon", "14.0", 'Replace "cuda"'),
    ],
)  # fmt: skip
def test_a_text_gets_its_makers_cause_and_way(text: str, cause: str, way: str, never: str) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    shown = way_of(answer)
    assert way in shown
    assert never not in shown
