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
        'ollama: msg="amdgpu is not supported (supported types:[gfx1030 gfx942])" gpu_type=gfx906\n'
        "MI50",
        "amd-gpu", "OLLAMA_VULKAN=1", "torch",
    ),
    (
        "RX 6600, torch 2.1.0+rocm5.6, glibc 2.41\nImportError: libamdhip64.so: cannot enable "
        "executable stack as shared object requires: Invalid argument",
        "library-not-mapped", "patchelf --clear-execstack", "noexec",
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
    (
        "  Name:                    gfx1100\nRuntimeError: HIP error: invalid device function",
        "amd-gpu", "wheels have kernels for gfx1100", "no kernels",
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


IPEX_DLL = (
    'OSError: [WinError 126] Error loading "C:\\venv\\Lib\\site-packages\\'
    'intel_extension_for_pytorch\\bin\\esimd_kernels.dll" or one of its dependencies.'
)
NOT_COMPILED = "AssertionError: Torch not compiled with CUDA enabled"
MENDED_BY = (
    # the text, words of what to do, words that never stand in it
    (IPEX_DLL, "own XPU build", "Visual C++"),
    (
        f"E:\\stable-diffusion-webui\\venv\\Lib\\site-packages\\torch: RX 7900 XT\n{NOT_COMPILED}",
        "torch[device-gfx1100]", "cu126",
    ),
)  # fmt: skip


@each("text, words, never", MENDED_BY)
def test_the_way_belongs_to_the_package_the_engine_and_the_system(
    text: str, words: str, never: str
) -> None:
    to_do = everything_to_do(read_report(text))
    assert words in to_do
    assert never not in to_do


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
