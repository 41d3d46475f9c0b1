"""What a text is told to do: by its system, its program, its installer and what it shows."""

from __future__ import annotations

from each_row import each
from report_asked import judged

from gpusetup.model.finding import Finding, Fix, typed

NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running."
)
SMI = (
    "| NVIDIA-SMI 550.54.14   Driver Version: 550.54.14   CUDA Version: 12.4 |\n"
    "|   0  Tesla V100-SXM2-16GB   On  | 00000000:00:1E.0 Off | 0 |\n"
    "| N/A   40C    P0    40W / 300W |   1000MiB / 16384MiB |      0%   E. Process |\n"
)


def root(text: str) -> Finding:
    return next(finding for finding in judged(text).findings if finding.root)


def fix_of(text: str) -> Fix:
    fix = root(text).fix
    assert fix is not None, text
    return fix


@each(
    "system, line",
    [
        ("Fedora Linux 41 (Workstation Edition)\n", "sudo akmods --force"),
        ("OS: Ubuntu 24.04.1 LTS (x86_64)\n", "sudo dkms autoinstall"),
        ("", "akmods"),
    ],
)
def test_the_module_is_built_by_what_the_distribution_has(system: str, line: str) -> None:
    assert line in fix_of(system + NOT_LOADED).commands[0]


def test_a_release_whose_repositories_have_no_driver_of_today_is_told_where_to_download() -> None:
    text = "Found no NVIDIA driver on your system. 01:00.0 VGA NVIDIA GTX 1080\nOS: Ubuntu {} LTS\n"
    assert "ubuntu-drivers" in " ".join(fix_of(text.format("24.04.1")).commands)
    assert "nvidia.com/drivers" in fix_of(text.format("16.04.4")).text


@each(
    "text, word, never",
    [
        ("torch 2.7.0+rocm6.3\nAMD Radeon RX 5700 XT\nNo HIP GPUs are available", "gfx1010", "Install torch"),
        ("AMD Radeon RX 6750 XT\nHIP error: invalid device function", "gfx1030", "AMD publishes"),
        ("RX 7900 XTX\nAssertionError: Torch not compiled with CUDA enabled", "gfx1100", "if ROCm"),
        ("torch 2.8.0+rocm6.4\nNo HIP GPUs are available", "/dev/kfd", "nstall AMD's ROCm build"),
        ("Linux 6.6.87-microsoft-standard-WSL2\ntorch 2.8.0+rocm6.4\nNo HIP GPUs are available", "WSL", "/dev/kfd"),
    ],
)  # fmt: skip
def test_advice_for_amd_names_the_target_and_what_is_there_already(
    text: str, word: str, never: str
) -> None:
    fix = fix_of(text)
    assert root(text).id == "amd-gpu" and word in fix.text and never not in fix.text


def test_a_program_beside_torch_hears_nothing_of_torchs_builds() -> None:
    said = root("ollama ps\nlibrary=cpu\nAMD Radeon 860M (gfx1152): amdgpu is not supported")
    assert "torch" not in said.title and "ollama" in said.title


def test_what_runs_on_mps_or_xpu_is_not_told_to_ask_for_it() -> None:
    lacks = "NotImplementedError: The operator 'aten::x' is not currently implemented for the MPS device"
    moved = "RuntimeError: Placeholder storage has not been allocated on MPS device!"
    assert "FALLBACK" in fix_of(lacks).commands[0] and "ask for" not in fix_of(lacks).text
    assert '.to("mps")' in fix_of(moved).text
    for said in (
        "PyTorch is not linked with support for xpu devices",
        "No XPU devices are available",
    ):
        assert "ask for" not in fix_of(f"RuntimeError: {said}").text


def test_a_mac_whose_torch_speaks_is_not_told_to_install_it() -> None:
    text = '  File "/Users/u/main.py", line 3\nAssertionError: Torch not compiled with CUDA enabled'
    assert root(text).id == "apple-silicon" and not fix_of(text).commands


