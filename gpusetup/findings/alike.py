"""What a message leaves open: the commands that decide, and what a message says beyond its kind."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, events, in_container
from gpusetup.messages.parallel import FEW_PORTS_OPEN
from gpusetup.model.shell import lines

LIST_GPUS = "nvidia-smi -L"
(ON_THE_BUS,) = lines("lspci -nn | grep -iE 'vga|3d|display'")
TORCHS_KERNELS = (
    'python -c "import torch; print(torch.__version__, torch.cuda.get_arch_list(), '
    'torch.cuda.get_device_capability())"'
)
ASK_TORCH = (
    'python -c "import torch; print(torch.__version__, torch.version.cuda); torch.cuda.init()"'
)
"""It prints torch and its CUDA, and ends with torch's own reason where that finds no GPU."""
BESIDE_TORCH = "nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv"
KERNEL_LOG = "sudo dmesg | grep -iE 'nvrm|xid|uvm'"
COLLECT_ENV = "python -m torch.utils.collect_env"
ON_THE_HOST = "nvidia-smi  # on the host"
LIBCUDA_IN_IT = "ldconfig -p | grep libcuda  # in the container"
NODES = "ls -l /dev/nvidia*"
HOST_MEMORY = "sudo dmesg | grep -iE 'killed process|out of memory'"
RUN_AGAIN = "# then the same run again, and its output"
NCCL_LOG = f"export NCCL_DEBUG=INFO  {RUN_AGAIN}"
BITS = "python -c \"import struct, sys; print(sys.version, 8 * struct.calcsize('P'))\""


def says_lost(context: RuleContext) -> bool:
    """An Xid or the driver's own words; NVML's unknown error alone may be another fault."""
    said = events(context, "gpu-fell-off-bus", "xid")
    return any(event.values.get("said") != "unknown error" for event in said)


def is_cudas(context: RuleContext) -> bool:
    """A library of CUDA's; of bitsandbytes' own ones the package may have none for this CUDA."""
    named = [event.values.get("library", "") for event in events(context, "cuda-lib-missing")]
    asked_by = {event.values.get("module") for event in events(context, "cuda-lib-missing")}
    own = any(name.startswith("libbitsandbytes_") for name in named)
    return not own and not ("bitsandbytes" in asked_by and not any(named))


def leaves_no_driver_open(context: RuleContext) -> bool:
    """TensorFlow's "Could not find cuda drivers" is said of libcudart, with a driver or without."""
    said = events(context, "program-lib-missing")
    return not said or any("or_else" not in event.values for event in said)


def raised_by_an_extension(context: RuleContext) -> bool:
    """A frame of it raised the error, or its own list of architectures lacks the GPU."""
    raised = events(context, "no-kernel-image", "extension-arch")
    return any(event.values.get("module") for event in raised)


def memory_is_said(context: RuleContext) -> bool:
    """Whether memory is spoken of: torch opens the driver's libraries by their names when it
    reports that memory ran out, and a text may show only that this failed."""
    return any("how" not in event.values for event in events(context, "out-of-memory"))


def shows_its_cuda(context: RuleContext) -> bool:
    """Whether a text shows the CUDA of its torch: a CPU build is then ruled out, or found."""
    torch = context.snapshot.torch
    return torch.version is not None or torch.cuda is not None or in_container(context)


def p2p_is_said(context: RuleContext) -> bool:
    return not events(context, "nccl-hangs")


def interface_is_said(context: RuleContext) -> bool:
    """NCCL or its sockets name what they cannot use or reach, and not somebody's own words."""
    said = events(context, "nccl-connect-failed")
    named = bool(events(context, "nccl-no-socket-interface"))
    return named or any(event.values.get("how") != FEW_PORTS_OPEN for event in said)


def is_the_systems(context: RuleContext) -> bool:
    """NCCL's own word for a call of the system that failed: a socket first of all."""
    names = [event.values.get("name", "") for event in events(context, "nccl-error")]
    return any(name in ("ncclSystemError", "unhandled system error") for name in names)


def saw_no_gpu(context: RuleContext) -> bool:
    """Whether no program of the text had the GPU that a variable is said to hide."""
    return not context.snapshot.torch.cuda_available


def is_told(context: RuleContext) -> bool:
    """Whether something in the container says it, and not its command line alone."""
    asked = context.snapshot.container.nvidia_requested
    if events(context, "container-no-gpu", "no-devices-found"):
        return says_so(context)
    return asked is not False


def host_matters_not(context: RuleContext) -> bool:
    """A step of an image's build has no GPU, whatever driver its host has; an empty libcuda is what
    a container has that was given none."""
    told = events(context, "container-no-gpu")
    return any(e.values.get("step") == "build" or "library" in e.values for e in told)


def says_so(context: RuleContext) -> bool:
    """Something in the container says it: that nvidia-smi is not in an image says little, and an
    empty libcuda may lie on a host as well."""
    told = events(context, "container-no-gpu", "no-devices-found")
    inside = in_container(context)
    return any(
        event.values.get("lacks") != "nvidia-smi" and (inside or "library" not in event.values)
        for event in told
    )


def kernel_says_it(context: RuleContext) -> bool:
    return bool(events(context, "gpu-init-failed"))


def driver_says_it(context: RuleContext) -> bool:
    said = events(context, "gpu-not-supported-by-driver")
    return any(not event.values.get("said") for event in said)


def is_a_notebooks(context: RuleContext) -> bool:
    return bool(events(context, "gpu-not-chosen"))


def killed_for_it(context: RuleContext) -> bool:
    """Who ended the process named memory; a signal or a code alone may have another reason."""
    said = events(context, "host-out-of-memory")
    return any(set(event.values) & {"asked", "who", "who2"} for event in said) or any(
        word in (event.text or "").lower() for event in said for word in ("oom", "memory", "alloc")
    )


def names_the_file(context: RuleContext) -> bool:
    """The file, or the package, that stands before torch's own."""
    said = events(context, "module-shadowed", "backport-in-the-way")
    named = {name for event in said for name in event.values}
    return bool(named & {"path", "package"})


def names_a_dll(context: RuleContext) -> bool:
    said = events(context, "windows-dll-missing")
    return any(event.values.get("dll") or event.values.get("module") for event in said)


def is_tritons(context: RuleContext) -> bool:
    """Triton or Inductor says it; that no `gcc` is found any build says."""
    said = events(context, "triton-no-compiler")
    return any(not event.values.get("compiler") for event in said)


def refused(context: RuleContext) -> bool:
    """CUDA's own code for a fabric that is not ready."""
    return context.snapshot.cuda_api.init_code == 802


def kernels_are_said(context: RuleContext) -> bool:
    """A program names the architectures, and not somebody who supposes so."""
    said = events(context, "gpu-not-in-wheel")
    return not said or any(event.values.get("said") != "in words" for event in said)


def installer_says_it(context: RuleContext) -> bool:
    """An installer, or a table of ours, says that no wheel is there, and not somebody alone."""
    said = events(context, "no-wheel-for-platform")
    return not said or any(event.values.get("said") != "in words" for event in said)


def nvml_says_it(context: RuleContext) -> bool:
    """NVML's answer in the container is shown, and not only somebody's word for its loss."""
    said = events(context, "container-nvml-lost")
    return not said or any(event.values.get("said") != "in words" for event in said)


def cuda_failed(context: RuleContext) -> bool:
    """A program of the text came to no GPU, and not only a setting is shown."""
    return bool(events(context, "no-nvidia-driver", "cuda-unavailable", "cuda-version-err"))
