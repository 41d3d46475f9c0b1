"""The host: operating system, CPU, compilers, memory, and free disk space."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Cpu, Disk, Memory, Os, Reading, Snapshot, Toolkit
from gpusetup.model.units import architecture_named
from gpusetup.probe.target import TargetPython
from gpusetup.readings.paths import join, parent
from gpusetup.system.system import System, exists, list_or_empty, read_or_none, unless_refused

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def read_os(system: System) -> Snapshot:
    """Reads only the operating system. A machine that the user describes (`--gpu`, `--driver`) is
    assumed to have the same one as this machine, unless the description names another."""
    facts, family = system.facts(), system.family
    machine = architecture_named(str(facts.get("machine") or "")) or None
    kernel = facts.get("release")
    os = Os(family=family, id=family, kernel=kernel, machine=machine, wsl=False)
    if family == "linux":
        return _linux(system, facts, os)
    if family == "windows":
        version = facts.get("os_version") or ""
        build = re.match(r"10\.\d+\.(\d+)", version)
        # Windows 11 still reports version 10; its first build is 22000.
        edition = "11" if build and int(build[1]) >= 22000 else version.partition(".")[0]
        name = f"Windows {edition}".strip()
        os = replace(os, name=name, version=version or None, kernel=version or None)
    else:  # macOS
        version = facts.get("mac_version") or ""
        os = replace(os, name=f"macOS {version}".strip(), version=version or None)
    reading = Reading(subject="os", source="platform", value=os.name)
    return Snapshot(taken_at=facts.get("now"), os=os, readings=(reading,))


OS_RELEASE = "/etc/os-release"
OS_SETTING = re.compile(r"""(?m)^[ \t]*(\w+)=(["']?)([^\n]*)\2[ \t]*$""")
"""A line such as `PRETTY_NAME="Ubuntu 24.04.1 LTS"`."""


def _linux(system: System, facts: Mapping[str, Any], os: Os) -> Snapshot:
    """The facts about a Linux system, with its distribution, C library and firmware settings."""
    text = read_or_none(system, OS_RELEASE) or ""
    release = {name: value for name, _, value in OS_SETTING.findall(text)}
    name = release.get("PRETTY_NAME") or release.get("NAME") or None
    # The version that Python reports, such as `glibc 2.36`, or musl's loader.
    has_musl = any(file.startswith("ld-musl-") for file in list_or_empty(system, "/lib"))
    libc = str(facts.get("libc") or "") or ("musl" if has_musl else None)
    kernel_version = read_or_none(system, "/proc/version") or ""
    # The last byte of this EFI variable is 1 if Secure Boot is on. Without EFI there is none.
    secure_boot = read_or_none(system, SECURE_BOOT)
    # A kernel that a user built for WSL need not name Microsoft, but has WSL's device.
    is_wsl = "microsoft" in kernel_version.lower() or exists(system, "/dev/dxg")
    os = replace(
        os,
        name=name,
        id=release.get("ID", "").lower() or None,
        version=release.get("VERSION_ID") or None,
        # The closest relative first: a derived distribution can use their packages.
        like=tuple(release.get("ID_LIKE", "").lower().split()),
        libc=libc,
        wsl=is_wsl,
        jetson=read_jetson(system),
        secure_boot=secure_boot.endswith("\x01") if secure_boot else None,
    )
    problem = None if name else "no os-release file names the distribution"
    os_reading = Reading(subject="os", source=OS_RELEASE, value=name, problem=problem)
    libc_problem = None if libc else "no C library is known"
    libc_reading = Reading(subject="libc", source="confstr", value=libc, problem=libc_problem)
    return Snapshot(taken_at=facts.get("now"), os=os, readings=(os_reading, libc_reading))


L4T_RELEASE = re.compile(r"# R(\d+) \(release\), REVISION: ([\d.]+)")
"""The first line of /etc/nv_tegra_release, such as `# R36 (release), REVISION: 4.0, GCID: ...`."""


def read_jetson(system: System) -> str | None:
    """The L4T release of a Jetson (`R36.4.0`) or else its board's name; None for other machines."""
    release = L4T_RELEASE.search(read_or_none(system, "/etc/nv_tegra_release") or "")
    if release is not None:
        return f"R{release[1]}.{release[2]}"
    model = (read_or_none(system, "/proc/device-tree/model") or "").strip("\0\n ")
    chip = read_or_none(system, "/proc/device-tree/compatible") or ""
    # A carrier board from another maker has its own name, but its chip is a Tegra.
    is_jetson = re.search(r"nvidia,(?:tegra|thor)", chip) or "Jetson" in model
    return (model or "Jetson") if is_jetson else None


# --- the CPU --------------------------------------------------------------------------------------


def read_cpu(system: System) -> Cpu:
    """Two numbers of cores: all of them, and those that this process may use."""
    facts, quota = system.facts(), read_cpu_quota(system)
    usable_cores = facts.get("usable_cores")
    if usable_cores and quota:
        # Round the quota up: with 1.5 cores, two threads run at three quarters of their speed.
        usable_cores = min(usable_cores, math.ceil(quota))
    return Cpu(logical_cores=facts.get("cores"), usable_cores=usable_cores)


CPU_QUOTA = re.compile(r"(\d+) ([1-9]\d*)")
"""The content of `cpu.max`, such as `150000 100000`: microseconds of CPU time in each period. `max
100000` means no limit and does not match."""


def read_cpu_quota(system: System) -> float | None:
    """The number of cores that our cgroup or one above it allows; None if there is no limit."""
    quotas = filter(None, map(CPU_QUOTA.match, cgroup_values(system, "cpu.max")))
    return min((int(quota[1]) / int(quota[2]) for quota in quotas), default=None)


OWN_CGROUP = re.compile(r"^0::(/.*)$", re.MULTILINE)
"""The line for cgroup version 2 in /proc/self/cgroup, such as `0::/user.slice/job-7`."""


def cgroup_values(system: System, name: str) -> Iterator[str]:
    """The text of a file in our cgroup (v2), then in each cgroup above it. If a file does not
    exist, its text is empty."""
    cgroups = read_or_none(system, "/proc/self/cgroup") or ""
    own = OWN_CGROUP.search(cgroups)
    # The cgroup's path begins with a slash, but it is relative to /sys/fs/cgroup.
    folder = PurePosixPath(f"/sys/fs/cgroup{own[1] if own else ''}")
    for cgroup in (folder, *folder.parents):
        yield read_or_none(system, f"{cgroup}/{name}") or ""


NVCC_SECONDS = 3.0
NVCC_RELEASE = re.compile(r"release (\d+\.\d+)")
"""nvcc's output, such as `Cuda compilation tools, release 12.8, V12.8.93`."""


def read_toolkit(system: System) -> Snapshot:
    """The version of the first `nvcc` on PATH."""
    path = system.which("nvcc")
    version: str | None = None
    problem: str | None = "not on PATH"
    if path is not None:
        output = system.run([path, "--version"], NVCC_SECONDS)
        release = NVCC_RELEASE.search(output.stdout)
        version = release[1] if release else None
        problem = None if release else output.problem or "its output names no release"
    source = path or "nvcc"
    reading = Reading(subject="toolkit", source=source, value=version, problem=problem)
    return Snapshot(toolkit=Toolkit(nvcc=version), readings=(reading,))


def read_memory(system: System) -> Memory:
    """The machine's memory, and the limits of this process and its container, in bytes."""
    sizes = _memory_sizes(system)
    # DataLoader workers pass their batches on through /dev/shm.
    shared = unless_refused(system.space, "/dev/shm") if system.family == "linux" else None
    limits = (text.strip() for text in cgroup_values(system, "memory.max"))
    return Memory(
        total_bytes=sizes.get("MemTotal") or system.facts().get("memory_total"),
        available_bytes=sizes.get("MemAvailable"),
        # The text `max` means no limit.
        cgroup_limit_bytes=min(map(int, filter(str.isdigit, limits)), default=None),
        shm_total_bytes=shared.total_bytes if shared else None,
    )


def free_memory(system: System) -> int | None:
    """The bytes of memory that a process can still use, limited by the host and all our cgroups;
    None if unknown."""
    free_sizes = [_memory_sizes(system).get("MemAvailable")]
    files = ("memory.max", "memory.current", "memory.stat")
    of_cgroups = zip(*(cgroup_values(system, file) for file in files), strict=True)
    for limit, used, statistics in of_cgroups:
        # The limit `max` is none. Without such a cgroup (version 1, not Linux), both are empty.
        if limit.strip().isdigit() and used:
            # Cached files (`active_file` and `inactive_file`) count as used, but the kernel drops
            # them when memory is needed.
            cached = sum(map(int, re.findall(r"active_file (\d+)", statistics)))
            free_sizes.append(max(0, int(limit) - max(0, int(used) - cached)))
    return min((size for size in free_sizes if size is not None), default=None)


def _memory_sizes(system: System) -> dict[str, int]:
    """The sizes in `/proc/meminfo`, in bytes."""
    # The kernel writes "kB" but means KiB.
    rows = re.findall(r"^(\w+):\s+(\d+) kB$", read_or_none(system, "/proc/meminfo") or "", re.M)
    return {name: int(kibibytes) * 1024 for name, kibibytes in rows}


# --- disks ----------------------------------------------------------------------------------------


def read_disks(system: System, target: TargetPython | None) -> tuple[Disk, ...]:
    """The free disk space where an install writes: target, caches and temporary folder."""
    environ, home = system.environ(), system.facts().get("home")
    on_windows = system.family == "windows"
    temporary = environ.get("TEMP", "") if on_windows else "/tmp"
    caches = environ.get("LOCALAPPDATA" if on_windows else "XDG_CACHE_HOME")
    if not caches and home and not on_windows:
        caches = join(home, ".cache")
    # Only their disk matters, so the usual folders of uv and pip need not be exact.
    folders: dict[str, str | None] = {
        "site-packages": target.record.site_packages if target else None
    }
    for tool in ("uv", "pip"):
        usual = join(caches, tool) if caches else None
        folders[f"{tool}-cache"] = environ.get(f"{tool.upper()}_CACHE_DIR") or usual
    folders["tmp"] = environ.get("TMPDIR") or temporary
    disks = []
    for subject, path in folders.items():
        if not path:
            continue
        # If the folder does not exist, its nearest existing parent counts.
        folder = path
        while not exists(system, folder) and parent(folder) != folder:
            folder = parent(folder)
        space = unless_refused(system.space, folder)
        free = space.free_bytes if space else None
        disks.append(Disk(subject=subject, path=path, free_bytes=free))
    return tuple(disks)
