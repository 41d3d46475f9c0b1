"""Classes of texts: what each variant means, and what its neighbours must not be taken for.

Composed in our own frame around the lines that the programs print; versions, paths and names are
made up. A class is learned when its variants are right and its neighbours are something else.
"""

from __future__ import annotations

from typing import NamedTuple


class Class(NamedTuple):
    """Texts of one cause, and texts near them that mean something else."""

    causes: str
    """Any one of them is right for every variant."""
    variants: tuple[str, ...]
    neighbours: tuple[str, ...] = ()
    """Texts that must not be given the first of `causes`."""


NO_GPUS = "RuntimeError: No CUDA GPUs are available"
NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
SMI_ONE = """\
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |
| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |
"""

CLASSES: dict[str, Class] = {
    "a container that was started without its GPU": Class(
        "container-no-gpu",
        (f"$ docker run -it --rm -v $PWD:/src trainer:latest python train.py\n{NO_GPUS}",),
        (f"docker run --gpus all -it img python train.py\n{NO_IMAGE}",),
    ),
    "a program that hides the GPU itself": Class(
        "cuda-visible-devices-hidden",
        (
            f'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "-1"\nimport torch\n>>> torch.cuda.init()\n{NO_GPUS}',
        ),
        (f"CUDA_VISIBLE_DEVICES=0 python train.py\n{NO_IMAGE}",),
    ),
    "nvidia-smi alone, whatever the driver": Class(
        "ok",
        (
            "==============NVSMI LOG==============\n\nDriver Version                      : 390.157\nCUDA Version                        : 9.1\n\nAttached GPUs                       : 1\nGPU 00000000:84:00.0\n    Performance State               : P8\n    Clocks Throttle Reasons\n        Idle                        : Active",
        ),
        (
            SMI_ONE
            + "RuntimeError: The NVIDIA driver on your system is too old (found version 10010).",
        ),
    ),
    "a package that replaced torch": Class(
        "torch-cpu-build",
        (
            "Installing collected packages: torch, optimum\n  Attempting uninstall: torch\n    Found existing installation: torch 2.6.0+cu124\n    Uninstalling torch-2.6.0+cu124:\n      Successfully uninstalled torch-2.6.0+cu124\nSuccessfully installed optimum-1.2 torch-2.8.0+cpu\nAssertionError: Torch not compiled with CUDA enabled",
        ),
        (
            "  Attempting uninstall: torch\n    Found existing installation: torch 2.6.0+cpu\n    Uninstalling torch-2.6.0+cpu:\nSuccessfully installed torch-2.6.0+cu124",
        ),
    ),
    "a Jetson with the default index's wheel": Class(
        "jetson-wrong-wheel",
        (
            "Linux ubuntu 5.15.148-tegra #1 SMP aarch64 GNU/Linux\n$ pip3 install torch torchvision\n>>> torch.cuda.is_available()\nFalse\n>>> torch.__version__\n'2.7.1'",
        ),
        ("NVIDIA DGX Spark, aarch64\nPyTorch version: 2.9.0+cu130\nCUDA available: True",),
    ),
    "another maker's backend in use: what failed is another thing": Class(
        "unknown program-failed cuda-program-error loss-diverges",
        (">>> torch.xpu.is_available()\nTrue\nIntel(R) Arc(TM) A770 Graphics\nKeyError: 'labels'",),
        ("Mac mini M4\nUsing device: mps\nAssertionError: Torch not compiled with CUDA enabled",),
    ),
    "what failed after hours or steps of work": Class(
        "unknown",
        ("step 41200 loss 1.93\nRuntimeError: CUDA error: unknown error",),
        ("After an update the first call fails: RuntimeError: CUDA error: unknown error",),
    ),
    "a program that fails by itself": Class(
        "program-failed",
        (
            "ValueError: The checkpoint you are trying to load has model type `qwen3_moe` but Transformers does not recognize this architecture.",
        ),
        ("RuntimeError: CUDA error: invalid argument",),
    ),
    "a driver that is called too old, and serves the torch that is there": Class(
        "wrong-libcuda-loaded",
        (
            "Driver Version: 575.64.03   CUDA Version: 12.9\nPyTorch version: 2.6.0+cu124\nRuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        ),
        (
            "Driver Version: 470.256.02   CUDA Version: 11.4\nPyTorch version: 2.6.0+cu124\nRuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        ),
    ),
    "a kernel's assertion, whatever fails after it and elsewhere": Class(
        "cuda-program-error",
        (
            "On a CPU-only machine it fails too\nLoss.cu:250: nll_loss: block: [0,0,0], thread: [5,0,0] **Assertion `t >= 0 && t < n_classes` failed.**\nCUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\nI only have a CPU at home",
        ),
    ),
}
