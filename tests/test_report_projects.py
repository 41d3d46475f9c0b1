"""What projects on top of torch print of themselves and of their compiled parts."""

from __future__ import annotations

import pytest
from each_row import each
from report_asked import misses

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.report.read import read_report

SILENT = (
    "WARNING: Attempted to use ninja as the BuildExtension backend but we could not find ninja.. "
    "Falling back to using the slow distutils backend.",
    "cannot import name '_C' from 'torch' was what I feared, and it did not come",
    "sparse_attn requires a torch version >= 1.5 and < 2.0",
    "c++ (Ubuntu 9.4.0-1ubuntu1~20.04.1) 9.4.0",
    "the wheel needs an nvidia driver version 555.42.02+",
)


@pytest.mark.parametrize("said", SILENT, ids=lambda said: said[:30])
def test_a_remark_shows_no_cause_and_no_version(said: str) -> None:
    machine = read_report(said)
    assert diagnose(machine, load_catalog()).cause == "unknown"
    assert (machine.torch.version, machine.driver.version) == (None, None)
    assert machine.os.name in (None, "Ubuntu")


CUDNN = "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file: No such file or directory"


SMI_PROCESSES = """
| NVIDIA-SMI 551.23                 Driver Version: 551.23         CUDA Version: 12.4     |
|   0  NVIDIA GeForce RTX 3060      WDDM  | 00000000:01:00.0  On |                  N/A |
|    0   N/A  N/A      1752    C+G   Insufficient Permissions        N/A      |
|    0                 2424      C   Insufficient Permissions                  |
"""


NO_SMI = 'error: exec: "nvidia-smi": executable file not found in $PATH: unknown.'


HOST_LISTS = """
user@host:~$ nvidia-smi -L
GPU 0: NVIDIA A10 (UUID: GPU-11111111-2222-3333-4444-555555555555)
user@host:~$ docker run --rm --gpus all my/image nvidia-smi
No devices were found
"""


CL_WARNS = "UserWarning: Error checking compiler version for cl: [WinError 2] not found\n"


STARTS = (
    (
        "==((====))==  Unsloth 2025.3.9\n   \\\\   /|    NVIDIA GeForce GTX 1080. Num GPUs = 1. Max memory: "
        "8.0 GB. Platform: Linux.\nO^O/ \\_/ \\    Torch: 2.5.1+cu124. CUDA: 6.1. CUDA Toolkit: 12.4.",
        "GTX 1080",
        "2.5.1+cu124",
    ),
    (
        "- **PyTorch Version:** 2.6.0+cu126\n- **Name:** cuda:0 NVIDIA GeForce RTX 3090 : "
        "cudaMallocAsync\n  - **Type:** cuda",
        "RTX 3090",
        "2.6.0+cu126",
    ),
    (
        "2026-01-02 03:04:05,678 | sd | INFO | installer | Torch 2.0.1+cu118\n"
        "2026-01-02 03:04:05,679 | sd | INFO | installer | Torch detected GPU: NVIDIA GeForce RTX "
        "3060 VRAM 12288 Arch (8, 6) Cores 28",
        "RTX 3060",
        "2.0.1+cu118",
    ),
    (
        "torch         : 1.0.0\nnvidia driver : 410.104\ntorch cuda    : 9.0.176 / is available\n"
        "=== Hardware ===\ntorch devices : 1\n  - gpu0      : 11177MB | GeForce GTX 1080 Ti\n\n"
        "=== Environment ===",
        "GTX 1080 Ti",
        "1.0.0",
    ),
)


@pytest.mark.parametrize(("said", "gpu", "torch"), STARTS, ids=lambda value: value[:20])
def test_a_program_that_names_its_gpu_as_it_starts_sees_it(said: str, gpu: str, torch: str) -> None:
    machine = read_report(said)
    assert gpu in (machine.gpus or ())[0].name
    assert (machine.torch.version, machine.torch.cuda_available) == (torch, True)
    assert diagnose(machine, load_catalog()).cause == "ok"


