"""The facts that are compared between machines, each as one line of text.

A fact is something that should be the same on machines of one kind. Values that always differ (a
temperature, a UUID, a bus address, free memory) are therefore not facts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter

from gpusetup.fleet.gpu_words import ranges
from gpusetup.model.finding import Severity
from gpusetup.model.machine import Snapshot
from gpusetup.model.units import GIB, MIB
from gpusetup.readings.environment import PREFIXES

ABSENT = "absent"
"""The value of a package or variable that the machine does not have."""


FACTS: dict[Severity, dict[str, str]] = {
    Severity.ERROR: {
        "gpus.count": "number of GPUs",
        "gpus.lost": "fallen off the bus",
    },
    Severity.WARNING: {
        "driver.version": "driver",
        "driver.cuda": "CUDA of the driver",
        "driver.library_version": "driver library",
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
        "gpus.clock_memory_max_mhz": "highest memory clock",
        "gpus.clock_sm_application_mhz": "application clock",
        "gpus.driver_model": "driver model",
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
        "cpu.name": "processor",
        "cpu.usable_cores": "usable cores",
        "memory.shm_total_bytes": "/dev/shm",
        "memory.memlock_bytes": "locked memory",
        "gpus.power_limit_default_watts": "rated power",
        "gpus.inforom_version": "InfoROM",
        "gpus.virtualization": "virtualisation",
    },
}
"""Maps each severity of a difference to the facts that have it. Each fact is given by its path in a
snapshot and its name for the user."""
WORDS: dict[str, str] = {}
for _rows in FACTS.values():
    WORDS |= _rows
GPU_COUNT, GPU_NAME, GPU_PREFIX = "gpus.count", "gpus.name", "gpus."
PACKAGES, VARIABLES = "packages.", "environment."
TORCH_FAMILY = ("torchvision", "torchaudio", "triton", "nvidia-nccl")
"""Packages that can stop or slow down a training on several machines if their versions differ."""


def facts_of(snapshot: Snapshot) -> dict[str, str]:
    """Maps each fact in a snapshot to its value as text; unknown facts are left out.

    >>> from gpusetup.model.machine import Gpu
    >>> facts_of(Snapshot(gpus=(Gpu(name="L4", pcie_width=16), Gpu(name="L4", pcie_width=8))))
    {'gpus.count': '2', 'gpus.name': 'L4', 'gpus.pcie_width': '1 x 16, 1 x 8 (GPU 1)'}
    """
    facts: dict[str, str | None] = {}
    for name in WORDS:
        facts[name] = _fact(name, snapshot)
    for package in snapshot.packages or ():
        facts[f"{PACKAGES}{package.name}"] = package.version
    for variable, value in snapshot.environment.items():
        facts[f"{VARIABLES}{variable}"] = value
    known_facts = {}
    for name, fact in facts.items():
        # Facts that no source reported are left out.
        if fact is not None:
            known_facts[name] = fact
    return known_facts


def _fact(name: str, snapshot: Snapshot) -> str | None:
    """The value of one fact in a snapshot; None if it is unknown."""
    if name == GPU_COUNT:
        gpus = snapshot.gpus
        # None means that the GPUs could not be listed.
        return None if gpus is None else str(len(gpus))
    if not name.startswith(GPU_PREFIX):
        return shown(name, attrgetter(name)(snapshot))
    read_value = attrgetter(name.removeprefix(GPU_PREFIX))
    values = [shown(name, read_value(gpu)) for gpu in snapshot.gpus or ()]
    return joined(values)


def shown(name: str, value: object) -> str | None:
    """A value with its unit, as it is shown to the user; None if it is unknown.

    >>> shown("memory.total_bytes", 80 << 30), shown("gpus.lost", True), shown("os.name", None)
    ('80 GiB', 'yes', None)
    >>> shown("gpus.power_limit_watts", 349.9), shown("gpus.clock_sm_max_mhz", 1980)
    ('350 W', '1980 MHz')
    """
    if value is None:
        return None
    # Test for bool first, because Python's True is also a number.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):  # MIG instances
        return str(len(value)) if value else None
    if not isinstance(value, int | float):
        return str(value)
    # Round the size, because machines of one kind differ by a few pages of memory.
    if name.endswith("total_bytes"):
        return size_in_words(value)
    if name.endswith("_watts"):
        return f"{value:.0f} W"
    if name.endswith("_mhz"):
        return f"{value} MHz"
    return str(value)


def size_in_words(size: float) -> str:
    """A size in bytes as text in GiB, or in MiB if it is smaller than 1 GiB.

    >>> size_in_words(80 << 30), size_in_words(512 << 20)
    ('80 GiB', '512 MiB')
    """
    if size >= GIB:
        return f"{size / GIB:.0f} GiB"
    # Sizes below 1 GiB are usual too; for example, /dev/shm in a container usually has 64 MiB.
    mebibytes = size / MIB
    return f"{mebibytes:.0f} MiB"


def joined(values: Sequence[str | None]) -> str | None:
    """The values of several GPUs as one text: the common value, or how many GPUs have which value.
    Unknown values are ignored.

    >>> joined(["16", "16", "8"]), joined(["on", None, "on"]), joined([None])
    ('2 x 16, 1 x 8 (GPU 2)', 'on', None)
    """
    known_values = [value for value in values if value is not None]
    counts = Counter(known_values).most_common()
    if not counts:
        return None
    usual_value, usual_count = counts[0]
    if len(counts) == 1:
        return usual_value
    parts = [f"{usual_count} x {usual_value}"]
    for value, count in counts[1:]:
        # The usual value needs no GPU indexes, because all remaining GPUs have it.
        indexes = [index for index, gpu_value in enumerate(values) if gpu_value == value]
        noun = "GPUs" if count > 1 else "GPU"
        parts.append(f"{count} x {value} ({noun} {ranges(indexes)})")
    return ", ".join(parts)


OF_SEVERAL_VALUES = re.compile(r"\d{1,4} x (.+?)(?:, \d{1,4} x .*)?", re.DOTALL)


def commonest(value: str) -> str:
    """The value that most GPUs of a node have, read from the text of the node's fact.

    >>> commonest("7 x NVIDIA L40S, 1 x NVIDIA L4 (GPU 3)"), commonest("NVIDIA L4")
    ('NVIDIA L40S', 'NVIDIA L4')
    """
    values = OF_SEVERAL_VALUES.fullmatch(value)
    # The text begins with the most common value.
    return values[1] if values else value


def words_of(name: str) -> str:
    """A fact's name, as it is shown to the user.

    >>> words_of("packages.numpy"), words_of("environment.NCCL_DEBUG"), words_of("os.kernel")
    ('numpy', 'NCCL_DEBUG', 'kernel')
    """
    if name in WORDS:
        return WORDS[name]
    # Packages and variables are shown with their own names.
    short_name = name.removeprefix(PACKAGES)
    return short_name.removeprefix(VARIABLES)


def severity_of(name: str) -> Severity:
    """How serious it is if machines differ in this fact.

    >>> severity_of("gpus.count").value, severity_of("packages.numpy").value
    ('error', 'note')
    """
    package = name.removeprefix(PACKAGES)
    if name.startswith(PACKAGES) and package.startswith(TORCH_FAMILY):
        return Severity.WARNING
    for severity, rows in FACTS.items():
        if name in rows:
            return severity
    return Severity.NOTE


def value_of(name: str, facts: Mapping[str, str]) -> str | None:
    """A fact's value; `absent` for a package or variable that the machine does not have; None if
    the record does not contain the fact."""
    if name in facts:
        return facts[name]
    if name.startswith(PACKAGES):
        # If no packages are listed, as in a report of verify, it is unknown whether the package is
        # absent.
        lists_packages = any(fact.startswith(PACKAGES) for fact in facts)
        return ABSENT if lists_packages else None
    may_be_absent = name.startswith((VARIABLES, "toolkit."))
    is_whole_snapshot = IN_EVERY_SNAPSHOT in facts
    if may_be_absent and is_whole_snapshot:
        return ABSENT
    return None


FREE_DISK = "_free_gib"
"""The suffix of facts about free disk space, which is never the same on two nodes."""
OF_THE_NODE = (*PREFIXES, "LD_LIBRARY_PATH", "LD_PRELOAD")
"""The prefixes of variables that change what CUDA, NCCL and torch do on a node."""


def is_compared(name: str) -> bool:
    """Whether nodes of one kind should agree in this fact.

    For example, PATH and the variables of a Slurm job are not compared, because they belong to the
    shell in which the record was taken.

    >>> is_compared("environment.NCCL_IB_HCA"), is_compared("environment.SLURM_JOB_GPUS")
    (True, False)
    """
    if name.startswith(VARIABLES):
        variable = name.removeprefix(VARIABLES)
        return variable.startswith(OF_THE_NODE)
    # Leave out torch's version, which is already a separate fact.
    return name != f"{PACKAGES}torch" and not name.endswith(FREE_DISK)


IN_EVERY_SNAPSHOT = "os.name"
"""A fact that every complete snapshot contains."""
