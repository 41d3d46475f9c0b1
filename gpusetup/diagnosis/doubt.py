"""How sure a root is: what else a text leaves open, and the one reading that would decide it.

A row is a cause with what looks alike from where its message stands. It holds while the text shows
nothing of what would tell them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

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
    settled_by: tuple[Literal["gpus", "driver", "kernels", "python"], ...]
    """What the text may show that tells them apart already."""


DOUBTS: dict[str, Doubt] = {
    "no-kernel-image": Doubt(
        others=("arch-too-old-for-wheel", "arch-too-new-for-wheel", "extension-arch-mismatch"),
        next_reading=TORCHS_KERNELS,
        settled_by=("kernels",),
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
    }


def doubt_about(context: RuleContext, root: Finding | None) -> Doubt | None:
    """What a text leaves open of its root; None where it shows what decides."""
    if root is None or context.snapshot.origin != "report":
        return None
    row = DOUBTS.get(root.id)
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