@each(
    "text, command",
    [
        ("C:\\Users\\u\\main.py\nFound no NVIDIA driver on your system. Please check", "Get-CimInstance"),
        ("PyTorch version: 2.2.2\nCUDA used to build PyTorch: None\nOS: macOS 14.5 (x86_64)\nPython version: 3.10.13\nIs CUDA available: False\nGPU models and configuration: No CUDA", "system_profiler"),
        ("ggml_cuda_compute_forward: MUL_MAT failed\nCUDA error: no kernel image is available for execution on the device", "compute_cap"),
    ],
)  # fmt: skip
def test_what_decides_is_a_command_of_this_system_and_this_program(text: str, command: str) -> None:
    assert command in (judged(text).next_reading or "")


@each(
    "text",
    [
        f"{SMI}RuntimeError: all CUDA-capable devices are busy or unavailable",
        "NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x65:1792)",
        "torch 1.9.0+cu111\nImportError: libcudart.so.10.2: cannot open shared object file: No such file or directory",
    ],
)  # fmt: skip
def test_what_a_text_shows_is_not_asked_for(text: str) -> None:
    assert not fix_of(text).looks


def test_windows_is_told_no_gcc_of_linux() -> None:
    text = (
        'File "C:\\a\\venv\\Lib\\site-packages\\triton\\x.py"\nRuntimeError: Failed to find C compiler. '
        "Please specify via CC environment variable."
    )
    fix = fix_of(text)
    assert "build-essential" not in fix.text and "triton-windows" in " ".join(typed(fix))


def test_an_empty_libcuda_need_not_be_a_containers() -> None:
    empty = "ImportError: libcuda.so.1: file too short"
    bare = judged(f"OS: Ubuntu 22.04.4 LTS (x86_64)\n{empty}")
    inside = judged(f"root@4f5e6d7c8b9a:/workspace# python x.py\n{empty}")
    assert (bare.cause, bare.certainty) == ("container-no-gpu", "likely")
    assert (inside.cause, inside.certainty) == ("container-no-gpu", "certain")
    assert "On a host" in fix_of(f"OS: Ubuntu 22.04.4 LTS (x86_64)\n{empty}").text


def test_only_the_installer_that_is_shown_is_told_to_clear_its_cache() -> None:
    full = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    assert not any("uv" in line for line in fix_of(f"pip install torch\n{full}").commands)


@each(
    "text, word, never",
    [
        (
            "error: Distribution `torch==2.8.0+cu128 @ registry+https://download.pytorch.org/whl/cu128` can't be installed because it doesn't have a source distribution or wheel for the current platform",
            "uv pip",
            "-m pip",
        ),
        (
            'File "/home/u/miniconda3/envs/x/lib/python3.11/site-packages/a.py"\nA module that was compiled using NumPy 1.x cannot be run in NumPy 2.3.0 as it may crash.',
            "conda install",
            "-m pip",
        ),
        (
            "NVIDIA: no NVIDIA devices found\nTHCudaCheck FAIL file=x.cpp line=352 error=30 : unknown error",
            "",
            "gpusetup install",
        ),
    ],
)
def test_commands_are_of_the_installer_that_is_shown(text: str, word: str, never: str) -> None:
    said = " ".join(typed(fix_of(text)))
    assert word in said and never not in said


@each(
    "text, word, never",
    [
        (
            "(EngineCore_0 pid=1) ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla V100-SXM2-32GB GPU has compute capability 7.0. vllm serve",
            "--dtype half",
            "GradScaler",
        ),
        (
            "CUDA error 222 at ggml-cuda.cu:5141: the provided PTX was compiled with an unsupported toolchain.",
            "release or build",
            "TORCH_CUDA",
        ),
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            "snap",
            "torch",
        ),
        (
            "docker run --runtime nvidia -it nvcr.io/nvidia/l4t-pytorch:r32.4.2-pth1.5-py3\nroot@host:/# python3\nOSError: libnvToolsExt.so.1: cannot open shared object file: No such file or directory\n    import torch",
            "L4T tag",
            "wheel",
        ),
    ],
)
def test_the_way_out_is_of_the_program_and_the_place(text: str, word: str, never: str) -> None:
    fix = fix_of(text)
    assert word in fix.text and never not in fix.text
