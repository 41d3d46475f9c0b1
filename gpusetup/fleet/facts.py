"""The facts by which machines are compared, each as one line of text.

A fact is what should be the same on machines of one kind. What differs by nature (a temperature, a
UUID, a bus address, free memory) is none.
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
"""The value of a package or a variable that the machine does not have."""


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
"""How grave it is if one machine differs from the others -> the facts that are compared: each one's
place in a snapshot, and what a person calls it."""
WORDS: dict[str, str] = {}
for _rows in FACTS.values():
    WORDS |= _rows
GPU_COUNT, GPU_NAME, GPU_PREFIX = "gpus.count", "gpus.name", "gpus."
PACKAGES, VARIABLES = "packages.", "environment."
TORCH_FAMILY = ("torchvision", "torchaudio", "triton", "nvidia-nccl")
"""Packages whose difference stops or slows a training of several machines."""


def facts_of(snapshot: Snapshot) -> dict[str, str]:
    """Fact -> its value as text, for all facts in a snapshot; unknown facts are left out.

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
        # What no source told is no fact.
        if fact is not None:
            known_facts[name] = fact
    return known_facts


def _fact(name: str, snapshot: Snapshot) -> str | None:
    """The value of one fact in a snapshot; None if it is unknown."""
    if name == GPU_COUNT:
        gpus = snapshot.gpus
        # None: nobody could ask for GPUs.
        return None if gpus is None else str(len(gpus))
    if not name.startswith(GPU_PREFIX):
        return shown(name, attrgetter(name)(snapshot))
    read_value = attrgetter(name.removeprefix(GPU_PREFIX))
    values = [shown(name, read_value(gpu)) for gpu in snapshot.gpus or ()]
    return joined(values)


def shown(name: str, value: object) -> str | None:
    """A value with its unit as the answer shows it; None if it is unknown.

    >>> shown("memory.total_bytes", 80 << 30), shown("gpus.lost", True), shown("os.name", None)
    ('80 GiB', 'yes', None)
    >>> shown("gpus.power_limit_watts", 349.9), shown("gpus.clock_sm_max_mhz", 1980)
    ('350 W', '1980 MHz')
    """
    if value is None:
        return None
    # True is a number to Python, so this comes before the numbers.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):  # instances of MIG
        return str(len(value)) if value else None
    if not isinstance(value, int | float):
        return str(value)
    # Rounded: machines of one kind differ by some pages of memory.
    if name.endswith("total_bytes"):
        return size_in_words(value)
    if name.endswith("_watts"):
        return f"{value:.0f} W"
    if name.endswith("_mhz"):
        return f"{value} MHz"
    return str(value)


def size_in_words(size: float) -> str:
    """A size in bytes as text, in GiB, or in MiB if it is smaller than 1 GiB.

    >>> size_in_words(80 << 30), size_in_words(512 << 20)
    ('80 GiB', '512 MiB')
    """
    if size >= GIB:
        return f"{size / GIB:.0f} GiB"
    # /dev/shm of a container has 64 MiB.
    mebibytes = size / MIB
    return f"{mebibytes:.0f} MiB"


def joined(values: Sequence[str | None]) -> str | None:
    """The values of several GPUs as one text: the common value, or how many GPUs have which.
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
        # The usual value needs no GPU indexes: it is that of all the others.
        indexes = [index for index, gpu_value in enumerate(values) if gpu_value == value]
        noun = "GPUs" if count > 1 else "GPU"
        parts.append(f"{count} x {value} ({noun} {ranges(indexes)})")
    return ", ".join(parts)


OF_SEVERAL_VALUES = re.compile(r"\d{1,4} x (.+?)(?:, \d{1,4} x .*)?", re.DOTALL)


def commonest(value: str) -> str:
    """The value that most GPUs of a node have, read from the node's fact text.

    >>> commonest("7 x NVIDIA L40S, 1 x NVIDIA L4 (GPU 3)"), commonest("NVIDIA L4")
    ('NVIDIA L40S', 'NVIDIA L4')
    """
    values = OF_SEVERAL_VALUES.fullmatch(value)
    # The most common value comes first in the text.
    return values[1] if values else value


def words_of(name: str) -> str:
    """A fact's name as the answer shows it.

    >>> words_of("packages.numpy"), words_of("environment.NCCL_DEBUG"), words_of("os.kernel")
    ('numpy', 'NCCL_DEBUG', 'kernel')
    """
    if name in WORDS:
        return WORDS[name]
    # A package and a variable are called by their own names.
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
    """A fact's value; `absent` for a package or variable that the machine lacks; None if the record
    does not contain the fact."""
    if name in facts:
        return facts[name]
    if name.startswith(PACKAGES):
        # A report of verify lists none.
        lists_packages = any(fact.startswith(PACKAGES) for fact in facts)
        return ABSENT if lists_packages else None
    may_be_absent = name.startswith((VARIABLES, "toolkit."))
    is_whole_snapshot = IN_EVERY_SNAPSHOT in facts
    if may_be_absent and is_whole_snapshot:
        return ABSENT
    return None


FREE_DISK = "_free_gib"
"""How the facts of free disk end: no two nodes have the same."""
OF_THE_NODE = (*PREFIXES, "LD_LIBRARY_PATH", "LD_PRELOAD")
"""How the variables begin that change what CUDA, NCCL and torch do on a node."""


def is_compared(name: str) -> bool:
    """Whether nodes of one kind should agree in this fact.

    PATH, the variables of a Slurm job and the like belong to the shell in which a record was taken.

    >>> is_compared("environment.NCCL_IB_HCA"), is_compared("environment.SLURM_JOB_GPUS")
    (True, False)
    """
    if name.startswith(VARIABLES):
        variable = name.removeprefix(VARIABLES)
        return variable.startswith(OF_THE_NODE)
    # torch's version is a fact of its own.
    return name != f"{PACKAGES}torch" and not name.endswith(FREE_DISK)


IN_EVERY_SNAPSHOT = "os.name"
"""A fact of every whole snapshot."""
