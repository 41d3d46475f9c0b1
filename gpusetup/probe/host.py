"""The operating system, its libc, kernel and CPU. The home of `distro`."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Cpu, Os, Reading, Snapshot
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""What the systems call one architecture -> what wheels call it."""
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MUSL_SECONDS = 2.0


def read_system(system: System) -> Snapshot:
    """The system alone: what another machine that somebody describes may share with this one."""
    found, readings = read_os(system)
    return Snapshot(taken_at=system.facts().get("now"), os=found, readings=readings)


def read_os(system: System) -> tuple[Os, tuple[Reading, ...]]:
    facts, family = system.facts(), system.family
    machine = str(facts.get("machine") or "")
    plain = Os(
        family=family,
        id=family,
        kernel=facts.get("release"),
        machine=MACHINES.get(machine.lower(), machine) or None,
        wsl=False,
    )
    if family == "linux":
        return _linux(system, facts, plain)
    if family == "windows":
        version = facts.get("os_version") or None
        name = windows_name(version or "")
        found = replace(plain, name=name, version=version, kernel=version)
    else:
        version = facts.get("mac_version") or None
        found = replace(plain, name=f"macOS {version}" if version else "macOS", version=version)
    return found, (Reading(subject="os", source="platform", value=found.name),)


def _linux(system: System, facts: Mapping[str, Any], plain: Os) -> tuple[Os, tuple[Reading, ...]]:
    texts = {
        path: read_or_none(system, path) for path in ("/etc/os-release", "/usr/lib/os-release")
    }
    path = next((path for path, text in texts.items() if text is not None), None)
    release = os_release(texts[path] or "") if path else _by_older_files(system)
    name = release.get("PRETTY_NAME") or release.get("NAME")
    problem = None if name else "no release file in /etc or /usr/lib"
    source = Reading(subject="os", source=path or "/etc/os-release", value=name, problem=problem)
    libc, reading = read_libc(system, facts)
    boot = read_or_none(system, SECURE_BOOT)
    version = (read_or_none(system, "/proc/version") or "").lower()
    found = replace(
        plain,
        name=name,
        id=release.get("ID", "").lower() or None,
        version=release.get("VERSION_ID") or None,
        libc=libc,
        wsl="microsoft" in version or exists(system, "/dev/dxg"),
        jetson=read_jetson(system),
        secure_boot=boot.endswith("\x01") if boot else None,
    )
    return found, (source, reading)


def windows_name(version: str) -> str:
    """Windows 11 still calls itself 10; its build number tells.

    >>> windows_name("10.0.26100"), windows_name("10.0.19045")
    ('Windows 11', 'Windows 10')
    """
    found = re.match(r"10\.\d+\.(\d+)", version)
    if not found:
        return f"Windows {version.partition('.')[0]}".strip()
    return "Windows 11" if int(found[1]) >= 22000 else "Windows 10"


def os_release(text: str) -> dict[str, str]:
    """What an os-release file says.

    >>> os_release('ID=debian\\nPRETTY_NAME="Debian 12"')["PRETTY_NAME"]
    'Debian 12'
    """
    rows = re.findall(r"""^(\w+)=(["']?)(.*?)\2\s*$""", text, re.M)
    return {name: value for name, _, value in rows}


OLDER_FILES = ("redhat-release", "centos-release", "SuSE-release", "debian_version")


def _by_older_files(system: System) -> dict[str, str]:
    """What `distro` makes of the files before os-release, laid out in a folder for it."""
    import distro

    try:
        with tempfile.TemporaryDirectory() as root:
            Path(root, "etc").mkdir()
            for name in OLDER_FILES:
                if text := read_or_none(system, f"/etc/{name}"):
                    Path(root, "etc", name).write_text(text, encoding="utf-8")
            found = distro.LinuxDistribution(include_lsb=False, include_uname=False, root_dir=root)
            return {
                "NAME": found.name(pretty=True),
                "ID": found.id(),
                "VERSION_ID": found.version(),
            }
    except OSError:
        return {}


def read_libc(system: System, facts: Mapping[str, Any]) -> tuple[str | None, Reading]:
    """`glibc 2.36` as Python was told, or musl by its loader."""
    if told := facts.get("libc"):
        return told, Reading(subject="libc", source="confstr", value=told)
    for name in list_or_empty(system, "/lib"):
        if re.fullmatch(r"ld-musl-\w+\.so\.1", name):
            said = system.run([f"/lib/{name}"], MUSL_SECONDS)
            version = re.search(r"Version (\d[\d.]*)", said.stderr + said.stdout)
            libc = f"musl {version[1]}" if version else "musl"
            return libc, Reading(subject="libc", source=f"/lib/{name}", value=libc)
    return None, Reading(subject="libc", source="confstr", problem="no C library is known")


def read_jetson(system: System) -> str | None:
    """The L4T release, else the board's name where it is a Jetson, else None. A maker's own carrier
    board has a name of its own; its chip is a Tegra."""
    said = read_or_none(system, "/etc/nv_tegra_release") or ""
    if release := re.search(r"# R(\d+) \(release\), REVISION: ([\d.]+)", said):
        return f"R{release[1]}.{release[2]}"
    model = (read_or_none(system, "/proc/device-tree/model") or "").strip("\0\n ")
    chip = read_or_none(system, "/proc/device-tree/compatible") or ""
    return model if re.search(r"nvidia,(?:tegra|thor)", chip) or "Jetson" in model else None


# --- the CPU --------------------------------------------------------------------------------------


def read_cpu(system: System) -> Cpu:
    facts = system.facts()
    usable, quota = facts.get("usable_cores"), read_quota(system)
    if usable and quota:
        usable = min(usable, max(1, math.ceil(quota)))
    name = re.search(r"^model name\s*:\s*(.+)$", read_or_none(system, "/proc/cpuinfo") or "", re.M)
    return Cpu(
        name=name[1].strip() if name else None,
        logical_cores=facts.get("cores"),
        usable_cores=usable,
    )


def read_quota(system: System) -> float | None:
    """How many cores our cgroup grants, or one that it is in; `max` and -1 are no limit."""
    granted = []
    for folder in cgroup_folders(system, "cpu"):
        names = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
        for files in names:
            said = " ".join(read_or_none(system, f"{folder}/{name}") or "" for name in files)
            if found := re.fullmatch(r"(\d+)\s+([1-9]\d*)", said.strip()):
                granted.append(int(found[1]) / int(found[2]))
    return min(granted, default=None)


def cgroup_folders(system: System, controller: str) -> set[str]:
    """Our own cgroup's folders and those above them, of cgroup v2 and v1."""
    root = "/sys/fs/cgroup"
    found = {root, f"{root}/{controller}"}
    for line in (read_or_none(system, "/proc/self/cgroup") or "").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" or controller in controllers.split(","):
            own = PurePosixPath(f"{root}/{controller if controllers else ''}{path}")
            found |= {str(folder) for folder in (own, *own.parents)}
    return found
