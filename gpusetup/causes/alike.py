"""Commands that separate causes which share a message."""

from __future__ import annotations

from gpusetup.model.shell import lines

LIST_GPUS = "nvidia-smi -L"
TORCHS_CUDA = 'python -c "import torch; print(torch.__version__, torch.version.cuda)"'
(ON_THE_BUS,) = lines("lspci -nn | grep -iE 'vga|3d|display'")
TORCHS_KERNELS = (
    'python -c "import torch; print(torch.__version__, torch.cuda.get_arch_list(), '
    'torch.cuda.get_device_capability())"'
)
ASK_TORCH = (
    'python -c "import torch; print(torch.__version__, torch.version.cuda); torch.cuda.init()"'
)
"""It prints torch and its CUDA, and ends with torch's own reason where that finds no GPU."""
TORCH_SEES = 'python -c "import torch; torch.cuda.init(); print(torch.cuda.get_device_name())"'
"""It names the GPU, or ends with torch's own reason."""
THIS_TORCH = (
    'python -c "import sys, torch; print(sys.executable, torch.__version__, '
    'torch.cuda.get_arch_list())"'
)
"""Run by the Python of the program that failed: it names that Python too."""
BESIDE_TORCH = "nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv"
BOTH_VERSIONS = (
    'python -c "import torch; from importlib.metadata import version; '
    "print(torch.__file__, torch.__version__, version('torchvision'))\""
)
"""torch and its torchvision, read by the Python that fails, without importing the latter."""
WHICH_ROCM = (
    'python -c "import sys, torch; print(sys.executable, torch.__version__, torch.version.hip, '
    'torch.cuda.is_available())"'
)
"""`None` for hip: the torch of this Python is no ROCm build."""
AMD_TARGETS = "rocminfo | grep -iE 'gfx|marketing'; env | grep -E 'HSA_|HIP_|ROCR_'"
"""Every AMD GPU with its target, the processor's graphics too, and the variables that choose."""
KERNEL_LOG = "sudo dmesg | grep -iE 'nvrm|xid|uvm'"
COLLECT_ENV = "python -m torch.utils.collect_env"
ON_THE_HOST = "nvidia-smi  # on the host"
LIBCUDA_IN_IT = "ldconfig -p | grep libcuda  # in the container"
NODES = "ls -l /dev/nvidia*"
HOST_MEMORY = "sudo dmesg | grep -iE 'killed process|out of memory'"
RUN_AGAIN = "# then the same run again, and its output"
BLOCKING_RUN = f"export CUDA_LAUNCH_BLOCKING=1  {RUN_AGAIN}"
"""The traceback names the call that failed, and so the package."""
WHICH_LIBCUDA = "ldconfig -p | grep libcuda"
DOCKER_CONTEXT = "docker context ls"
WHICH_TORCH = (
    'python -c "import sys, torch; print(sys.executable, torch.__version__, torch.__file__)"'
)
WHICH_LIBC = 'python -c "import platform, sys; print(sys.executable, platform.libc_ver())"'
NCCL_LOG = f"export NCCL_DEBUG=INFO  {RUN_AGAIN}"
PROGRAMS_LOG = "ollama ps; journalctl -u ollama --no-pager | tail -n 200"
"""Which processor ollama's model runs on, and why its server chose that."""
OLLAMA_IN_DOCKER = (
    "docker logs NAME 2>&1 | tail -n 200; docker exec NAME ls -ln /dev/kfd /dev/dri"
    "  # NAME: the container's"
)
"""The server's log, and which groups own the device nodes as the container sees them."""
WHILE_IT_RUNS = "nvidia-smi  # while the program runs: does its list name the program?"
MEMORY_OVER_TIME = (
    "nvidia-smi --query-gpu=timestamp,memory.used --format=csv -l 60  "
    "# while it runs, and `free -m`: which of the two grows?"
)
"""The GPU's memory grows by tensors that the program keeps, the host's by its data and workers."""
STACK = "py-spy dump --pid PID  # while it hangs (`pip install py-spy`): where each thread waits"
FAULTS = f"export PYTHONFAULTHANDLER=1  {RUN_AGAIN}"
"""A program that ends without a word prints where it was (Python's faulthandler)."""
LAST_BOOT = "sudo journalctl -k -b -1 -n 100"
"""The kernel's last words before a machine went off: an Xid, a machine check, or nothing (power)."""
GPU_BY_DOCKER = "docker run --rm --gpus all ubuntu nvidia-smi -L"
"""Whether docker gives a GPU at all, whatever the program and its compose file do."""
TORCHS_DEVICES = (
    'python -c "import os, torch; '
    "print(torch.cuda.device_count(), os.environ.get('CUDA_VISIBLE_DEVICES'))\""
)
"""How many GPUs the program is shown, and whether the variable hides others."""
MONITOR = "gpusetup monitor"
"""Whether the GPU is idle, throttled or waits for data while a slow program runs."""
TORCHS_MPS = 'python -c "import torch; print(torch.__version__, torch.backends.mps.is_available())"'
MPS_FALLBACK = f"export PYTORCH_ENABLE_MPS_FALLBACK=1  {RUN_AGAIN}"
"""Whether an operation that mps lacks is at fault: with it, that one runs on the CPU."""
TORCHS_XPU = (
    'python -c "import sys, torch; '
    'print(sys.executable, torch.__version__, torch.xpu.is_available())"'
)
BITS = "python -c \"import struct, sys; print(sys.version, 8 * struct.calcsize('P'))\""

