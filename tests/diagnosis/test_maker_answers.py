"""What doctor answers to texts about Intel's runtime, MIOpen's databases and Metal, and which
command decides for an AMD GPU."""

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
    # the text, the cause, words of the fix, words that never stand in it
    (
        'Windows 11, Arc A750, torch 2.5.1+xpu\nOSError: [WinError 126] Error loading "C:\\v\\lib\\'
        'site-packages\\torch\\lib\\c10_xpu.dll" or one of its dependencies.',
        "windows-dll-missing", "since torch 2.6", "gpusetup install",
    ),
    (
        'Windows 11, Arc B570, torch 2.8.0+xpu\nOSError: [WinError 126] Error loading "C:\\v\\lib\\'
        'site-packages\\torch\\lib\\torch_xpu.dll" or one of its dependencies.',
        "windows-dll-missing", "whl/xpu", "setvars",
    ),
    (
        "Rocky Linux 9, Max 1100. torch 2.8.0+xpu\n>>> torch.xpu.device_count()\n0\n"
        "UserWarning: XPU device count is zero!",
        "intel-gpu", "ZE_AFFINITY_MASK", "NVIDIA",
    ),
    (
        "Arc Pro B50, intel_extension_for_pytorch 2.5.10+xpu, torch 2.5.1+cxx11.abi\nsimple tensor "
        "operations work. torch.xpu.is_available() True\nxpu: RuntimeError: could not create an "
        "engine",
        "intel-gpu", "uninstall -y intel-extension-for-pytorch", "whl/cu",
    ),
    (
        "Segmentation fault (core dumped)\nRX 570, torch 2.3.1+rocm6.0, Ubuntu",
        "amd-gpu", "no longer support", "whl/cu",
    ),
    (
        "Memory access fault, Segmentation fault\nRX 9070 XT on Fedora, torch 2.6.0+rocm6.2.4",
        "amd-gpu", "whl/rocm7.2", "whl/cu",
    ),
    (
        "MacBook M1. RuntimeError: Input type (MPSFloatType) and weight type (MPSHalfType) should "
        "be the same",
        "apple-silicon", "--no-half", 'Replace "cuda"',
    ),
    (
        "Windows 11, RX 7700 XT, I compiled ROCm and torch with TheRock\nrocblaslt error: Cannot "
        'read "TensileLibrary_lazy_gfx1101.dat": No error',
        "amd-gpu", "device-gfx1101", "is older",
    ),
)  # fmt: skip


@each("text, cause, words, never", WAYS)
def test_the_fix_is_for_the_makers_own_software(
    text: str, cause: str, words: str, never: str
) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    to_do = everything_to_do(answer)
    assert words in to_do
    assert never not in to_do


def test_a_message_of_mps_shows_a_mac() -> None:
    text = (
        "NotImplementedError: Output channels > 65536 not supported at the MPS device.\n"
        "/opt/miniconda3/lib/python3.9/site-packages/gradio/x.py: warning"
    )
    assert read_report(text).snapshot.os.family == "macos"


def test_nvidias_driver_is_no_other_cause_beside_an_amd_gpu() -> None:
    answer = read_report("ComfyUI on Windows, RX 7900 GRE: everything runs on cpu")
    assert answer.cause == "unknown"
    assert not {"driver-too-old", "driver-missing"} & set(answer.other_causes)


def test_a_fallback_that_is_set_is_not_advised_again() -> None:
    text = (
        "mac mini m4: PYTORCH_ENABLE_MPS_FALLBACK=1 python main.py\nNotImplementedError: The "
        "operator 'aten::_x' is not currently implemented for the MPS device."
    )
    answer = read_report(text)
    assert answer.cause == "apple-silicon"
    assert "export PYTORCH_ENABLE_MPS_FALLBACK" not in everything_to_do(answer)
