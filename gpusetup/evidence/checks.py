"""Commands that a person can run to check a fact. Their output tells causes with the same message
apart, so records (`asks`, `check`) name them."""

from __future__ import annotations

from gpusetup.model.shell import lines

LIST_GPUS = "nvidia-smi -L"
CUDA_OF_TORCH = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
(PCI_GPUS,) = lines("lspci -nn | grep -iE 'vga|3d|display'")
TORCHS_KERNELS = (
    'python -c "import torch; print(torch.__version__, torch.cuda.get_arch_list(), '
    'torch.cuda.get_device_capability())"'
)
ASK_TORCH = (
    'python -c "import torch; print(torch.__version__, torch.version.cuda); torch.cuda.init()"'
)
TORCH_SEES = 'python -c "import torch; torch.cuda.init(); print(torch.cuda.get_device_name())"'
WHICH_TORCH = (
    'python -c "import sys, torch; print(sys.executable, torch.__version__, '
    'torch.cuda.get_arch_list())"'
)
GPU_AND_DRIVER = "nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv"
WHICH_ROCM = (
    'python -c "import sys, torch; print(sys.executable, torch.__version__, torch.version.hip, '
    'torch.cuda.is_available())"'
)
"""Prints `None` for hip if this Python's torch is not a ROCm build."""
AMD_TARGETS = "rocminfo | grep -iE 'gfx|marketing'; env | grep -E 'HSA_|HIP_|ROCR_'"
KERNEL_LOG = "sudo dmesg | grep -iE 'nvrm|xid|uvm'"
COLLECT_ENV = "python -m torch.utils.collect_env"
SMI_ON_HOST = "nvidia-smi  # on the host"
DEVICE_NODES = "ls -l /dev/nvidia*"
HOST_MEMORY = "sudo dmesg | grep -iE 'killed process|out of memory'"
RUN_AGAIN = "# then repeat the run and read its output"
BLOCKING_RUN = f"export CUDA_LAUNCH_BLOCKING=1  {RUN_AGAIN}"
WHICH_LIBCUDA = "/sbin/ldconfig -p | grep libcuda"
NCCL_LOG = f"export NCCL_DEBUG=INFO  {RUN_AGAIN}"
SMI_DURING_RUN = "nvidia-smi  # while the program runs: does its list contain the program?"
STACKS = "py-spy dump --pid PID  # while it hangs (`pip install py-spy`): where each thread waits"
DATA_LOADER = (
    "top -b -n 1 | head -n 20; py-spy dump --pid PID  # during training, with the "
    "PID of a DataLoader worker: is the worker reading, decoding or waiting?"
)
FAULT_HANDLER = f"export PYTHONFAULTHANDLER=1  {RUN_AGAIN}"
LAST_BOOT = "sudo journalctl -k -b -1 -n 100"
"""Shows the last kernel messages before a machine switched off: an Xid, a machine check, or nothing
if the power failed."""
GPU_BY_DOCKER = "docker run --rm --gpus all ubuntu nvidia-smi -L"
"""Shows whether docker can give a container a GPU at all, whatever the compose file says."""
TORCHS_MPS = 'python -c "import torch; print(torch.__version__, torch.backends.mps.is_available())"'
TORCHS_XPU = (
    'python -c "import sys, torch; '
    'print(sys.executable, torch.__version__, torch.xpu.is_available())"'
)
XPU_SEES = "sycl-ls; env | grep -E 'ZE_|ONEAPI_|SYCL_|LD_LIBRARY_PATH'; ls -ln /dev/dri; id -Gn"
"""Shows whether Level Zero lists the GPU (`level_zero:gpu`), which variables select or hide it, and
whether this user may open its node."""
PYTHON_BITS = "python -c \"import struct, sys; print(sys.version, 8 * struct.calcsize('P'))\""

TOPOLOGY = "nvidia-smi topo -m; nvidia-smi topo -p2p r"
