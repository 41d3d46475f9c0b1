"""The host: its operating system, CPU, compilers and memory, and the room on its disks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Cpu, Disk, Memory, Os, Reading, Snapshot, Toolkit
from gpusetup.model.units import architecture_named
from gpusetup.probe.distribution import read_distribution
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join, parent
from gpusetup.readings.proc import parse_meminfo
from gpusetup.system.system import (
    System,
    exists,
    is_writable,
    list_or_empty,
    read_or_none,
    unless_refused,
)

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def read_os(system: System) -> Snapshot:
    """The system alone: what another machine that somebody describes may share with this one."""
    facts, family = system.facts(), system.family
    machine = str(facts.get("machine") or "")
    plain = Os(
        family=family,
        id=family,
        kernel=facts.get("release"),
        machine=architecture_named(machine) or None,
        wsl=False,
    )
    if family == "linux":
        return _linux(system, facts, plain)
    if family == "windows":
        version = facts.get("os_version") or None
        named = replace(plain, name=windows_name(version or ""), version=version, kernel=version)
    else:
        version = facts.get("mac_version") or ""
        named = replace(plain, name=f"macOS {version}".strip(), version=version or None)
    return Snapshot(
        taken_at=facts.get("now"),
        os=named,
        readings=(Reading(subject="os", source="platform", value=named.name),),
    )


def _linux(system: System, facts: Mapping[str, Any], plain: Os) -> Snapshot:
    distribution = read_distribution(system)
    libc = read_libc(system, facts)
    boot = read_or_none(system, SECURE_BOOT)
    version = (read_or_none(system, "/proc/version") or "").lower()
    named = replace(
        plain,
        name=distribution.name,
        id=distribution.id,
        version=distribution.version,
        like=distribution.like,
        libc=libc,
        wsl="microsoft" in version or exists(system, "/dev/dxg"),
        jetson=read_jetson(system),
        secure_boot=boot.endswith("\x01") if boot else None,
    )
    unknown = None if libc else "no C library is known"
    return Snapshot(
        taken_at=facts.get("now"),
        os=named,
        readings=(
            Reading(
                subject="os",
                source=distribution.source,
                value=distribution.name,
                problem=distribution.problem,
            ),
            Reading(subject="libc", source="confstr", value=libc, problem=unknown),
        ),
    )


def windows_name(version: str) -> str:
    """Windows 11 still calls itself 10; its build number tells.

    >>> windows_name("10.0.26100"), windows_name("10.0.19045")
    ('Windows 11', 'Windows 10')
    """
    found = re.match(r"10\.\d+\.(\d+)", version)
    if not found:
        return f"Windows {version.partition('.')[0]}".strip()
    return "Windows 11" if int(found[1]) >= 22000 else "Windows 10"


def read_libc(system: System, facts: Mapping[str, Any]) -> str | None:
    """`glibc 2.36` as Python was told, or musl by its loader."""
    musl = any(name.startswith("ld-musl-") for name in list_or_empty(system, "/lib"))
    return facts.get("libc") or ("musl" if musl else None)


def read_jetson(system: System) -> str | None:
    """The L4T release, else the board's name where it is a Jetson, else None. A maker's own carrier
    board has a name of its own; its chip is a Tegra."""
    l4t = read_or_none(system, "/etc/nv_tegra_release") or ""
    if release := re.search(r"# R(\d+) \(release\), REVISION: ([\d.]+)", l4t):
        return f"R{release[1]}.{release[2]}"
    model = (read_or_none(system, "/proc/device-tree/model") or "").strip("\0\n ")
    chip = read_or_none(system, "/proc/device-tree/compatible") or ""
    return model if re.search(r"nvidia,(?:tegra|thor)", chip) or "Jetson" in model else None


# --- the CPU --------------------------------------------------------------------------------------


def read_cpu(system: System) -> Cpu:
    facts = system.facts()
    usable, quota = facts.get("usable_cores"), read_cpu_quota(system)
    if usable and quota:
        usable = min(usable, max(1, math.ceil(quota)))
    name = re.search(r"^model name\s*:\s*(.+)$", read_or_none(system, "/proc/cpuinfo") or "", re.M)
    return Cpu(
        name=name[1].strip() if name else None,
        logical_cores=facts.get("cores"),
        usable_cores=usable,
    )


def read_cpu_quota(system: System) -> float | None:
    """How many cores our cgroup grants, or one that it is in; `max` is no limit."""
    quotas = (re.match(r"(\d+) ([1-9]\d*)", text) for text in cgroup_values(system, "cpu.max"))
    return min((int(quota[1]) / int(quota[2]) for quota in quotas if quota), default=None)


def cgroup_values(system: System, name: str) -> Iterator[str]:
    """What a file of our own cgroup (v2) and of those above it says."""
    path = re.search(r"^0::(/.*)$", read_or_none(system, "/proc/self/cgroup") or "", re.M)
    own = PurePosixPath("/sys/fs/cgroup" + (path[1] if path else ""))
    for folder in (own, *own.parents):
        yield read_or_none(system, f"{folder}/{name}") or ""


NVCC_SECONDS = 3.0
COMPILERS = ("cc", "gcc", "clang", "cl", "clang-cl")


def read_toolkit(system: System) -> Snapshot:
    """What the first `nvcc` on PATH says of its version, and the first compiler there."""
    compiler = next(filter(None, map(system.which, COMPILERS)), None)
    path = system.which("nvcc")
    output = system.run([path, "--version"], NVCC_SECONDS) if path else None
    release = re.search(r"release (\d+\.\d+)", output.stdout) if output else None
    version, problem = release[1] if release else None, None
    if version is None:
        problem = output.problem or "its output names no release" if output else "not on PATH"
    reading = Reading(subject="toolkit", source=path or "nvcc", value=version, problem=problem)
    return Snapshot(toolkit=Toolkit(nvcc=version, compiler=compiler), readings=(reading,))


def read_memory(system: System) -> Memory:
    facts = system.facts()
    limits = facts.get("limits") or {}
    sizes = parse_meminfo(read_or_none(system, "/proc/meminfo") or "")
    shared = unless_refused(system.space, "/dev/shm") if system.family == "linux" else None
    return Memory(
        total_bytes=sizes.get("MemTotal") or facts.get("memory_total"),
        available_bytes=sizes.get("MemAvailable"),
        cgroup_limit_bytes=read_cgroup_limit(system),
        shm_total_bytes=shared.total_bytes if shared else None,
        memlock_bytes=limits.get("memlock"),
    )


def read_cgroup_limit(system: System) -> int | None:
    """The memory limit of our cgroup, or of one that it is in, in bytes; None: there is none."""
    limits = (text.strip() for text in cgroup_values(system, "memory.max"))
    return min((int(limit) for limit in limits if limit.isdigit()), default=None)


def free_memory(system: System) -> int | None:
    """What a process may still take: what the host has free, and what our cgroups leave."""
    free = [parse_meminfo(read_or_none(system, "/proc/meminfo") or "").get("MemAvailable")]
    names = ("memory.max", "memory.current", "memory.stat")
    for limit, used, stat in zip(*(cgroup_values(system, name) for name in names), strict=True):
        if limit.strip().isdigit() and used:
            files = sum(map(int, re.findall(r"active_file (\d+)", stat)))  # the kernel drops them
            free.append(int(limit) - max(0, int(used) - files))
    return min(filter(None, free), default=None)


# --- disks ----------------------------------------------------------------------------------------


def read_disks(system: System, target: Target | None) -> tuple[Disk, ...]:
    """The room where an install writes: the target, the caches, the temporary folder."""
    environ, home = system.environ(), system.facts().get("home")
    usual, root = "/tmp", environ.get("XDG_CACHE_HOME") or (home and join(home, ".cache"))
    if system.family == "windows":
        usual, root = environ.get("TEMP", ""), environ.get("LOCALAPPDATA")
    places = {"site-packages": target.site_packages if target else None}
    for tool in ("uv", "pip"):
        named = environ.get(f"{tool.upper()}_CACHE_DIR")
        places[f"{tool}-cache"] = named or (root and join(root, tool))
    places["tmp"] = environ.get("TMPDIR") or usual
    return tuple(_disk(system, subject, path) for subject, path in places.items() if path)


def _disk(system: System, subject: str, path: str) -> Disk:
    """The disk of a folder, which may not be there yet: then of the nearest one above it."""
    folder = path
    while not exists(system, folder) and parent(folder) != folder:
        folder = parent(folder)
    space = unless_refused(system.space, folder)
    return Disk(
        subject=subject,
        path=path,
        free_bytes=space.free_bytes if space else None,
        writable=is_writable(system, folder),
    )
