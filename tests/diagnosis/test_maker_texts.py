"""Texts of people with AMD, Intel or Apple GPUs: who must act, what rules a cause out, and which
command decides."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines


def everything_to_do(answer: DoctorAnswer) -> str:
    """The main finding's fix: its sentence and all of its commands."""
    fix = answer.findings[0].fix
    assert fix is not None
    return "\n".join((fix.text, *command_lines(fix)))


WAYS = (
    (
        'docker: error gathering device information while adding custom device "/dev/kfd": no such '
        "file or directory.\nRX 6800, docker run --device /dev/kfd rocm/pytorch",
        "maker-driver-not-loaded", "modprobe amdgpu", "docker run",
    ),
    (
        "Intel Arc A310. In the LXC container: ls: cannot access '/dev/dri': No such file or "
        "directory\ntorch 2.8.0+xpu: torch.xpu.is_available() is False",
        "container-no-maker-gpu", "Device Passthrough", "docker run",
    ),
    (
        "RX 7900 XT, torch 2.9.0+rocm6.4\ntorch.AcceleratorError: HIP error: an illegal memory "
        "access was encountered",
        "cuda-program-error", "AMD_SERIALIZE_KERNEL=3", "CUDA_LAUNCH_BLOCKING",
    ),
)  # fmt: skip


@each("text, cause, way, never", WAYS)
def test_the_way_is_right_for_the_program_and_the_maker(
    text: str, cause: str, way: str, never: str
) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    assert way in everything_to_do(answer)
    assert never not in everything_to_do(answer)


MPS_IS_NOT_AVAILABLE = "MPS built?: True\nMPS available?: False\n"
METAL = (
    # the text, the cause, words of what to do
    (f"{MPS_IS_NOT_AVAILABLE}PyTorch: 2.9.1\nOS: macOS 26.0 (arm64)", "apple-silicon", "Metal"),
    (
        "torch.backends.mps.is_available() returns False on my M3 MacBook, is_built() is True",
        "apple-silicon",
        "ssh session",
    ),
)


@each("text, cause, words", METAL)
def test_mps_that_is_built_and_not_available_is_no_question_of_cuda(
    text: str, cause: str, words: str
) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    assert words in everything_to_do(answer)
    assert 'Replace "cuda"' not in everything_to_do(answer)


@each(
    "gpu, command",
    [
        ("RX 5700 XT (gfx1010)", "torch[device-gfx1010]"),
        ("RX 6700 XT (gfx1031)", "export HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        ("RX 6700 XT (gfx1031)", "torch[device-gfx1031]"),
    ],
)
def test_a_target_that_pytorchs_wheels_lack_gets_amds_wheels(gpu: str, command: str) -> None:
    """As `resolve` names them; a wheel that is there may run by the variable first."""
    failure = "torch 2.9.1+rocm6.4\nRuntimeError: HIP error: invalid device function"
    assert command in everything_to_do(read_report(f"{gpu}, Ubuntu 24.04\n{failure}"))
