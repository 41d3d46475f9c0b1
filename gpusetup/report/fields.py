"""The names of the snapshot fields that a text can show, as readings and answers use them.

Each is a part of the snapshot and a field of it: `torch.version` is `Snapshot.torch.version`.
"""

from __future__ import annotations

OS_FAMILY = "os.family"
OS_NAME = "os.name"
OS_KERNEL = "os.kernel"
OS_MACHINE = "os.machine"
OS_LIBC = "os.libc"
OS_WSL = "os.wsl"
OS_JETSON = "os.jetson"
OS_SECURE_BOOT = "os.secure_boot"

PYTHON_VERSION = "python.version"
PYTHON_EXECUTABLE = "python.executable"
PYTHON_MANAGER = "python.manager"
PYTHON_BITS = "python.bits"

DRIVER_VERSION = "driver.version"
DRIVER_LIBRARY_VERSION = "driver.library_version"
DRIVER_CUDA = "driver.cuda"
DRIVER_PERSISTENCE = "driver.persistence"
DRIVER_OPEN_MODULE = "driver.open_module"
DRIVER_NVML_CODE = "driver.nvml_code"
DRIVER_NVML_MESSAGE = "driver.nvml_message"

CUDA_INIT_CODE = "cuda_api.init_code"
CUDA_INIT_NAME = "cuda_api.init_name"

TORCH_VERSION = "torch.version"
TORCH_INSTALLED = "torch.installed"
TORCH_INSTALLER = "torch.installer"
TORCH_LOCATION = "torch.location"
TORCH_BACKEND = "torch.backend"
TORCH_CUDA = "torch.cuda"
TORCH_HIP = "torch.hip"
TORCH_KERNELS = "torch.kernels"
TORCH_CUDA_AVAILABLE = "torch.cuda_available"
TORCH_IMPORT_ERROR = "torch.import_error"

TOOLKIT_NVCC = "toolkit.nvcc"

SHARED_MEMORY = "memory.shm_total_bytes"

CONTAINER_KIND = "container.kind"
CONTAINER_NVIDIA_REQUESTED = "container.nvidia_requested"

WANTED_TORCH = "wanted.torch"
WANTED_COMPANION = "wanted.companion"
WANTED_BACKEND = "wanted.backend"
WANTED_CUDA = "wanted.cuda"

# These two subjects of readings are not fields of the snapshot.
PLATFORM = "platform"
"""The platform string of Python (`platform.platform()`), which implies the system, kernel,
architecture and C library."""
SENTENCES = "report.sentences"
"""The numbers of the lines that a person wrote without quoting a program."""


def environment_variable(name: str) -> str:
    """The name of the field that holds an environment variable.

    >>> environment_variable("CUDA_HOME")
    'environment.CUDA_HOME'
    """
    return f"environment.{name}"