# --- what differs between a run that works and one that fails -------------------------------------

BOTH_SHELLS = "env | sort  # where it works, then where it fails: which variables differ?"
BOTH_RELEASES = (
    "python -m pip freeze  # with the release that works, then with the other: what else changed?"
)
BOTH_MACHINES = "python -m torch.utils.collect_env  # on both machines: what differs?"
WHICH_STACK = (
    "uname -r; (dpkg -l || rpm -qa || pacman -Q) 2>/dev/null "
    "| grep -iE 'linux-firmware|rocm|hsa|amdgpu|level-zero|compute-runtime|nvidia'"
)
"""The kernel, the firmware and the driver's packages: a fault that came with an update is in one."""
KERNEL_OF_MAKER = "sudo dmesg | grep -iE 'amdgpu|kfd|xe |i915' | tail -n 40  # after the failure"
RIGHTS = "id; ls -l /dev/kfd /dev/dri"
TOPOLOGY = "nvidia-smi topo -m; nvidia-smi topo -p2p r"
"""How the GPUs are connected, and between which of them peer access is."""
WHAT_LOADS = (
    'python -c "import os, torch; print(torch.__file__, torch.version.cuda, '
    "{k: v for k, v in os.environ.items() if 'CUDA' in k or 'PYTHON' in k}, "
    "torch.zeros(1, device='cuda'))\""
)
"""From where torch is loaded, and the variables that change what it runs."""
INTEL_RUNTIME = (
    "python -m pip list | grep -iE 'torch|intel|dpcpp|sycl|oneapi'; "
    "env | grep -iE 'oneapi|sycl|LD_LIBRARY_PATH'"
)
"""Which oneAPI runtime torch's build brings, and which one the shell puts in front of it."""
INTERFACES = "ip -brief addr"
ONE_GPU_OF_AMD = f"export HIP_VISIBLE_DEVICES=0  {RUN_AGAIN}"
"""Whether it fails on the card too, or only on the processor's own graphics."""
ROCM_BLOCKING = f"export AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1  {RUN_AGAIN}"
"""HIP then waits for each kernel, so the traceback names the call that failed."""
CPU_FLAGS = (
    "grep -m1 'model name' /proc/cpuinfo; grep -m1 -o -w avx2 /proc/cpuinfo || echo 'no avx2'"
)
"""Whether the processor knows the instructions that torch's wheels use."""
IMPORT_FAULT = 'python -X faulthandler -c "import torch"'
"""Where an import ends that prints nothing; torch's own tools import torch too."""
ROCM_STARTS = (
    'python -X faulthandler -c "import torch; print(torch.__version__, torch.version.hip); '
    'torch.cuda.init()"'
)
IN_THE_JOB = (
    "echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L; scontrol show job $SLURM_JOB_ID | grep TRES"
)
"""In the job: whether the scheduler gave it a GPU, and whether something hides it."""

SETTLES: dict[str, tuple[str, ...]] = {
    LIST_GPUS: ("gpus",),
    ON_THE_BUS: ("gpus", "driver", "bus"),
    ON_THE_HOST: ("gpus", "driver", "bus", "build"),
    TORCHS_KERNELS: ("kernels",),
    ASK_TORCH: ("torch",),
    BESIDE_TORCH: ("gpus", "program"),
    NODES: (),
    "gpusetup monitor": (),
    "conda list torch": (),
    "findmnt -O noexec": ("executable stack",),
}
"""What a text may show that decides already. Of the others: `program`, that a program says it and
not a person alone, if it says why."""
