"""How sure a root is: what else a text leaves open, and the one reading that would decide it.

A row is a cause with what looks alike from where its message stands. It holds while the text shows
nothing of what would tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from gpusetup.evidence.context import events, in_container, on
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import RECORDS
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import Frozen

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.machine import Snapshot

Certainty = Literal["certain", "likely"]

LIST_GPUS = "nvidia-smi -L"
ON_THE_BUS = "lspci -nn | grep -iE 'vga|3d|display'"
TORCHS_KERNELS = (
    'python -c "import torch; print(torch.__version__, torch.cuda.get_arch_list(), '
    'torch.cuda.get_device_capability())"'
)
KERNEL_LOG = "sudo dmesg | grep -iE 'nvrm|xid|uvm'"
BITS = "python -c \"import struct, sys; print(sys.version, 8 * struct.calcsize('P'))\""


class Doubt(Frozen):
    """A cause, what its message may mean as well, and the command whose answer decides."""

    others: tuple[str, ...]
    next_reading: str
    settled_by: tuple[Literal["gpus", "driver", "kernels", "python", "bus"], ...]
    """What the text may show that tells them apart already."""
    unless: Callable[[RuleContext], bool] = lambda _: False
    """Whether the message itself leaves nothing open."""


def _says_lost(context: RuleContext) -> bool:
    """An Xid or the driver's own words; NVML's unknown error alone may be another fault."""
    said = events(context, "gpu-fell-off-bus", "xid")
    return any(event.values.get("said") != "unknown error" for event in said)


def _nvml_gave_a_code(context: RuleContext) -> bool:
    """NVML's own answer is shown, and not only what a program logs of it."""
    return not events(context, "nvml-unknown-error")


def _is_cudas(context: RuleContext) -> bool:
    """A library of CUDA's; of bitsandbytes' own ones the package may have none for this CUDA."""
    named = [event.values.get("library", "") for event in events(context, "cuda-lib-missing")]
    asked_by = {event.values.get("module") for event in events(context, "cuda-lib-missing")}
    own = any(name.startswith("libbitsandbytes_") for name in named)
    return not own and not ("bitsandbytes" in asked_by and not any(named))


def _leaves_no_driver_open(context: RuleContext) -> bool:
    """TensorFlow's "Could not find cuda drivers" is said of libcudart, with a driver or without."""
    said = events(context, "program-lib-missing")
    return not said or any("or_else" not in event.values for event in said)


def _raised_by_an_extension(context: RuleContext) -> bool:
    """A frame of it raised the error, or its own list of architectures lacks the GPU."""
    raised = events(context, "no-kernel-image", "extension-arch")
    return any(event.values.get("module") for event in raised)


def _saw_no_gpu(context: RuleContext) -> bool:
    """Whether no program of the text had the GPU that a variable is said to hide."""
    return not context.snapshot.torch.cuda_available


def _is_told(context: RuleContext) -> bool:
    """Whether something in the container says it, and not its command line alone."""
    asked = context.snapshot.container.nvidia_requested
    if events(context, "container-no-gpu", "no-devices-found"):
        return _says_so(context)
    return asked is not False


def _says_so(context: RuleContext) -> bool:
    """Something in the container says it: that nvidia-smi is not in an image says little, and an
    empty libcuda may lie on a host as well."""
    told = events(context, "container-no-gpu", "no-devices-found")
    inside = in_container(context)
    return any(
        event.values.get("lacks") != "nvidia-smi" and (inside or "library" not in event.values)
        for event in told
    )


def _kernel_says_it(context: RuleContext) -> bool:
    return bool(events(context, "gpu-init-failed"))


def _driver_says_it(context: RuleContext) -> bool:
    said = events(context, "gpu-not-supported-by-driver")
    return any(not event.values.get("said") for event in said)


def _is_a_notebooks(context: RuleContext) -> bool:
    return bool(events(context, "gpu-not-chosen"))


def _killed_for_it(context: RuleContext) -> bool:
    """Who ended the process named memory; a signal or a code alone may have another reason."""
    said = events(context, "host-out-of-memory")
    return any(set(event.values) & {"asked", "who", "who2"} for event in said) or any(
        word in (event.text or "").lower() for event in said for word in ("oom", "memory", "alloc")
    )


def _names_the_file(context: RuleContext) -> bool:
    """The file, or the package, that stands before torch's own."""
    said = events(context, "module-shadowed", "backport-in-the-way")
    named = {name for event in said for name in event.values}
    return bool(named & {"path", "package"})


def _has_packages(context: RuleContext) -> bool:
    return bool(context.snapshot.packages)


def _names_a_dll(context: RuleContext) -> bool:
    said = events(context, "windows-dll-missing")
    return any(event.values.get("dll") or event.values.get("module") for event in said)


def _is_tritons(context: RuleContext) -> bool:
    """Triton or Inductor says it; that no `gcc` is found any build says."""
    said = events(context, "triton-no-compiler")
    return any(not event.values.get("compiler") for event in said)