ONLY_WHEELS = "can't be installed because it doesn't have a source distribution or wheel for the current platform"
UV = "error: Distribution `{} @ registry+https://download.pytorch.org/whl/cu126` " + ONLY_WHEELS

UNKNOWN = "RuntimeError: CUDA error: unknown error"
LACKS = "OSError: libcudart.so.10.2: cannot open shared object file: No such file or directory"
ARCHES = "in _get_cuda_arch_flags\nIndexError: list index out of range\n"
FLASH = "RuntimeError: FlashAttention only supports Ampere GPUs or newer."
REFUSED = "AssertionError: The NVIDIA driver on your system is too old (found version {})."
TABLE = (
    "| NVIDIA-SMI 525.60.13    Driver Version: 525.60.13    CUDA Version: 12.0     |\n"
    "|   0  GRID A100-40C       On   | 00000000:02:01.0 Off |                    0 |\n"
)
KERNEL = (
    "- Platform: Linux-{}-x86_64-with-glibc2.31\n- PyTorch version (GPU?): 1.12.1+cu116 (False)"
)
IMAGE = "PyTorch version: {}\nGPU: NVIDIA RTX A6000\nRuntimeError: CUDA error: no kernel image is available"
CAFFE = (
    "ImportError: {}_cuda.cpython-36m-x86_64-linux-gnu.so: undefined symbol: _ZN6caffe28TypeMetaE"
)
PACKAGES = "/srv/lib/python3.6/site-packages"
SPCONV = "ModuleNotFoundError: No module named 'spconv.core_cc'\n"
NO_GPUS = "RuntimeError: No CUDA GPUs are available"
UNSEEN = "torch.cuda.is_available() False; "
MEMORY = (
    "CUDA out of memory. Tried to allocate 18.00 MiB. GPU 0 has a total {} of 44.50 GiB of which "
    "15.25 MiB is free."
)


