"""What a text is told to do: by its system, its program, its installer and what it shows."""

from __future__ import annotations

from each_row import each
from report_asked import judged, misses

from gpusetup.model.finding import Finding, Fix, command_lines

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
    "text, command",
    [
        ("C:\\Users\\u\\main.py\nFound no NVIDIA driver on your system. Please check", "Get-CimInstance"),
        ("ggml_cuda_compute_forward: MUL_MAT failed\nCUDA error: no kernel image is available for execution on the device", "compute_cap"),
    ],
)  # fmt: skip
def test_what_decides_is_a_command_of_this_system_and_this_program(text: str, command: str) -> None:
    assert command in (judged(text).next_reading or "")


IN_CONDA = 'File "/home/u/miniconda3/envs/x/lib/python3.10/site-packages/torch/cuda/__init__.py"'
NOT_COMPILED = "AssertionError: Torch not compiled with CUDA enabled"


@each(
    "text, word, never",
    [
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
        # pip's torch in an environment of conda, and the torch of which nothing is shown
        (f"{IN_CONDA}\n{NOT_COMPILED}\ntorch 2.0.1+cpu", "pip install", "conda install"),
        (
            f"$ pip install torch torchvision\n{IN_CONDA}\n{NOT_COMPILED}",
            "pip install",
            "conda install",
        ),
        (f"{IN_CONDA}\n{NOT_COMPILED}\n$ pip list\ntorch 2.1.0", "pip install", "conda install"),
        (f"{IN_CONDA}\n{NOT_COMPILED}", "pip install", "conda install"),
        # conda's
        (f"{IN_CONDA}\n{NOT_COMPILED}\npytorch 2.1.0 py3.10_cpu_0 pytorch", "conda install", "pip"),
        (f"$ conda install pytorch cpuonly -c pytorch\n{IN_CONDA}\n{NOT_COMPILED}", "conda", "pip"),
        # both: pip's companions go with it
        (
            f"{IN_CONDA}\nundefined symbol: ncclCommRegister\npytorch 2.1.0 py3.10_cuda11.8_0 pytorch\n"
            "torch 2.5.1 pypi_0 pypi\ntorchvision 0.20.1 pypi_0 pypi",
            "pip uninstall -y torch torchvision torchaudio",
            "uninstall -y pytorch",
        ),
    ],
)
def test_commands_are_of_the_installer_that_is_shown(text: str, word: str, never: str) -> None:
    said = " ".join(command_lines(fix_of(text)))
    assert word in said and never not in said


REFUSED = "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version"


NMS = "RuntimeError: operator torchvision::nms does not exist"


@each(
    "text, build",
    [
        (f"torchvision 0.21.0+cu126\n{NMS}", ("2.6.0", "cu126")),
        (f"$ pip install torchvision==0.21.0+cu126\n{NMS}", ("2.6.0", "cu126")),
        ("torchaudio==2.7.1+cu128\ntorchvision==0.22.1+cu128\nTorch not compiled with CUDA enabled", ("2.7.1", "cu128")),
        ("ERROR: No matching distribution found for torchvision==0.20.1+cu124", ("2.5.1", "cu124")),
        # A driver that does not serve it, and a torch that says its own.
        (f"torchvision 0.21.0+cu126\nDriver Version: 470.256.02\n{NMS}", ("2.6.0", "cu118")),
        (f"torch 2.7.1+cu118\ntorchvision 0.21.0+cu126\n{NMS}", ("2.7.1", "cu118")),
        (NMS, ("2.14.1", "cu126")),
    ],
)  # fmt: skip
def test_the_version_and_the_index_of_a_companion_are_the_request(
    text: str, build: tuple[str, str]
) -> None:
    chosen = judged(text).choice.build
    assert chosen is not None and (chosen.torch, chosen.backend) == build


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total "
    "capacity of 23.69 GiB of which 1.06 GiB is free."
)


@each(
    "text",
    [
        f'  File "infer.py", line 3, in answer\n    model.generate(ids)\n{OUT_OF_MEMORY}',
        "vllm serve x\nValueError: No available memory for the cache blocks. Try increasing "
        "gpu_memory_utilization. A pretrained model",
    ],
)
def test_memory_that_ran_out_elsewhere_is_told_nothing_of_a_training(text: str) -> None:
    fix = fix_of(text)
    assert "accumulation by" not in fix.text and not any(
        "plan" in line for line in command_lines(fix)
    )


NO_HIP = "No HIP GPUs are available"
HIP = "torch 2.8.0+rocm6.4\n" + NO_HIP
DRIVER = "Found no NVIDIA driver on your system. 01:00.0 VGA NVIDIA GTX 1080\nOS: Ubuntu {} LTS\n"
ABSENT = "ImportError: {}: cannot open shared object file: No such file or directory"


