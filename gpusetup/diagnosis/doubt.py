"""How sure a root is: what else a text leaves open, and the one reading that would decide it.

A row is a cause with what looks alike from where its message stands. It holds while the text shows
nothing of what would tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from gpusetup.evidence.context import events
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


def _is_cudas(context: RuleContext) -> bool:
    """A library of CUDA's; of bitsandbytes' own ones the package may have none for this CUDA."""
    named = [event.values.get("library", "") for event in events(context, "cuda-lib-missing")]
    asked_by = {event.values.get("module") for event in events(context, "cuda-lib-missing")}
    own = any(name.startswith("libbitsandbytes_") for name in named)
    return not own and not ("bitsandbytes" in asked_by and not any(named))


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
    return asked is not False or bool(events(context, "container-no-gpu", "no-devices-found"))


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
        next_reading="sudo dmesg | grep -iE 'nvrm|xid|uvm'",
        settled_by=(),
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
        next_reading="sudo dmesg | grep -iE 'xid|nvrm'",
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
    "nccl-error": Doubt(
        others=("nccl-p2p-failure", "nccl-shm-error"),
        next_reading="NCCL_DEBUG=INFO, set for the same run again",
        settled_by=(),
    ),
}


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
    row = DOUBTS.get(root.id)
    if row and row.unless(context):
        return None
    shown = _shown(context.snapshot)
    return row if row and not any(shown[name] for name in row.settled_by) else None


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