def _cuda_failed(context: RuleContext) -> bool:
    """A program of the text came to no GPU, and not only a setting is shown."""
    said = events(context, "no-nvidia-driver", "cuda-unavailable", "cuda-version-err")
    return bool(said or context.snapshot.cuda_api.init_code)


def _refused(context: RuleContext) -> bool:
    """CUDA's own code for a fabric that is not ready."""
    return context.snapshot.cuda_api.init_code == 802


DOUBTS: dict[str, Doubt] = {
    "no-kernel-image": Doubt(
        others=("arch-too-old-for-wheel", "arch-too-new-for-wheel", "extension-arch-mismatch"),
        next_reading=TORCHS_KERNELS,
        settled_by=("kernels",),
    ),
    "extension-arch-mismatch": Doubt(
        others=("arch-too-old-for-wheel", "arch-too-new-for-wheel"),
        next_reading=TORCHS_KERNELS,
        settled_by=("gpus", "kernels"),
        unless=_raised_by_an_extension,
    ),
    "cuda-init-failed": Doubt(
        others=("cuda-unknown-error", "uvm-missing", "gpu-init-failed"),
        next_reading=KERNEL_LOG,
        settled_by=(),
    ),
    "nvml-init-failed": Doubt(
        others=("container-nvml-lost", "uvm-missing", "cuda-unknown-error"),
        next_reading="nvidia-smi -L; ls -l /dev/nvidia*",
        settled_by=(),
        unless=_nvml_gave_a_code,
    ),
    "kernel-image-invalid": Doubt(
        others=("driver-too-old", "extension-arch-mismatch"),
        next_reading=f"nvidia-smi; {TORCHS_KERNELS}",
        settled_by=(),
    ),
    "library-not-mapped": Doubt(
        others=("host-out-of-memory",),
        next_reading="findmnt -O noexec; ulimit -v; free -g",
        settled_by=(),
    ),
    "torch-sees-no-gpu": Doubt(
        others=("cuda-visible-devices-hidden", "container-no-gpu", "driver-not-loaded"),
        next_reading=LIST_GPUS,
        settled_by=("gpus",),
    ),
    "cuda-sees-no-device": Doubt(
        others=("cuda-visible-devices-hidden", "container-no-gpu", "no-nvidia-gpu"),
        next_reading=LIST_GPUS,
        settled_by=("gpus",),
    ),
    "cuda-visible-devices-hidden": Doubt(
        others=("torch-sees-no-gpu", "invalid-device-ordinal"),
        next_reading=LIST_GPUS,
        settled_by=(),
        unless=_saw_no_gpu,
    ),
    "container-no-gpu": Doubt(
        others=("driver-missing", "container-toolkit-missing"),
        next_reading="nvidia-smi, on the host",
        settled_by=("gpus", "driver", "bus"),
        unless=_is_told,
    ),
    "gpu-fell-off-bus": Doubt(
        others=("hardware-fault", "gpu-does-not-answer"),
        next_reading=KERNEL_LOG,
        settled_by=(),
        unless=_says_lost,
    ),
    "cuda-lib-missing": Doubt(
        others=("extension-not-built", "program-release-too-old"),
        next_reading="python -m bitsandbytes",
        settled_by=(),
        unless=_is_cudas,
    ),
    "driver-missing": Doubt(
        others=("no-nvidia-gpu", "container-no-gpu"),
        next_reading=ON_THE_BUS,
        settled_by=("gpus", "driver"),
    ),
    "torch-cpu-build": Doubt(
        others=("no-nvidia-gpu",), next_reading=LIST_GPUS, settled_by=("gpus", "driver")
    ),
    "cuda-unknown-error": Doubt(
        others=("uvm-missing", "driver-not-loaded"),
        next_reading="ls -l /dev/nvidia*",
        settled_by=(),
    ),
    "invalid-device-ordinal": Doubt(
        others=("mig-misconfigured", "cuda-visible-devices-hidden"),
        next_reading=LIST_GPUS,
        settled_by=("gpus",),
    ),
    "wrong-index": Doubt(
        others=("python-no-wheel", "python-32bit"), next_reading=BITS, settled_by=("python",)
    ),
    "no-nvidia-gpu": Doubt(
        others=("driver-missing", "container-no-gpu"),
        next_reading=ON_THE_BUS,
        settled_by=("gpus", "bus"),
        unless=_is_a_notebooks,
    ),
    "gpu-not-supported-by-driver": Doubt(
        others=("driver-not-loaded", "gpu-init-failed"),
        next_reading=KERNEL_LOG,
        settled_by=(),
        unless=_driver_says_it,
    ),
    "gpu-init-failed": Doubt(
        others=("gpu-fell-off-bus", "gpu-not-supported-by-driver", "device-permission"),
        next_reading=KERNEL_LOG,
        settled_by=(),
        unless=_kernel_says_it,
    ),
    "host-out-of-memory": Doubt(
        others=("dataloader-worker-killed",),
        next_reading="sudo dmesg | grep -iE 'killed process|out of memory'",
        settled_by=(),
        unless=_killed_for_it,
    ),
    "module-shadowed": Doubt(
        others=("torch-half-installed",),
        next_reading='python -c "import torch; print(torch.__file__, torch.__path__)"',
        settled_by=(),
        unless=_names_the_file,
    ),
    "mixed-conda-pip": Doubt(
        others=("ld-library-path-conflict", "torch-half-installed"),
        next_reading="pip list | grep -i torch; conda list torch; echo $LD_LIBRARY_PATH",
        settled_by=(),
        unless=_has_packages,
    ),
    "windows-dll-missing": Doubt(
        others=("cuda-lib-missing", "extension-abi-mismatch"),
        next_reading='python -c "import torch"',
        settled_by=(),
        unless=_names_a_dll,
    ),
    "triton-no-compiler": Doubt(
        others=("compiler-missing",),
        next_reading="gcc --version",
        settled_by=(),
        unless=_is_tritons,
    ),
    "container-driver-capability-missing": Doubt(
        others=("container-no-gpu",),
        next_reading="ldconfig -p | grep libcuda, in the container",
        settled_by=(),
        unless=_cuda_failed,
    ),
    "system-not-ready-fabric-manager": Doubt(
        others=("fabric-unhealthy",),
        next_reading="nvidia-smi -q | grep -A 3 Fabric",
        settled_by=(),
        unless=_refused,
    ),
    "nccl-timeout": Doubt(
        others=("nccl-no-socket-interface", "nccl-p2p-failure", "gpu-fell-off-bus"),
        next_reading="NCCL_DEBUG=INFO and TORCH_NCCL_TRACE_BUFFER_SIZE=2000, for the same run",
        settled_by=(),
    ),
    "nccl-error": Doubt(
        others=("nccl-p2p-failure", "nccl-shm-error"),
        next_reading="NCCL_DEBUG=INFO, set for the same run again",
        settled_by=(),
    ),
}

