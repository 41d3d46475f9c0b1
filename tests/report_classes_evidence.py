"""Classes of texts of which an answer needs evidence of its own cause, and of what people say."""

from __future__ import annotations

from report_classes import SMI_ONE, Class

NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"
X86_BUILD = "creating build\\lib.win32-cpython-311\nerror: subprocess-exited-with-error"

EVIDENCE: dict[str, Class] = {
    "a notebook that is lent, of somebody who sits at a Mac": Class(
        "unknown",
        (
            "I run the notebook on Google Colab and import torch exits with code 1\nOperating system\nmacOS (Apple Silicon)",
            "SystemExit: FAILED: import torch (exit code 1) in Google Colab\nHTTP Error 500: Internal Server Error\n### Operating system\nmacOS (Apple Silicon)",
            "The cell fails in my Kaggle notebook\n### Operating system\nmacOS",
        ),
        (
            "On Google Colab it works; on my Mac: AssertionError: Torch not compiled with CUDA enabled\nOS: macOS 14.5 (arm64)",
        ),
    ),
    "an NVML in a container that gives no reason": Class(
        "unknown",
        (
            "$ docker exec outer podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi -L\nFailed to initialize NVML: N/A",
            "root@4f2e1d0c9b8a:/workspace# nvidia-smi\nFailed to initialize NVML: N/A",
            "$ docker exec -it train nvidia-smi\nFailed to initialize NVML: N/A",
        ),
        ("root@4f2e1d0c9b8a:/workspace# nvidia-smi\nFailed to initialize NVML: Unknown Error",),
    ),
    "a build in the prompt of an x86 compiler, beside a torch that is there": Class(
        "unknown",
        (
            f"Requirement already satisfied: torch in c:\\python311\\lib\\site-packages (from flash-attn) (2.1.0+cu121)\n{X86_BUILD}",
            f"Guessing wheel URL:  https://host/flash_attn-2.5.9+cu122torch2.1cxx11abiFALSE-cp311-cp311-win_amd64.whl\nPrecompiled wheel not found. Building from source...\n{X86_BUILD}",
            f"Requirement already satisfied: torch in c:\\site-packages (from mamba-ssm) (2.6.0)\n{X86_BUILD}",
        ),
        (
            f"{X86_BUILD}\nERROR: Could not find a version that satisfies the requirement torch (from versions: none)",
        ),
    ),
    "a number of another program's error": Class(
        "unknown",
        (
            "It does not start: HTTP Error 500: Internal Server Error",
            "I get HTTP Error 304: Not Modified and it does not start",
            "the backend answers error 401: Unauthorized and the model is not loaded",
        ),
        ("CUDA initialization failed: Error 802: system not yet initialized",),
    ),
    "memory that keeps running out": Class(
        "out-of-memory",
        (
            "I try to make a long video, but it keeps running out of memory. I use a GPU with 48 GB of VRAM.",
            "Because the GPU memory is exhausted, the speed is very low",
            "my VRAM gets exhausted after a few frames",
        ),
        (
            "If the GPU memory is exhausted, layers go to the CPU",
            "the system RAM keeps running out of memory, the GPU idles",
        ),
    ),
    "a torch that has no CUDA, as people say it": Class(
        "torch-cpu-build",
        (
            "Torch does not have CUDA\nI updated the program on Windows, there is an RTX 3090",
            "after the update my pytorch doesn't have CUDA support anymore",
            "pytorch does not have GPU support, and it had CUDA before",
        ),
        (
            "If torch does not have CUDA, the CPU is used",
            "torch does not have CUDA kernels for this operator",
        ),
    ),
    "xformers' refusal, and a message that was cut": Class(
        "extension-arch-mismatch",
        (
            "RuntimeError: Your device is too old. We require compute capability >= 50",
            'File "site-packages/xformers/ops/fmha/cutlass.py", line 106\nRuntimeError: Your device is too old. We require compute capability >= 50',
            "xformers: Your device is too old. We require compute capability >= 70",
        ),
        ("Your device is too old. We require Android 12",),
    ),
    "uv's log where no file fits the Python": Class(
        "python-no-wheel",
        (
            "$ uv pip install torch==2.3.0 --index-url https://download.pytorch.org/whl/cu121\nDEBUG Using Python 3.13.0 environment at .venv\nDEBUG No compatible version found for: torch\n  × No solution found when resolving dependencies:",
            "$ uv pip install torch==2.3.0\nDEBUG Found `cpython-3.13.0-windows-x86_64-none`\nDEBUG Using Python 3.13.0 environment at .venv\nDEBUG No compatible version found for: torch\n  × No s",
            "uv pip install torch==2.1.0\nDEBUG Using Python 3.13.1 environment at .venv\nDEBUG No compatible version found for: torch\n  x No sol",
        ),
        (
            "DEBUG Using Python 3.12.0 environment at .venv\nDEBUG No compatible version found for: torch\nDEBUG Searching for a compatible version of torchvision",
        ),
    ),
    "an image whose start finds no nvidia-smi, which works elsewhere": Class(
        "container-no-gpu",
        (
            "!! ERROR: nvidia-smi not found\nOutside of docker and in other docker containers nvidia-smi runs fine",
            "nvidia-smi not found in the image's start. On the host nvidia-smi works.",
            "ERROR: nvidia-smi not found\nIn another container nvidia-smi works",
        ),
        (f"nvidia-smi not found\n{SMI_ONE}",),
    ),
    "a compiler that is newer than the driver, in words": Class(
        "ptx-unsupported-toolchain",
        (
            "the kernel does not launch; with CUDA error functions one sees a PTX mismatch",
            "nvcc add.cu: it ends with a PTX mismatch on the T4",
            "It was a PTX mismatch between nvcc and the driver of this notebook",
        ),
        ("compile for the GPU itself to avoid a PTX mismatch",),
    ),
    "torchvision's operator that torch does not have": Class(
        "torchvision-mismatch",
        (
            "ValueError: Could not find the operator torchvision::nms. Please make sure you have already registered the operator",
            "Could not find the operator torchvision::nms",
            "File torch/_custom_op/impl.py:1052\nCould not find the operator torchvision::nms. Please make sure",
        ),
        ("Could not find the operator mylib::nms",),
    ),
    "a driver that is called too old, and serves the torch that is there": Class(
        "cuda-init-failed",
        (
            "Driver Version: 575.64.03   CUDA Version: 12.9\nPyTorch version: 2.6.0+cu124\nRuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
            "driver 550.163.01\ntorch 2.5.1+cu121\nUserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",
            "torch 2.9.1+cu130, nvidia driver 580.95.05\ncudaErrorInsufficientDriver",
        ),
        (
            "Driver Version: 470.256.02   CUDA Version: 11.4\nPyTorch version: 2.6.0+cu124\nRuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
            "driver 575.64.03\ntorch 2.9.1+cu130\nRuntimeError: The NVIDIA driver on your system is too old (found version 12090).",
        ),
    ),
    "a GPU that is older than every torch": Class(
        "arch-too-old-for-wheel",
        (
            "PyTorch version: 1.2.0\nCUDA used to build PyTorch: 10.0\nIs CUDA available: No\nGPU models and configuration: GPU 0: GeForce GTX 680\nNvidia driver version: 341.44",
            "GPU: GeForce GTX 680, driver 340.108, torch 1.10.0+cu113\ntorch.cuda.is_available() False",
            "Device is GTX 770\ntorch.cuda.is_available() returns False",
        ),
        (
            "GeForce GTX 780\nDriver Version: 391.35\nAssertionError: The NVIDIA driver on your system is too old (found version 9010).",
        ),
    ),
    "a kernel's assertion, whatever fails after it and elsewhere": Class(
        "cuda-program-error",
        (
            "On a CPU-only machine it fails too\nLoss.cu:250: nll_loss: block: [0,0,0], thread: [5,0,0] **Assertion `t >= 0 && t < n_classes` failed.**\nCUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "I only have a CPU at home\nRuntimeError: CUDA error: device-side assert triggered\nCUDA out of memory",
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\nI only have a CPU at home",
        ),
    ),
    "a machine that is AMD's by its owner's word": Class(
        "amd-gpu",
        (
            "RuntimeError: Found no NVIDIA driver on your system. (AMD Linux, was working before)",
            "[Bug] AMD: RuntimeError: Found no NVIDIA driver on your system",
            "Running on an AMD system (ROCm): Found no NVIDIA driver on your system",
        ),
        (
            "RuntimeError: Found no NVIDIA driver on your system.\nAMD Ryzen 7 5800X, Ubuntu 22.04",
            "AMD Linux, and an RTX 3060\nRuntimeError: Found no NVIDIA driver on your system.",
        ),
    ),
}
