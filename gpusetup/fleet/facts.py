"""What two machines are compared by: each fact of a record as one line of text.

A fact is what should be the same on machines of one kind. What differs by nature (a temperature, a
UUID, a bus address, free memory) is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from gpusetup.model.finding import Severity
from gpusetup.model.machine import Snapshot
from gpusetup.model.units import GIB, MIB

UNKNOWN = "unknown"
ABSENT = "absent"
"""The value of a package or a variable that the machine does not have."""


class Fact(NamedTuple):
    """One field that is compared: its place in a snapshot, what a person calls it, and how grave
    it is where one machine differs from the others."""

    name: str
    words: str
    severity: Severity


E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE
COUNT = Fact("gpus.count", "number of GPUs", E)
MACHINE = (
    Fact("driver.version", "driver", W),
    Fact("driver.cuda", "CUDA of the driver", W),
    Fact("driver.library_version", "driver library", W),
    Fact("driver.open_module", "open kernel module", N),
    Fact("driver.persistence", "persistence mode", N),
    Fact("os.name", "system", N),
    Fact("os.kernel", "kernel", N),
    Fact("os.machine", "architecture", W),
    Fact("os.libc", "C library", N),
    Fact("python.version", "Python", N),
    Fact("torch.version", "torch", W),
    Fact("torch.backend", "torch's backend", W),
    Fact("torch.cudnn", "cuDNN", N),
    Fact("toolkit.nvcc", "CUDA toolkit", N),
    Fact("container.kind", "container", N),
    Fact("cpu.name", "processor", N),
    Fact("cpu.usable_cores", "usable cores", N),
    Fact("memory.total_bytes", "memory", W),
    Fact("memory.shm_total_bytes", "/dev/shm", N),
    Fact("memory.memlock_bytes", "locked memory", N),
)
"""What a machine has once."""
GPUS = (
    Fact("gpus.name", "GPU", W),
    Fact("gpus.memory_total_bytes", "GPU memory", W),
    Fact("gpus.lost", "fallen off the bus", E),
    Fact("gpus.mig_enabled", "MIG", W),
    Fact("gpus.mig_instances", "MIG instances", W),
    Fact("gpus.compute_mode", "compute mode", W),
    Fact("gpus.ecc_enabled", "ECC", W),
    Fact("gpus.recovery_action", "recovery action", W),
    Fact("gpus.power_limit_watts", "power limit", W),
    Fact("gpus.power_limit_default_watts", "rated power", N),
    Fact("gpus.pcie_generation_max", "PCIe generation", W),
    Fact("gpus.pcie_width", "PCIe lanes", W),
    Fact("gpus.pcie_width_max", "PCIe lanes of the slot", W),
    Fact("gpus.nvlinks_active", "active NVLinks", W),
    Fact("gpus.fabric_state", "fabric", W),
    Fact("gpus.vbios_version", "VBIOS", W),
    Fact("gpus.inforom_version", "InfoROM", N),
    Fact("gpus.clock_sm_max_mhz", "highest SM clock", W),
    Fact("gpus.clock_memory_max_mhz", "highest memory clock", W),
    Fact("gpus.clock_sm_application_mhz", "application clock", W),
    Fact("gpus.driver_model", "driver model", W),
    Fact("gpus.virtualization", "virtualisation", N),
)
"""What each GPU has."""

PACKAGES, VARIABLES = "packages.", "environment."
FACTS = {fact.name: fact for fact in (*MACHINE, COUNT, *GPUS)}
MAY_LACK = ("toolkit.nvcc",)
"""Facts of a whole record that are told only where there is such a thing."""
FAMILY = ("torchvision", "torchaudio", "triton", "nvidia-nccl")
"""Packages whose difference stops or slows a training of several machines."""


def facts_of(snapshot: Snapshot) -> dict[str, str]:
    """Every fact that the record tells, by name; what no source told is left out.

    >>> from gpusetup.model.machine import Gpu
    >>> facts_of(Snapshot(gpus=(Gpu(name="L4", pcie_width=16), Gpu(name="L4", pcie_width=8))))
    {'gpus.count': '2', 'gpus.name': 'L4', 'gpus.pcie_width': '1 x 16, 1 x 8 (GPU 1)'}
    """
    return dict(_facts(snapshot))


def _facts(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for fact in MACHINE:
        value = shown(fact.name, attrgetter(fact.name)(snapshot))
        if value is not None:
            yield fact.name, value
    gpus = snapshot.gpus
    if gpus is not None:
        yield COUNT.name, str(len(gpus))
    for fact in GPUS:
        read = attrgetter(fact.name.removeprefix("gpus."))
        values = [shown(fact.name, read(gpu)) for gpu in gpus or ()]
        if any(value is not None for value in values):
            yield fact.name, summed([UNKNOWN if value is None else value for value in values])
    for package in snapshot.packages or ():
        yield f"{PACKAGES}{package.name}", package.version
    for name, value in snapshot.environment.items():
        yield f"{VARIABLES}{name}", value


def shown(name: str, value: object) -> str | None:
    """A value as people write it.

    >>> shown("memory.total_bytes", 80 << 30), shown("gpus.lost", True), shown("os.name", None)
    ('80 GiB', 'yes', None)
    >>> shown("gpus.power_limit_watts", 349.9), shown("gpus.clock_sm_max_mhz", 1980)
    ('350 W', '1980 MHz')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):  # instances of MIG
        return str(len(value)) if value else None
    if isinstance(value, int | float):
        if name.endswith("total_bytes"):
            return f"{value / GIB:.0f} GiB" if value >= GIB else f"{value / MIB:.0f} MiB"
        if name.endswith("_watts"):
            return f"{value:.0f} W"
        return f"{value} MHz" if name.endswith("_mhz") else str(value)
    return None if value is None else str(value)


