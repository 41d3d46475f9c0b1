"""The facts that are compared between machines, each as one line of text.

A fact is something that should be the same on machines of one kind. Values that always differ (a
temperature, a UUID, a bus address, free memory) are therefore not facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpusetup.model.finding import Severity
from gpusetup.model.machine import Snapshot
from gpusetup.model.units import GIB, MIB
from gpusetup.readings.environment import PREFIXES

FACTS: dict[Severity, dict[str, str]] = {
    Severity.ERROR: {
        "gpus.count": "number of GPUs",
        "gpus.lost": "fallen off the bus",
    },
    Severity.WARNING: {
        "driver.version": "driver",
        "driver.cuda": "CUDA of the driver",
        "os.machine": "architecture",
        "torch.version": "torch",
        "torch.backend": "torch's backend",
        "memory.total_bytes": "memory",
        "gpus.name": "GPU",
        "gpus.memory_total_bytes": "GPU memory",
        "gpus.mig_enabled": "MIG",
        "gpus.mig_instances": "MIG instances",
        "gpus.compute_mode": "compute mode",
        "gpus.ecc_enabled": "ECC",
        "gpus.recovery_action": "recovery action",
        "gpus.power_limit_watts": "power limit",
        "gpus.pcie_generation_max": "PCIe generation",
        "gpus.pcie_width": "PCIe lanes",
        "gpus.pcie_width_max": "PCIe lanes of the slot",
        "gpus.nvlinks_active": "active NVLinks",
        "gpus.fabric_state": "fabric",
        "gpus.vbios_version": "VBIOS",
        "gpus.clock_sm_max_mhz": "highest SM clock",
    },
    Severity.NOTE: {
        "driver.open_module": "open kernel module",
        "driver.persistence": "persistence mode",
        "os.name": "system",
        "os.kernel": "kernel",
        "os.libc": "C library",
        "python.version": "Python",
        "torch.cudnn": "cuDNN",
        "toolkit.nvcc": "CUDA toolkit",
        "container.kind": "container",
        "cpu.usable_cores": "usable cores",
        "memory.shm_total_bytes": "/dev/shm",
        "gpus.power_limit_default_watts": "rated power",
    },
}
"""Maps each severity of a difference to the facts that have it. Each fact is given by its path in a
snapshot and its name for the user."""
WORDS = {field: words for rows in FACTS.values() for field, words in rows.items()}
GPU_COUNT, GPU_NAME = "gpus.count", "gpus.name"
PACKAGES, VARIABLES = "packages.", "environment."
TORCH_FAMILY = ("torchvision", "torchaudio", "triton", "nvidia-nccl")
"""Packages that can stop or slow down a training on several machines if their versions differ."""
OF_THE_NODE = (*PREFIXES, "LD_LIBRARY_PATH", "LD_PRELOAD")
"""The prefixes of variables that change what CUDA, NCCL and torch do on a node. Others, such as
PATH and those of a Slurm job, belong to the shell in which the record was taken."""


def facts_of(snapshot: Snapshot) -> dict[str, str]:
    """Maps each fact in a snapshot to its value as text; unknown facts are left out.

    >>> from gpusetup.model.machine import Gpu
    >>> facts_of(Snapshot(gpus=(Gpu(name="L4", pcie_width=16), Gpu(name="L4", pcie_width=8))))
    {'gpus.count': '2', 'gpus.name': 'L4', 'gpus.pcie_width': '16 on 1 GPU, 8 on GPU 1'}
    """
    facts: dict[str, str | None] = {}
    for field in WORDS:
        group, _, name = field.partition(".")
        if field == GPU_COUNT:
            facts[field] = None if snapshot.gpus is None else str(len(snapshot.gpus))
        elif group == "gpus":
            facts[field] = joined(
                [as_text(name, getattr(gpu, name)) for gpu in snapshot.gpus or ()]
            )
        else:
            facts[field] = as_text(name, getattr(getattr(snapshot, group), name))
    facts |= {f"{PACKAGES}{package.name}": package.version for package in snapshot.packages or ()}
    for name, value in snapshot.environment.items():
        if name.startswith(OF_THE_NODE):
            facts[f"{VARIABLES}{name}"] = value
    return {field: value for field, value in facts.items() if value is not None}


def as_text(name: str, value: object) -> str | None:
    """A value with its unit, as it is shown to the user; None if it is unknown.

    >>> as_text("total_bytes", 80 << 30), as_text("lost", True), as_text("power_limit_watts", 349.9)
    ('80 GiB', 'yes', '350 W')
    """
    # A source that cannot list MIG instances gives an empty list, so it counts as unknown.
    if value is None or value == ():
        return None
    # Test for bool first, because Python's True is also a number.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):  # MIG instances
        return str(len(value))
    if not isinstance(value, int | float):
        return str(value)
    # Rounded, because machines of one kind differ by a few pages of memory.
    if name.endswith("total_bytes"):
        return f"{value / GIB:.0f} GiB" if value >= GIB else f"{value / MIB:.0f} MiB"
    if name.endswith("_watts"):
        return f"{value:.0f} W"
    return f"{value} MHz" if name.endswith("_mhz") else str(value)


def joined(values: Sequence[str | None]) -> str | None:
    """The values of several GPUs as one text: the common value, or how many GPUs have which value.
    Unknown values are ignored.

    >>> joined(["16", "16", "8"]), joined(["on", None, "on"]), joined([None])
    ('16 on 2 GPUs, 8 on GPU 2', 'on', None)
    """
    counts = Counter(value for value in values if value is not None).most_common()
    if len(counts) < 2:
        return counts[0][0] if counts else None
    usual_value, usual_count = counts[0]
    parts = [f"{usual_value} on {usual_count} {'GPUs' if usual_count > 1 else 'GPU'}"]
    # The usual value needs no GPU indexes, because all remaining GPUs have it.
    for value, count in counts[1:]:
        indexes = [str(index) for index, its_value in enumerate(values) if its_value == value]
        parts.append(f"{value} on {'GPUs' if count > 1 else 'GPU'} {', '.join(indexes)}")
    return ", ".join(parts)


def words_of(field: str) -> str:
    """A fact's name, as it is shown to the user.

    >>> words_of("packages.numpy"), words_of("environment.NCCL_DEBUG"), words_of("os.kernel")
    ('numpy', 'NCCL_DEBUG', 'kernel')
    """
    return WORDS.get(field) or field.removeprefix(PACKAGES).removeprefix(VARIABLES)


def severity_of(field: str) -> Severity:
    """How serious it is if machines differ in this fact.

    >>> severity_of("gpus.count").value, severity_of("packages.numpy").value
    ('error', 'note')
    """
    if field.startswith(tuple(f"{PACKAGES}{name}" for name in TORCH_FAMILY)):
        return Severity.WARNING
    return next((severity for severity, rows in FACTS.items() if field in rows), Severity.NOTE)


def value_of(field: str, facts: Mapping[str, str]) -> str | None:
    """A fact's value; `absent` for a package, a variable or a CUDA toolkit (`toolkit.`) that the
    machine does not have; None if the record does not tell it."""
    if field in facts:
        return facts[field]
    if field.startswith(PACKAGES):
        # If no package is listed, the record does not list packages.
        would_be_listed = any(other.startswith(PACKAGES) for other in facts)
    else:
        # Every complete snapshot has the system's name.
        would_be_listed = field.startswith((VARIABLES, "toolkit.")) and "os.name" in facts
    return "absent" if would_be_listed else None