BY_ONE_MESSAGE: dict[str, Doubt] = {
    "cuda-lib-missing": Doubt(
        others=("driver-missing",),
        next_reading="nvidia-smi",
        settled_by=("gpus", "driver"),
        unless=_leaves_no_driver_open,
    ),
}
"""What one message leaves open of a cause whose other messages leave something else."""


def _shown(snapshot: Snapshot) -> dict[str, bool]:
    return {
        "gpus": bool(snapshot.gpus),
        "driver": bool(snapshot.driver.version),
        "kernels": bool(snapshot.torch.kernels),
        "python": bool(snapshot.python.version),
        "bus": bool(snapshot.pci_devices),
    }


def doubt_about(context: RuleContext, root: Finding | None) -> Doubt | None:
    """What a text leaves open of its root; None where it shows what decides."""
    if root is None or context.snapshot.origin != "report":
        return None
    shown = _shown(context.snapshot)
    rows = (table.get(root.id) for table in (DOUBTS, BY_ONE_MESSAGE))
    open_ = (row for row in rows if row and not any(shown[name] for name in row.settled_by))
    return next((row for row in open_ if not row.unless(context)), None)


ON_WINDOWS = {
    ON_THE_BUS: "Get-CimInstance Win32_VideoController | Format-List Name, DriverVersion",
    "ls -l /dev/nvidia*": LIST_GPUS,
    KERNEL_LOG: "Get-WinEvent -FilterHashtable @{LogName='System'; ProviderName='nvlddmkm'}",
    "gcc --version": "where.exe cl gcc clang",
}
ON_MACS = {ON_THE_BUS: "system_profiler SPDisplaysDataType"}
"""What a reading is called where its Linux command is none."""

BESIDE_TORCH = "nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv"


def reading_here(context: RuleContext, doubt: Doubt | None) -> str | None:
    """The command that decides, as this system and this program have it."""
    if doubt is None:
        return None
    reading = doubt.next_reading
    if reading == TORCHS_KERNELS and is_beside_torch(context):
        return BESIDE_TORCH
    named = ON_WINDOWS if on(context, "windows") else ON_MACS if on(context, "macos") else {}
    return named.get(reading, reading)


def other_causes(
    root: Finding | None, findings: tuple[Finding, ...], doubt: Doubt | None
) -> tuple[str, ...]:
    """The unexplained errors beside the root in their order, then what its message leaves open."""
    if root is None:
        return ()
    beside = [f for f in findings if f is not root and f.severity is Severity.ERROR]
    unexplained = sorted(
        (f.id for f in beside if f.explained_by is None), key=lambda id: RECORDS[id].order
    )
    left_open = doubt.others if doubt else ()
    return tuple(dict.fromkeys((*unexplained, *left_open)))


def certainty_of(root: Finding | None, others: tuple[str, ...]) -> Certainty | None:
    """Certain where nothing else is left; None without a root."""
    if root is None:
        return None
    return "likely" if others else "certain"
