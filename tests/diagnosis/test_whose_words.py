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


def test_the_report_of_an_installer_is_no_other_failure() -> None:
    mismatch = (
        "RuntimeError:\n"
        "      The detected CUDA version (11.8) mismatches the version that was used to compile\n"
        "      PyTorch (12.1). Please make sure to use the same CUDA versions.\n"
        "      [end of output]\n"
    )
    tail = (
        "  ERROR: Failed building wheel for mamba_ssm\n"
        "Failed to build mamba_ssm\n"
        "ERROR: ERROR: Failed to build installable wheels for some pyproject.toml based projects\n"
    )
    alone, whole = read_report(mismatch), read_report(mismatch + tail)
    assert alone.cause == whole.cause == "cuda-toolkit-mismatch-extension-build"
    assert alone.certainty == whole.certainty == "certain"


@each(
    "text, vendor",
    [
        ("Found no NVIDIA driver on your system.。使用的amd 6750gre显卡", "amd"),
        ("# Amd显卡\n\nFound no NVIDIA driver on your system.", "amd"),
        ("I run ComfyUI with my 9070 XT and see HIP error: invalid device function", "amd"),
        ("Torch is not able to use GPU. I'm on AMD windows so I tried --directml", "amd"),
        (
            "I installed it by `pip install torch --index-url "
            "https://download.pytorch.org/whl/rocm6.0`\n"
            "comfy launch ends with: Found no NVIDIA driver on your system.",
            "amd",
        ),
    ],
)
def test_another_makers_card_is_read_however_it_is_written(text: str, vendor: str) -> None:
    assert read_report(text).cause == f"{vendor}-gpu"


def test_whoever_says_that_there_is_no_nvidia_gpu_is_given_no_driver() -> None:
    wsl = "WSL environment detected but no adapters were found: unknown\n"
    denied = f"{wsl}I can't enable CUDA on my Laptop since it doesn't have an NVIDIA graphics card"
    assert read_report(f"nvidia-container-cli: initialization error: {wsl}").cause == "wsl-driver"
    assert read_report(denied).cause == "no-nvidia-gpu"


def test_a_fence_names_no_system_and_a_trade_mark_hides_no_name() -> None:
    text = "Which torch for my GeForce RTX™ 3080?\n```powershell\nfree -h\n```\n"
    snapshot = read_report(text).snapshot
    assert snapshot.os.family != "windows"
    assert [gpu.name for gpu in snapshot.gpus or ()] == ["GeForce RTX 3080"]


def test_a_pod_is_no_machine_without_a_driver() -> None:
    lost = "Exception happens when checking CUDA platform: NVML Shared Library Not Found\n"
    assert read_report(f"vLLM in Docker with Kubernetes, Nvidia L4\n{lost}").cause != (
        "driver-missing"
    )


def test_a_jetson_in_small_letters_is_one() -> None:
    text = "Cuda available: False, in jetson orin nx\n\nassertionError: cuda is not available."
    assert read_report(text).cause == "jetson-wrong-wheel"


def fix_text(answer: DoctorAnswer) -> str:
    """The way out of the first finding, in words."""
    fix = answer.findings[0].fix
    assert fix is not None
    return fix.text


def test_a_sentence_with_as_many_commas_is_no_row_of_a_table() -> None:
    table = "index, utilization.gpu [%], temperature.gpu\n0, 97 %, 65\n"
    alone, with_sentence = (
        read_report(text).snapshot.gpus
        for text in (f"{table}Any ideas?\n", f"{table}Any ideas, please help, thanks\n")
    )
    assert alone == with_sentence


def test_a_card_that_newer_libraries_left_out_is_sent_back() -> None:
    text = (
        "rocBLAS error: Cannot read torch/lib/rocblas/library/TensileLibrary.dat: Illegal seek for "
        "GPU arch : gfx900\ntorch 2.12.0+rocm7.2 on Linux, AMD Radeon RX Vega 56\n"
    )
    answer = read_report(text)
    assert answer.cause == "amd-gpu"
    fix = answer.findings[0].fix
    assert fix is not None and "whl/rocm6.3" in " ".join(fix.commands)


HOPPERS = (
    "CUDA error (/build/third_party/flash-attention/hopper/flash_fwd_launch_template.h:167): "
    "no kernel image is available for execution on the device\n"
)


def test_a_title_hides_no_file_of_the_message_below() -> None:
    title = "RTX 5080: CUDA error: no kernel image is available for execution on the device\n\n"
    for text in (HOPPERS, title + HOPPERS):
        answer = read_report(f"{text}\nNVIDIA RTX 5080, ComfyUI with xformers\n")
        assert answer.cause == "extension-arch-mismatch"


def test_what_a_form_gives_as_an_example_is_no_fact() -> None:
    text = (
        "OS/Version(e.g. RHEL8.6, Ubuntu22.04): Ubuntu 20.04\nno runtime for nvidia is configured"
    )
    assert "20.04" in str(read_report(text).snapshot.os)


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
    "text",
    [
        "Torch not compiled with CUDA enabled in MacOS",
        "AssertionError: Torch not compiled with CUDA enabled，只有一个版本适合mac",
        "MacでAssertionError: Torch not compiled with CUDA enabled",
    ],
)
def test_a_mac_is_one_in_every_language(text: str) -> None:
    assert read_report(text).cause == "apple-silicon"


def test_a_torch_that_answered_is_not_missing() -> None:
    asked = "Intel Arc A770, torch 2.8.0+xpu\n>>> torch.xpu.is_available()\nFalse\n"
    assert read_report(f"{asked}PyTorch version: N/A\nIs debug build: N/A\n").cause == "intel-gpu"


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


@each(
    "text",
    [
        'docker: Error response from daemon: could not select device driver "" with capabilities: '
        "[[gpu]].",
        'Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ],
)
def test_a_container_engines_own_error_is_no_persons_words(text: str) -> None:
    answer = read_report(text)
    assert answer.cause == "container-toolkit-missing"
