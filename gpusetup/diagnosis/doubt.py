"""How sure a root is: what else a text leaves open, and the one reading that would decide it.

A row is a cause with what looks alike from where its message stands. It holds while the text shows
nothing of what would tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from gpusetup.diagnosis import left_open
from gpusetup.evidence.context import answering, events, in_container, on
from gpusetup.findings.lenders import lender_of
from gpusetup.findings.record import RECORDS
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import lines
from gpusetup.model.versions import parsed

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.machine import Snapshot

Certainty = Literal["certain", "likely"]

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


class Doubt(Frozen):
    """A cause, what its message may mean as well, and the command whose answer decides."""

    others: tuple[str, ...]
    next_reading: str
    settled_by: tuple[Literal["gpus", "driver", "kernels", "python", "bus"], ...]
    """What the text may show that tells them apart already."""
    unless: Callable[[RuleContext], bool] = lambda _: False
    """Whether the message itself leaves nothing open."""


DOUBTS: dict[str, Doubt] = {
    "no-kernel-image": Doubt(
        others=("arch-too-old-for-wheel", "arch-too-new-for-wheel", "extension-arch-mismatch"),
        next_reading=TORCHS_KERNELS,
        settled_by=("kernels",),
    ),
    "arch-too-new-for-wheel": Doubt(
        others=("cuda-lib-missing",),
        next_reading=BESIDE_TORCH,
        settled_by=(),
        unless=left_open.kernels_are_said,
    ),
    "extension-arch-mismatch": Doubt(
        others=("arch-too-old-for-wheel", "arch-too-new-for-wheel"),
        next_reading=TORCHS_KERNELS,
        settled_by=("gpus", "kernels"),
        unless=left_open.raised_by_an_extension,
    ),
    "cuda-init-failed": Doubt(
        others=("cuda-unknown-error", "uvm-missing", "gpu-init-failed"),
        next_reading=KERNEL_LOG,
        settled_by=(),
    ),
    "nvml-init-failed": Doubt(
        others=("container-nvml-lost", "uvm-missing", "cuda-unknown-error"),
        next_reading="nvidia-smi",
        settled_by=(),
    ),
    "kernel-image-invalid": Doubt(
        others=("driver-too-old", "extension-arch-mismatch"),
        next_reading=COLLECT_ENV,
        settled_by=(),
    ),
    "out-of-memory": Doubt(
        others=("wsl-driver", "cuda-lib-missing"),
        next_reading="nvidia-smi",
        settled_by=(),
        unless=left_open.memory_is_said,
    ),
    "library-not-mapped": Doubt(
        others=("host-out-of-memory",),
        next_reading="findmnt -O noexec",
        settled_by=(),
    ),
    "torch-sees-no-gpu": Doubt(
        others=("torch-cpu-build", "driver-too-old", "driver-not-loaded", "container-no-gpu"),
        next_reading=ASK_TORCH,
        settled_by=(),
        unless=left_open.shows_its_cuda,
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
        unless=left_open.saw_no_gpu,
    ),
    "container-no-gpu": Doubt(
        others=("driver-missing", "container-toolkit-missing"),
        next_reading=ON_THE_HOST,
        settled_by=("gpus", "driver", "bus"),
        unless=left_open.is_told,
    ),
    "container-nvml-lost": Doubt(
        others=("nvml-mismatch", "gpu-fell-off-bus"),
        next_reading="nvidia-smi",
        settled_by=(),
        unless=left_open.nvml_says_it,
    ),
    "gpu-fell-off-bus": Doubt(
        others=("hardware-fault", "gpu-does-not-answer"),
        next_reading=KERNEL_LOG,
        settled_by=(),
        unless=left_open.says_lost,
    ),
    "cuda-lib-missing": Doubt(
        others=("extension-not-built", "program-release-too-old"),
        next_reading="python -m bitsandbytes",
        settled_by=(),
        unless=left_open.is_cudas,
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
        next_reading=NODES,
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
    "no-wheel-for-platform": Doubt(
        others=("wrong-index", "python-no-wheel"),
        next_reading=BITS,
        settled_by=(),
        unless=left_open.installer_says_it,
    ),
    "no-nvidia-gpu": Doubt(
        others=("driver-missing", "container-no-gpu"),
        next_reading=ON_THE_BUS,
        settled_by=("gpus", "bus"),
        unless=left_open.is_a_notebooks,
    ),
    "gpu-not-supported-by-driver": Doubt(
        others=("driver-not-loaded", "gpu-init-failed"),
        next_reading=KERNEL_LOG,
        settled_by=(),
        unless=left_open.driver_says_it,
    ),
    "gpu-init-failed": Doubt(
        others=("gpu-fell-off-bus", "gpu-not-supported-by-driver", "device-permission"),
        next_reading=KERNEL_LOG,
        settled_by=(),
        unless=left_open.kernel_says_it,
    ),
    "host-out-of-memory": Doubt(
        others=("dataloader-worker-killed",),
        next_reading=HOST_MEMORY,
        settled_by=(),
        unless=left_open.killed_for_it,
    ),
    "module-shadowed": Doubt(
        others=("torch-half-installed",),
        next_reading='python -c "import torch; print(torch.__file__, torch.__path__)"',
        settled_by=(),
        unless=left_open.names_the_file,
    ),
    "mixed-conda-pip": Doubt(
        others=("ld-library-path-conflict", "torch-half-installed"),
        next_reading="conda list torch",
        settled_by=(),
    ),
    "windows-dll-missing": Doubt(
        others=("cuda-lib-missing", "extension-abi-mismatch"),
        next_reading='python -c "import torch"',
        settled_by=(),
        unless=left_open.names_a_dll,
    ),
    "triton-no-compiler": Doubt(
        others=("compiler-missing",),
        next_reading="gcc --version",
        settled_by=(),
        unless=left_open.is_tritons,
    ),
    "container-driver-capability-missing": Doubt(
        others=("container-no-gpu",),
        next_reading=LIBCUDA_IN_IT,
        settled_by=(),
        unless=left_open.cuda_failed,
    ),
    "system-not-ready-fabric-manager": Doubt(
        others=("fabric-unhealthy",),
        next_reading="nvidia-smi -q | grep -A 3 Fabric",
        settled_by=(),
        unless=left_open.refused,
    ),
    "nccl-p2p-failure": Doubt(
        others=("nccl-timeout", "nccl-shm-error"),
        next_reading=f"export NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO  {RUN_AGAIN}",
        settled_by=(),
        unless=left_open.p2p_is_said,
    ),
    "nccl-no-socket-interface": Doubt(
        others=("nccl-error",),
        next_reading=NCCL_LOG,
        settled_by=(),
        unless=left_open.interface_is_said,
    ),
    "nccl-timeout": Doubt(
        others=("nccl-p2p-failure", "nccl-no-socket-interface", "gpu-fell-off-bus"),
        next_reading=f"export NCCL_DEBUG=INFO TORCH_NCCL_TRACE_BUFFER_SIZE=2000  {RUN_AGAIN}",
        settled_by=(),
    ),
    "nccl-error": Doubt(
        others=("nccl-no-socket-interface", "nccl-shm-error", "nccl-p2p-failure"),
        next_reading=NCCL_LOG,
        settled_by=(),
        unless=lambda context: not left_open.is_the_systems(context),
    ),
}

BY_ONE_MESSAGE: dict[str, Doubt] = {
    "cuda-lib-missing": Doubt(
        others=("driver-missing",),
        next_reading="nvidia-smi",
        settled_by=("gpus", "driver"),
        unless=left_open.leaves_no_driver_open,
    ),
    "torch-sees-no-gpu": Doubt(
        others=("cuda-visible-devices-hidden", "container-no-gpu", "driver-not-loaded"),
        next_reading=LIST_GPUS,
        settled_by=("gpus",),
    ),
    "container-no-gpu": Doubt(
        others=("driver-missing",),
        next_reading=ON_THE_HOST,
        settled_by=("gpus", "driver", "bus"),
        unless=left_open.host_matters_not,
    ),
    "nccl-error": Doubt(
        others=("nccl-p2p-failure", "nccl-shm-error"),
        next_reading=NCCL_LOG,
        settled_by=(),
    ),
}
"""What one message leaves open of a cause whose other messages leave something else."""


class RuledOut(Frozen):
    """What a message leaves open elsewhere and cannot be where this holds."""

    where: Callable[[RuleContext], bool]
    causes: frozenset[str]


def _serves_every_torch(context: RuleContext) -> bool:
    """Whether torch found no GPU beside a driver that starts the CUDA of every build."""
    cuda = context.snapshot.driver.cuda
    newest = max(parsed(build.cuda or "0") for build in context.catalog.builds)
    unseen = events(context, "cuda-unavailable")
    return bool(unseen and cuda and parsed(cuda).major >= newest.major)


RULED_OUT = (
    # The driver lists a GPU.
    RuledOut(
        where=lambda context: bool(answering(context)),
        causes=frozenset({"driver-not-loaded", "no-nvidia-gpu"}),
    ),
    RuledOut(where=_serves_every_torch, causes=frozenset({"driver-too-old"})),
    # Windows itself has no modules of a kernel, no nodes, and no containers that are given them.
    RuledOut(
        where=lambda context: on(context, "windows") and not in_container(context),
        causes=frozenset(
            {
                "container-no-gpu",
                "container-nvml-lost",
                "container-toolkit-missing",
                "driver-not-loaded",
                "uvm-missing",
            }
        ),
    ),
    # WSL has no kernel modules of NVIDIA's, and no nodes but Windows' own.
    RuledOut(
        where=lambda context: bool(context.snapshot.os.wsl),
        causes=frozenset({"driver-not-loaded", "driver-missing", "uvm-missing"}),
    ),
    # The container and the driver of a lent notebook are the lender's.
    RuledOut(
        where=lambda context: lender_of(context) is not None,
        causes=frozenset({"container-no-gpu", "driver-not-loaded", "container-toolkit-missing"}),
    ),
)


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
    undecided = (row for row in rows if row and not any(shown[name] for name in row.settled_by))
    return next((row for row in undecided if not row.unless(context)), None)


def other_causes(
    context: RuleContext,
    root: Finding | None,
    findings: tuple[Finding, ...],
    doubt: Doubt | None,
    cause: str,
) -> tuple[str, ...]:
    """The unexplained errors beside the root in their order, then what its message leaves open.

    What is itself only seen is no other cause.
    """
    if root is None:
        return ()
    beside = [f for f in findings if f is not root and f.severity is Severity.ERROR]
    unexplained = sorted(
        (f.id for f in beside if f.explained_by is None), key=lambda id: RECORDS[id].order
    )
    causes = (one for one in (*unexplained, *_left_open(context, doubt)) if not _is_only_seen(one))
    return tuple(one for one in dict.fromkeys(causes) if one not in (cause, root.id))


def _left_open(context: RuleContext, doubt: Doubt | None) -> tuple[str, ...]:
    """What a message leaves open, less what cannot be on this machine."""
    if doubt is None:
        return ()
    out = {one for row in RULED_OUT if row.where(context) for one in row.causes}
    return tuple(one for one in doubt.others if one not in out)


def _is_only_seen(id: str) -> bool:
    record = RECORDS.get(id)
    return record is not None and record.symptom


def certainty_of(
    root: Finding | None, others: tuple[str, ...], *, inferred: bool
) -> Certainty | None:
    """Certain where the text itself shows it and nothing else is left; None without a root."""
    if root is None:
        return None
    return "likely" if others or inferred else "certain"
