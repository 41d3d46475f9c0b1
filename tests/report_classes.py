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
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver"
NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
SMI_ONE = """\
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  N/A |
| 30%   36C    P8             20W /  450W |     413MiB /  24564MiB |      0%      Default |
"""

CLASSES: dict[str, Class] = {
    "a container that was started without its GPU": Class(
        "container-no-gpu",
        (
            f"$ docker run -it --rm -v $PWD:/src trainer:latest python train.py\n{NO_GPUS}",
            f"sudo docker run --privileged -ti img bash\nroot@4728a09607c1:/w# python x.py\n{NO_DRIVER}",
            f'docker run --ipc=host --shm-size 8g repo/app\nTraceback (most recent call last):\n  File "/opt/conda/lib/python3.8/site-packages/torch/cuda/__init__.py", line 214, in _lazy_init\n    torch._C._cuda_init()\n{NO_GPUS}',
        ),
        (
            f"docker run --gpus all -it img python train.py\n{NO_IMAGE}",
            f"docker run --gpus all -it img python train.py\n{NO_GPUS}",
        ),
    ),
    "a program that hides the GPU itself": Class(
        "cuda-visible-devices-hidden",
        (
            f'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "-1"\nimport torch\n>>> torch.cuda.init()\n{NO_GPUS}',
            f'$env:CUDA_VISIBLE_DEVICES = "-1"\n{NO_GPUS}',
        ),
        (
            f"CUDA_VISIBLE_DEVICES=0 python train.py\n{NO_IMAGE}",
            "os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        ),
    ),
    "nvidia-smi alone, whatever the driver": Class(
        "ok",
        (
            "==============NVSMI LOG==============\n\nDriver Version                      : 390.157\nCUDA Version                        : 9.1\n\nAttached GPUs                       : 1\nGPU 00000000:84:00.0\n    Performance State               : P8\n    Clocks Throttle Reasons\n        Idle                        : Active",
            "==============NVSMI LOG==============\n\nDriver Version                      : 440.33.01\nCUDA Version                        : 10.2\n\nAttached GPUs                       : 1\nGPU 00000000:84:00.0\n    Temperature\n        GPU Current Temp            : 37 C",
            SMI_ONE.replace("570.86.15", "418.87.01")
            .replace("12.8", "10.1")
            .replace("RTX 4090", "GTX 1080"),
        ),
        (
            SMI_ONE
            + "RuntimeError: The NVIDIA driver on your system is too old (found version 10010).",
            "==============NVSMI LOG==============\nDriver Version                      : 550.54.14\nCUDA Version                        : 12.4\nAttached GPUs                       : 1\nGPU 00000000:84:00.0\n    Clocks Event Reasons\n        HW Thermal Slowdown : Active",
        ),
    ),
    "a GPU whose name is followed by words": Class(
        "arch-too-old-for-wheel",
        (
            f"Tesla V100 gpu error issue\n{NO_IMAGE}\nTorch version: 2.11.0+cu128",
            f"GTX 1080 Ti card not working any more\n{NO_IMAGE}\n>>> torch.__version__\n'2.9.0+cu130'",
            f"Tesla P100 fails with the new release\nPyTorch version: 2.10.0+cu128\n{NO_IMAGE}",
        ),
        (
            f"RTX 4090 card not working any more\n{NO_IMAGE}\n>>> torch.__version__\n'2.9.0+cu130'",
            f"one node has V100 and one A100\n{NO_IMAGE}\nTorch version: 2.11.0+cu128",
        ),
    ),
    "a PCIe link that runs slower than it could": Class(
        "pcie-degraded",
        (
            "LnkCap: Port #0, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <16us\nLnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)",
            "LnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L0s L1\n\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x16 (ok)",
            "LnkCap: Port #0, Speed 16GT/s, Width x16\nLnkSta: Speed 16GT/s, Width x4 (downgraded)",
        ),
        (
            f"LnkCap: Port #0, Speed 16GT/s, Width x16\nLnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)\n{NO_IMAGE}",
            "LnkCap: Port #0, Speed 16GT/s, Width x16\nLnkSta: Speed 16GT/s (ok), Width x16 (ok)",
        ),
    ),
    "a stub of libcuda that was loaded": Class(
        "libcuda-stub",
        (
            "numba.cuda.cudadrv.driver.CudaAPIError: [34]\nFinding driver from candidates:\n        libcuda.so\nUsing loader <class 'ctypes.CDLL'>\n        Mapped libcuda.so paths:\n                /usr/local/cuda-12.2/targets/x86_64-linux/lib/stubs/libcuda.so",
            "Mapped libcuda.so paths:\n    /opt/cuda/lib64/stubs/libcuda.so\nCudaSupportError: Error at driver init: CUDA_ERROR_STUB_LIBRARY",
            "RuntimeError: CUDA error: CUDA driver is a stub library",
        ),
        (
            "Mapped libcuda.so paths:\n                /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\nnumba.cuda.cudadrv.driver.CudaAPIError: [100]",
        ),
    ),
    "a companion whose torch library is not here": Class(
        "torchaudio-mismatch",
        (
            "OSError: libtorch_hip.so: cannot open shared object file: No such file or directory\nFile ~/venv/lib/python3.8/site-packages/torchaudio/__init__.py:1, in <module>",
            '  File "/x/lib/python3.11/site-packages/torchaudio/_extension/__init__.py", line 67\nOSError: libtorch_cuda_cpp.so: cannot open shared object file: No such file or directory',
            '  File "/x/site-packages/torchaudio/_extension/utils.py", line 60, in _load_lib\nOSError: libtorch_cuda.so: cannot open shared object file: No such file or directory',
        ),
        (
            '  File "/x/site-packages/mmcv/ops/__init__.py", line 2\nImportError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory',
        ),
    ),
}
