"""Who wrote a line, and what a line names: a title, an installer's tail, a trade mark, a fence."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.causes import alike
from gpusetup.model.documents import DoctorAnswer

PTXAS = "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"
TITLED = f"{PTXAS}\n\n### Describe the bug\n\n```\nPTXASError: PTXAS error\n{PTXAS}\n```\n"


def test_a_title_that_repeats_a_programs_line_takes_no_certainty_away() -> None:
    answer = read_report(TITLED)
    assert (answer.cause, answer.certainty) == ("jit-arch-rejected", "certain")


def test_whoever_says_that_there_is_no_nvidia_gpu_is_given_no_driver() -> None:
    wsl = "WSL environment detected but no adapters were found: unknown\n"
    denied = f"{wsl}I can't enable CUDA on my Laptop since it doesn't have an NVIDIA graphics card"
    assert read_report(f"nvidia-container-cli: initialization error: {wsl}").cause == "wsl-driver"
    assert read_report(denied).cause == "no-nvidia-gpu"


def fix_text(answer: DoctorAnswer) -> str:
    """The way out of the first finding, in words."""
    fix = answer.findings[0].fix
    assert fix is not None
    return fix.text


def test_an_intel_python_on_an_apple_chip_is_known_by_what_it_is_offered() -> None:
    offered = (
        "ERROR: Could not find a version that satisfies the requirement torch==2.4.1 "
        "(from versions: 2.0.0, 2.1.2, 2.2.0, 2.2.2)\n"
    )
    assert read_report(f"Mac mini M4\n{offered}").cause == "apple-silicon"
    assert read_report(f"macOS 15\n{offered}").cause == "no-wheel-for-platform"


def test_a_library_of_torchs_own_cuda_needs_no_other_build() -> None:
    text = (
        'File "/venv/lib/python3.12/site-packages/bitsandbytes/cextension.py", line 320\n'
        "OSError: libnvJitLink.so.13: cannot open shared object file: No such file or directory\n"
        "=================== bitsandbytes v0.49.2 ===================\n"
        "Platform: Linux-6.6\nPyTorch: 2.11.0+cu{}\n"
    )
    same, other = (
        fix_text(read_report(text.format("130"))),
        fix_text(read_report(text.format("128"))),
    )
    assert "torch's own library" in same
    assert "torch's own library" not in other


@each(
    "printed, cause",
    [
        ("2.6.0+cu124 ['sm_50', 'sm_80', 'sm_90'] (12, 0)", "arch-too-new-for-wheel"),
        ("2.9.1+cu128 ['sm_70', 'sm_90', 'sm_120'] (6, 1)", "arch-too-old-for-wheel"),
        ("2.9.1+cu128 ['sm_70', 'sm_90', 'sm_120'] (9, 0)", "unknown"),
    ],
)
def test_the_output_that_is_asked_for_decides(printed: str, cause: str) -> None:
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    answer = read_report(f"{error}$ {alike.TORCHS_KERNELS}\n{printed}\n")
    assert answer.cause == cause or (cause == "unknown" and not answer.cause.startswith("arch"))


def test_a_variable_that_python_prints_is_read() -> None:
    command = "python -c \"import os; print(repr(os.environ.get('CUDA_VISIBLE_DEVICES')))\""
    text = f"RuntimeError: No CUDA GPUs are available\n$ {command}\n'-1'\n"
    assert read_report(text).cause == "cuda-visible-devices-hidden"