@each(
    "text, has, never",
    [
        (f"GPU available: True\n{UNKNOWN}", "cuda-unknown-error|after CUDA had started", ""),
        (UNKNOWN, "cuda-unknown-error|does not start", ""),
        ("Using GPU NVIDIA GeForce RTX 5090\ntorch version: 2.5.1+cu124",
         "arch-too-new-for-wheel", ""),
        (f"INFO:faster_whisper: go\n{CUDNN}", "ctranslate2", ""),
        (CUDNN, "", "gpusetup install"),
        (f"torch version: 2.1.2+cu121\n{CUDNN}", "torch==2.1.2", ""),
        (f"torch version: 1.11.0+cu113\n{LACKS}", "install its build for torch's CUDA", ""),
        (f"torch version: 1.11.0+cu102\n{LACKS}", "gpusetup install", ""),
        ("ImportError: /home/me/.cache/torch_extensions/py310_cu121/ops/ops.so: undefined symbol: _Z1aN2at6TensorE",
         "\nrm -rf ~/.cache/torch_extensions\n", "pip install"),
        ("ImportError: /srv/detectron2/_C.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC1E",
         "\ndetectron2 was built for another torch", ""),
        ("ImportError: libc10_cuda.so: cannot open shared object file: No such file or directory",
         "the installed torch is a CPU build", ""),
        ("ImportError: libtorch_cuda_cpp.so: cannot open shared object file: No such file",
         "was built for another torch", ""),
        (ARCHES, "get_device_capability", ""),
        (f"{ARCHES}GPU 0: NVIDIA A40", "TORCH_CUDA_ARCH_LIST=8.6", ""),
        (f"{FLASH}\nGPU 0: Tesla T4", "the GPU that ran it is older|flash-attn<2", ""),
        (f"{FLASH}\nGPU 0: NVIDIA A40", "the GPU that ran it is older", ""),
        (SMI_PROCESSES, "\n", "device-permission"),
        ("Failed to initialize NVML: Insufficient Permissions", "device-permission", ""),
        (REFUSED.format(10010), "\n440.33\n", ""),
        (REFUSED.format(9020), "\n410.48\n", ""),
        (REFUSED.format(11040), "\n525.60.13\n", ""),
        (REFUSED.format(12020), "\n580.65.06\n", ""),
        ("ERROR: This container was built for NVIDIA Driver Release 575.51 or later, but\n"
         "       version 570.133.20 was detected and compatibility mode is UNAVAILABLE.",
         "driver 575.51|found driver 570.133.20", ""),
        (f"$ docker run --rm my/image nvidia-smi\n{NO_SMI}",
         "container-no-gpu|started without a GPU", ""),
        (HOST_LISTS, "its host lists NVIDIA A10\n", ""),
        (HOST_LISTS.replace("docker run --rm --gpus all my/image ", ""), "\n", "container-no-gpu"),
        (f"{CL_WARNS}error: command 'cl' failed: None", "compiler-missing", ""),
        (CL_WARNS, "unknown", ""),
        ("Unsloth: No NVIDIA GPU found? Unsloth currently only supports GPUs!",
         "torch-sees-no-gpu", ""),
        ("No NVIDIA GPU found on this system", "no-nvidia-gpu", ""),
        (f"{UNSEEN}it uses AMD GPU", "\n", "amd-gpu"),
        (f"{UNSEEN}I have an AMD GPU", "amd-gpu", ""),
        (TABLE, "\nok\n", ""),
        (f"RuntimeError: CUDA error: operation not supported\n{TABLE}", "\nunknown\n", ""),
        (KERNEL.format("4.4.0-19041-Microsoft"), "\nThis is WSL 1, which has no GPU\n", ""),
        (KERNEL.format("5.15.90.1-microsoft-standard-WSL2"), "\n", "WSL 1"),
        (IMAGE.format("1.12.1"), "no-kernel-image", ""),
        (IMAGE.format("1.12.1+cu116"), "extension-arch-mismatch", ""),
        (IMAGE.format("2.5.1"), "extension-arch-mismatch", ""),
        (CAFFE.format("/srv/pcdet/ops/nms"), "--no-cache-dir -e .", ""),
        (CAFFE.format(f"{PACKAGES}/causal_conv1d"), "--no-binary causal-conv1d", ""),
        (CAFFE.format(f"{PACKAGES}/nms"), "\n", "pip install"),
        (f"{SPCONV}torch version: 2.1.2+cu118", "spconv-cu118", ""),
        (f"{SPCONV}torch version: 2.1.2+cu121", "spconv-cu120", ""),
        (SPCONV, "torch.version.cuda", ""),
        (UV.format("torchaudio==2.6.0+cpu"), "\ntorchaudio==2.6.0+cpu", ""),
        (UV.format("markupsafe==3.0.2"),
         "package-not-found|\nThe installer finds no file of markupsafe==3.0.2", ""),
        (f"{UV.format('markupsafe==3.0.2')}\n{UV.format('torch==2.5.1+cu126')}",
         "\ntorch==2.5.1+cu126", ""),
        (f">>> print(torch.cuda.is_available())\nTrue\n{NO_GPUS}", "sets CUDA_VISIBLE_DEVICES", ""),
        (NO_GPUS, "\ntorch.cuda.is_available() is False\n", ""),
        ("CUDA SETUP: Loading binary C:\\env\\bitsandbytes\\libbitsandbytes_cpu.so...\n"
         "[WinError 193] %1 is not a valid Win32 application", "\n", "windows-dll-missing"),
        ("OSError: [WinError 193] %1 is not valid. Error loading C:\\env\\torch\\lib\\shm.dll",
         "windows-dll-missing", ""),
        ("ImportError: DLL load failed while importing nvdiffrast_plugin: not found",
         "extension-not-built|$env:LOCALAPPDATA", ""),
        ("No module named 'bias_act_plugin'", "~/.cache/torch_extensions", ""),
        ("ImportError: DLL load failed while importing _C: not found", "windows-dll-missing", ""),
        (MEMORY.format("capacity"), "it has 44.5 GiB", ""),
        (MEMORY.format("capacty"), "it has 44.5 GiB", ""),
    ],
)  # fmt: skip
def test_what_is_told_of_the_cause(text: str, has: str, never: str) -> None:
    assert misses(text, has, never) == []
