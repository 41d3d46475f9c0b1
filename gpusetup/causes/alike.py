"""What a message leaves open: the commands that decide, and what a message says beyond its kind."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, events, in_container
from gpusetup.evidence.places import Question
from gpusetup.messages.boundary import FEW_PORTS_OPEN
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


def says(*kinds: str, of: str = "", but: str = "") -> Question:
    """Whether one of these events was said: with one of the values `of`, and with none of `but`."""

    def asked(context: RuleContext) -> bool:
        said = [event.values.keys() for event in events(context, *kinds)]
        return any(
            (not of or names & {*of.split()}) and not names & {*but.split()} for names in said
        )

    return asked


def never_in_words(*kinds: str) -> Question:
    """Whether no person alone says it: a program does, or nobody."""
    by_a_program = says(*kinds, but="said")
    return lambda context: by_a_program(context) or not events(context, *kinds)


says_lost = says("gpu-fell-off-bus", "xid", but="said")
raised_by_an_extension = says("no-kernel-image", "extension-arch", of="module")
memory_is_said = says("out-of-memory", but="how")
"""torch opens the driver's libraries by their names when it reports that memory ran out, and a text
may show only that this failed."""
kernel_says_it = says("gpu-init-failed")
driver_says_it = says("gpu-not-supported-by-driver", but="said")
is_a_notebooks = says("gpu-not-chosen")
names_the_file = says("module-shadowed", "backport-in-the-way", of="path package")
names_a_dll = says("windows-dll-missing", of="dll module")
is_tritons = says("triton-no-compiler", but="compiler")
kernels_are_said = never_in_words("gpu-not-in-wheel")
installer_says_it = never_in_words("no-wheel-for-platform")
nvml_says_it = never_in_words("container-nvml-lost")
cuda_failed = says("no-nvidia-driver", "cuda-unavailable", "cuda-version-err")
"""A program of the text came to no GPU, and not only a setting is shown."""


def is_cudas(context: RuleContext) -> bool:
    """A library of CUDA's; of bitsandbytes' own ones the package may have none for this CUDA."""
    said = [event.values for event in events(context, "cuda-lib-missing")]
    named = [values.get("library", "") for values in said]
    unnamed = any(values.get("module") == "bitsandbytes" for values in said) and not any(named)
    return not unnamed and not any(one.startswith("libbitsandbytes_") for one in named)


def leaves_no_driver_open(context: RuleContext) -> bool:
    """TensorFlow's "Could not find cuda drivers" is said of libcudart, with a driver or without."""
    said = events(context, "program-lib-missing")
    return not said or any("or_else" not in event.values for event in said)


def shows_its_cuda(context: RuleContext) -> bool:
    """Whether a text shows the CUDA of its torch: a CPU build is then ruled out, or found."""
    torch = context.snapshot.torch
    return bool(torch.version or torch.cuda or in_container(context))


def p2p_is_said(context: RuleContext) -> bool:
    return not events(context, "nccl-hangs")


def interface_is_said(context: RuleContext) -> bool:
    """NCCL or its sockets name what they cannot use or reach, and not somebody's own words."""
    said = events(context, "nccl-connect-failed", "nccl-no-socket-interface")
    return any(event.values.get("how") != FEW_PORTS_OPEN for event in said)


def is_the_systems(context: RuleContext) -> bool:
    """NCCL's own word for a call of the system that failed: a socket first of all."""
    names = {event.values.get("name") for event in events(context, "nccl-error")}
    return bool(names & {"ncclSystemError", "unhandled system error"})


def saw_no_gpu(context: RuleContext) -> bool:
    """Whether no program of the text had the GPU that a variable is said to hide."""
    return not context.snapshot.torch.cuda_available


def is_told(context: RuleContext) -> bool:
    """Something in the container says it, and not its command line alone: that nvidia-smi is not in
    an image says little, and an empty libcuda may lie on a host as well."""
    told = events(context, "container-no-gpu", "no-devices-found")
    if not told:
        return context.snapshot.container.nvidia_requested is not False
    but = "lacks" if in_container(context) else "lacks library"
    return says("container-no-gpu", "no-devices-found", but=but)(context)


def host_matters_not(context: RuleContext) -> bool:
    """A step of an image's build has no GPU, whatever driver its host has; an empty libcuda is what
    a container has that was given none."""
    return says("container-no-gpu", of="step library")(context)


def killed_for_it(context: RuleContext) -> bool:
    """Who ended the process named memory; a signal or a code alone may have another reason."""
    said = events(context, "host-out-of-memory")
    return says("host-out-of-memory", of="asked who who2")(context) or any(
        word in (event.text or "").lower() for event in said for word in ("oom", "memory", "alloc")
    )


def refused(context: RuleContext) -> bool:
    """CUDA's own code for a fabric that is not ready."""
    return context.snapshot.cuda_api.init_code == 802