def summed(values: Sequence[str]) -> str:
    """The values of several GPUs as one: alike, or how many have each and which are the fewer.

    >>> summed(["16", "16", "8"]), summed(["on", "on"])
    ('2 x 16, 1 x 8 (GPU 2)', 'on')
    """
    counts = Counter(values).most_common()
    if len(counts) == 1:
        return counts[0][0]
    first = f"{counts[0][1]} x {counts[0][0]}"
    return ", ".join(
        (first, *(f"{n} x {value} ({_places(values, value)})" for value, n in counts[1:]))
    )


def known_part(value: str) -> str:
    """The values of several GPUs without those that are unknown, where the others are alike.

    >>> known_part("7 x 1980 MHz, 1 x unknown (GPU 2)")
    '1980 MHz'
    >>> known_part("6 x unknown, 2 x 16 (GPUs 0, 1)"), known_part("2 x 16, 1 x 8 (GPU 2)")
    ('16', '2 x 16, 1 x 8 (GPU 2)')
    """
    parts = re.split(r", (?=\d+ x )", value)
    told = [part for part in parts if not re.match(rf"\d+ x {UNKNOWN}\b", part)]
    if len(told) == len(parts) or len(told) != 1:
        return value
    return re.sub(r"^\d+ x | \(GPUs? [\d, ]+\)$", "", told[0])


def _places(values: Sequence[str], value: str) -> str:
    places = [str(index) for index, one in enumerate(values) if one == value]
    return f"GPU{'s' if len(places) > 1 else ''} {', '.join(places)}"


def words_of(name: str) -> str:
    """What a person calls a fact.

    >>> words_of("packages.numpy"), words_of("environment.NCCL_DEBUG"), words_of("os.kernel")
    ('numpy', 'NCCL_DEBUG', 'kernel')
    """
    known = FACTS.get(name)
    return known.words if known else name.removeprefix(PACKAGES).removeprefix(VARIABLES)


def severity_of(name: str) -> Severity:
    """How grave a difference in this fact is.

    >>> severity_of("gpus.count").value, severity_of("packages.numpy").value
    ('error', 'note')
    """
    if name in FACTS:
        return FACTS[name].severity
    package = name.removeprefix(PACKAGES)
    return W if name.startswith(PACKAGES) and package.startswith(FAMILY) else N


def is_optional(name: str) -> bool:
    """Whether a machine that was read may simply not have it, so that its absence is a value."""
    return name in MAY_LACK or name.startswith((PACKAGES, VARIABLES))


def told_absent(name: str, facts: Mapping[str, str]) -> bool:
    """Whether the record would have told this fact if it were there: others of its kind are."""
    if name in MAY_LACK:
        return "container.kind" in facts  # a whole snapshot says that, if only `none`
    kind = PACKAGES if name.startswith(PACKAGES) else VARIABLES
    return is_optional(name) and (kind == VARIABLES or any(one.startswith(kind) for one in facts))