@each(
    "text, has, never",
    [
        ("Fedora Linux 41 (Workstation Edition)\n" + NOT_LOADED, "sudo akmods --force", ""),
        ("OS: Ubuntu 24.04.1 LTS (x86_64)\n" + NOT_LOADED, "sudo dkms autoinstall", ""),
        (NOT_LOADED, "akmods", ""),
        (DRIVER.format("24.04.1"), "nvidia-driver-580", ""),
        (DRIVER.format("16.04.4"), "nvidia.com/drivers", "nvidia-driver-580"),
        # --- other makers ---
        (f"torch 2.7.0+rocm6.3\nAMD Radeon RX 5700 XT\n{NO_HIP}", "amd-gpu|gfx1010", "Install torch"),
        ("AMD Radeon RX 6750 XT\nHIP error: invalid device function",
         "amd-gpu|device-gfx1031", "AMD publishes"),
        ("RX 7900 XTX\nAssertionError: Torch not compiled with CUDA enabled",
         "amd-gpu|gfx1100", "if ROCm"),
        (HIP, "amd-gpu|/dev/kfd", "nstall AMD's ROCm build"),
        (f"Linux 6.6.87-microsoft-standard-WSL2\n{HIP}", "amd-gpu|WSL", "/dev/kfd"),
        ("NotImplementedError: The operator 'aten::x' is not currently implemented for the MPS "
         "device", "FALLBACK", "ask for"),
        ("RuntimeError: Placeholder storage has not been allocated on MPS device!",
         '.to("mps")', ""),
        ("RuntimeError: PyTorch is not linked with support for xpu devices", "\n", "ask for"),
        ("RuntimeError: No XPU devices are available", "\n", "ask for"),
        ('  File "/Users/u/main.py", line 3\nAssertionError: Torch not compiled with CUDA enabled',
         "apple-silicon", "\ngpusetup install"),
        # --- the program and the place ---
        ('File "C:\\a\\venv\\Lib\\site-packages\\triton\\x.py"\nRuntimeError: Failed to find C '
         "compiler. Please specify via CC environment variable.",
         "triton-windows", "build-essential"),
        ("pip install torch\nERROR: Could not install packages due to an OSError: [Errno 28] No "
         "space left on device", "pip cache", "\nuv "),
        ("(EngineCore_0 pid=1) ValueError: Bfloat16 is only supported on GPUs with compute "
         "capability of at least 8.0. Your Tesla V100-SXM2-32GB GPU has compute capability 7.0. "
         "vllm serve", "--dtype half", "GradScaler"),
        ("CUDA error 222 at ggml-cuda.cu:5141: the provided PTX was compiled with an unsupported "
         "toolchain.", "release or build", "TORCH_CUDA"),
        ('docker: Error response from daemon: could not select device driver "" with capabilities: '
         "[[gpu]].", "snap", "torch"),
        ("docker run --runtime nvidia -it nvcr.io/nvidia/l4t-pytorch:r32.4.2-pth1.5-py3\n"
         "root@host:/# python3\nOSError: libnvToolsExt.so.1: cannot open shared object file: No such "
         "file or directory\n    import torch", "L4T tag", ""),
        # --- which driver, which library ---
        (f"Driver Version: 575.64.03\n{REFUSED}", "driver-too-old", "580 or newer"),
        ("torch 2.9.1\nThe NVIDIA driver on your system is too old (found version 12090).",
         "\n580.65.06\n", ""),
        ("driver 535.183.01\ntorch 2.6.0+cu124\nthe driver's CUDA version is 12.2 which is older "
         "than the PTX compiler version 12.4", "\n550.", ""),
        (ABSENT.format("libcudnn.so.9"), "torch 2.4 and newer includes cuDNN 9|Other libraries have their own numbers", ""),
    ],
)  # fmt: skip
def test_what_is_prescribed(text: str, has: str, never: str) -> None:
    assert misses(text, has, never) == []


OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 50.00 MiB (GPU 0; 6.00 GiB total capacity;"
)


@each(
    "text, title, word",
    [
        (
            f"{OOM} 505.96 MiB already allocated; 12.50 MiB free; 530.00 MiB reserved in total by PyTorch)",
            "Other programs use 5.5 GiB",
            "does not help",
        ),
        (
            f"{OOM} 693.78 MiB already allocated; 3.91 GiB free; 718.22 MiB cached)",
            "although 3.9 GiB is free",
            "page file",
        ),
        (
            f"{OOM} 5.20 GiB already allocated; 12.50 MiB free; 5.40 GiB reserved in total by PyTorch)",
            "memory is full",
            "smaller batch",
        ),
        (
            "torch 2.8.0+cu128 is in pip list\nrun.py: ModuleNotFoundError: No module named 'torch'",
            "another one has torch",
            "full path",
        ),
        (
            "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error.",
            "or a file that a worker reads is incomplete",
            "damaged",
        ),
        (
            "OS: Ubuntu 24.04\nllama.cpp$ cmake --build build\nnvcc fatal   : Unsupported gpu architecture 'compute_120a'",
            "compute_120a",
            "which -a nvcc",
        ),
    ],
)  # fmt: skip
def test_numbers_and_contradictions_of_a_text_decide_what_to_do(
    text: str, title: str, word: str
) -> None:
    assert title in root(text).title
    assert word in fix_of(text).text
