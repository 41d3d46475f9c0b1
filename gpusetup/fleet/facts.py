"""What two machines are compared by: each fact of a record as one line of text.

A fact is what should be the same on machines of one kind. What differs by nature (a temperature, a
UUID, a bus address, free memory) is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.units import GIB, MIB

UNKNOWN = "unknown"
ABSENT = "absent"
"""The value of a package or a variable that the machine does not have."""


class Fact(Frozen):
    """One field that is compared."""

    name: str
    words: str
    """What a person calls it."""
    severity: Severity
    """How grave it is where one machine differs from the others."""
    read: Callable[[Snapshot], object]


def _gib(size: int | None) -> str | None:
    """
    >>> _gib(80 << 30), _gib(64 << 20)
    ('80 GiB', '64 MiB')
    """
    if size is None:
        return None
    return f"{size / GIB:.0f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _yes_no(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _whole(watts: float | None) -> str | None:
    return None if watts is None else f"{watts:.0f} W"


def _mhz(clock: int | None) -> str | None:
    return None if clock is None else f"{clock} MHz"


E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE

MACHINE = (
    Fact(name="driver.version", words="driver", severity=W, read=lambda s: s.driver.version),
    Fact(name="driver.cuda", words="CUDA of the driver", severity=W, read=lambda s: s.driver.cuda),
    Fact(name="driver.library_version", words="driver library", severity=W,
         read=lambda s: s.driver.library_version),
    Fact(name="driver.open_module", words="open kernel module", severity=N,
         read=lambda s: _yes_no(s.driver.open_module)),
    Fact(name="driver.persistence", words="persistence mode", severity=N,
         read=lambda s: _yes_no(s.driver.persistence)),
    Fact(name="os.name", words="system", severity=N, read=lambda s: s.os.name),
    Fact(name="os.kernel", words="kernel", severity=N, read=lambda s: s.os.kernel),
    Fact(name="os.machine", words="architecture", severity=W, read=lambda s: s.os.machine),
    Fact(name="os.libc", words="C library", severity=N, read=lambda s: s.os.libc),
    Fact(name="python.version", words="Python", severity=N, read=lambda s: s.python.version),
    Fact(name="torch.version", words="torch", severity=W, read=lambda s: s.torch.version),
    Fact(name="torch.backend", words="torch's backend", severity=W, read=lambda s: s.torch.backend),
    Fact(name="torch.cudnn", words="cuDNN", severity=N, read=lambda s: s.torch.cudnn),
    Fact(name="toolkit.nvcc", words="CUDA toolkit", severity=N, read=lambda s: s.toolkit.nvcc),
    Fact(name="container.kind", words="container", severity=N, read=lambda s: s.container.kind),
    Fact(name="cpu.name", words="processor", severity=N, read=lambda s: s.cpu.name),
    Fact(name="cpu.usable_cores", words="usable cores", severity=N,
         read=lambda s: s.cpu.usable_cores),
    Fact(name="memory.total_bytes", words="memory", severity=W,
         read=lambda s: _gib(s.memory.total_bytes)),
    Fact(name="memory.shm_total_bytes", words="/dev/shm", severity=N,
         read=lambda s: _gib(s.memory.shm_total_bytes)),
    Fact(name="memory.memlock_bytes", words="locked memory", severity=N,
         read=lambda s: s.memory.memlock_bytes),
    Fact(name="gpus.count", words="number of GPUs", severity=E,
         read=lambda s: None if s.gpus is None else len(s.gpus)),
)  # fmt: skip
"""What a machine has once."""


class GpuFact(Frozen):
    """One field that is compared over the GPUs of a machine."""

    name: str
    words: str
    severity: Severity
    read: Callable[[Gpu], object]


GPUS = (
    GpuFact(name="gpus.name", words="GPU", severity=W, read=lambda g: g.name),
    GpuFact(name="gpus.memory_total_bytes", words="GPU memory", severity=W,
            read=lambda g: _gib(g.memory_total_bytes)),
    GpuFact(name="gpus.lost", words="fallen off the bus", severity=E,
            read=lambda g: _yes_no(g.lost)),
    GpuFact(name="gpus.mig_enabled", words="MIG", severity=W,
            read=lambda g: _yes_no(g.mig_enabled)),
    GpuFact(name="gpus.mig_instances", words="MIG instances", severity=W,
            read=lambda g: len(g.mig_instances) if g.mig_enabled else None),
    GpuFact(name="gpus.compute_mode", words="compute mode", severity=W,
            read=lambda g: g.compute_mode),
    GpuFact(name="gpus.ecc_enabled", words="ECC", severity=W,
            read=lambda g: _yes_no(g.ecc_enabled)),
    GpuFact(name="gpus.recovery_action", words="recovery action", severity=W,
            read=lambda g: g.recovery_action),
    GpuFact(name="gpus.power_limit_watts", words="power limit", severity=W,
            read=lambda g: _whole(g.power_limit_watts)),
    GpuFact(name="gpus.power_limit_default_watts", words="rated power", severity=N,
            read=lambda g: _whole(g.power_limit_default_watts)),
    GpuFact(name="gpus.pcie_generation_max", words="PCIe generation", severity=W,
            read=lambda g: g.pcie_generation_max),
    GpuFact(name="gpus.pcie_width", words="PCIe lanes", severity=W, read=lambda g: g.pcie_width),
    GpuFact(name="gpus.pcie_width_max", words="PCIe lanes of the slot", severity=W,
            read=lambda g: g.pcie_width_max),
    GpuFact(name="gpus.nvlinks_active", words="active NVLinks", severity=W,
            read=lambda g: g.nvlinks_active),
    GpuFact(name="gpus.fabric_state", words="fabric", severity=W, read=lambda g: g.fabric_state),
    GpuFact(name="gpus.vbios_version", words="VBIOS", severity=W, read=lambda g: g.vbios_version),
    GpuFact(name="gpus.inforom_version", words="InfoROM", severity=N,
            read=lambda g: g.inforom_version),
    GpuFact(name="gpus.clock_sm_max_mhz", words="highest SM clock", severity=W,
            read=lambda g: _mhz(g.clock_sm_max_mhz)),
    GpuFact(name="gpus.clock_memory_max_mhz", words="highest memory clock", severity=W,
            read=lambda g: _mhz(g.clock_memory_max_mhz)),
    GpuFact(name="gpus.clock_sm_application_mhz", words="application clock", severity=W,
            read=lambda g: _mhz(g.clock_sm_application_mhz)),
    GpuFact(name="gpus.driver_model", words="driver model", severity=W,
            read=lambda g: g.driver_model),
    GpuFact(name="gpus.virtualization", words="virtualisation", severity=N,
            read=lambda g: g.virtualization),
)  # fmt: skip
"""What each GPU has."""

PACKAGES, VARIABLES = "packages.", "environment."
WORDS = {fact.name: fact.words for fact in (*MACHINE, *GPUS)}
SEVERITIES = {fact.name: fact.severity for fact in (*MACHINE, *GPUS)}
MAY_LACK = ("toolkit.nvcc",)
"""Facts of a whole record that are told only where there is such a thing."""
FAMILY = ("torchvision", "torchaudio", "triton", "nvidia-nccl")
"""Packages whose difference stops or slows a training of several machines."""


def facts_of(snapshot: Snapshot) -> dict[str, str]:
    """Every fact that the record tells, by name; what no source told is left out.

    >>> facts_of(Snapshot(gpus=(Gpu(name="L4", pcie_width=16), Gpu(name="L4", pcie_width=8))))
    {'gpus.count': '2', 'gpus.name': 'L4', 'gpus.pcie_width': '1 x 16, 1 x 8 (GPU 1)'}
    """
    return dict(_facts(snapshot))


def _facts(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for fact in MACHINE:
        value = fact.read(snapshot)
        if value is not None:
            yield fact.name, str(value)
    for of_each in GPUS:
        values = [of_each.read(gpu) for gpu in snapshot.gpus or ()]
        if any(value is not None for value in values):
            yield of_each.name, summed([str(v) if v is not None else UNKNOWN for v in values])
    for package in snapshot.packages or ():
        yield f"{PACKAGES}{package.name}", package.version
    for name, value in snapshot.environment.items():
        yield f"{VARIABLES}{name}", value


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
    return WORDS.get(name) or name.removeprefix(PACKAGES).removeprefix(VARIABLES)


def severity_of(name: str) -> Severity:
    """How grave a difference in this fact is.

    >>> severity_of("gpus.count").value, severity_of("packages.numpy").value
    ('error', 'note')
    """
    if name in SEVERITIES:
        return SEVERITIES[name]
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
