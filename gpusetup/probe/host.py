"""The operating system, its libc, kernel and CPU. The home of `distro`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.model.machine import Cpu, Os, Reading, Snapshot
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""What the systems call one architecture -> what wheels call it."""

RELEASE_FILES = (
    "etc/os-release", "usr/lib/os-release", "etc/redhat-release", "etc/centos-release",
    "etc/SuSE-release", "etc/alpine-release", "etc/debian_version",
)  # fmt: skip
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MUSL_SECONDS = 2.0


def read_os(system: System) -> tuple[Os, tuple[Reading, ...]]:
    """The operating system; one row for each family."""
    facts = system.facts()
    found, readings = SYSTEMS[system.family](system, facts)
    return found, readings


def read_system(system: System) -> Snapshot:
    """The system alone: what another machine that somebody describes may share with this one."""
    found, readings = read_os(system)
    return Snapshot(taken_at=system.facts().get("now"), os=found, readings=readings)


def _linux(system: System, facts: Mapping[str, Any]) -> tuple[Os, tuple[Reading, ...]]:
    release, source = read_distro(system)
    libc, reading = read_libc(system, facts)
    found = Os(
        family="linux",
        name=release.get("pretty_name") or release.get("name"),
        id=release.get("id") or None,
        version=release.get("version_id") or None,
        kernel=facts.get("release"),
        machine=_machine(facts),
        libc=libc,
        wsl=is_wsl(system),
        jetson=read_jetson(system),
        secure_boot=read_secure_boot(system),
    )
    return found, (source, reading)


def _windows(system: System, facts: Mapping[str, Any]) -> tuple[Os, tuple[Reading, ...]]:
    version = str(facts.get("os_version") or "")
    found = Os(
        family="windows",
        name=windows_name(version),
        id="windows",
        version=version or None,
        kernel=version or None,
        machine=_machine(facts),
        wsl=False,
    )
    return found, (Reading(subject="os", source="platform", value=found.name),)


def _macos(system: System, facts: Mapping[str, Any]) -> tuple[Os, tuple[Reading, ...]]:
    version = facts.get("mac_version") or None
    found = Os(
        family="macos",
        name=f"macOS {version}" if version else "macOS",
        id="macos",
        version=version,
        kernel=facts.get("release"),
        machine=_machine(facts),
        wsl=False,
    )
    return found, (Reading(subject="os", source="platform", value=found.name),)


SYSTEMS = {"linux": _linux, "windows": _windows, "macos": _macos}


def _machine(facts: Mapping[str, Any]) -> str | None:
    machine = str(facts.get("machine") or "")
    return MACHINES.get(machine.lower(), machine) or None


def windows_name(version: str) -> str:
    """Windows 11 still calls itself 10; its build number tells.

    >>> windows_name("10.0.26100"), windows_name("10.0.19045")
    ('Windows 11', 'Windows 10')
    """
    parts = version.split(".")
    if parts[0] != "10" or len(parts) < 3 or not parts[2].isdigit():
        return f"Windows {parts[0]}".strip()
    return "Windows 11" if int(parts[2]) >= 22000 else "Windows 10"


def read_distro(system: System) -> tuple[Mapping[str, str], Reading]:
    """What `distro` makes of the machine's release files, read through the door."""
    texts = _release_texts(system)
    if not texts:
        problem = "no release file in /etc or /usr/lib"
        return {}, Reading(subject="os", source="/etc/os-release", problem=problem)
    try:
        found = os_release(texts.get("etc/os-release", "")) or _laid_out(texts)
    except OSError as problem:
        return {}, Reading(subject="os", source="/etc/os-release", problem=str(problem))
    value = found.get("pretty_name") or found.get("name")
    return found, Reading(subject="os", source=f"/{next(iter(texts))}", value=value)


def os_release(text: str) -> Mapping[str, str]:
    """What an os-release file says; nothing where it does not name system and version.

    Almost every system has one, and its form is the shell's (os-release(5)). `distro`, which
    knows the older files too, takes a tenth of doctor's whole time to load.

    >>> os_release('ID=arch')
    {}
    >>> os_release('ID=debian NAME=Debian PRETTY_NAME="Debian 12" VERSION_ID="12"')["pretty_name"]
    'Debian 12'
    """
    import shlex

    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return {}
    said = dict(word.split("=", 1) for word in words if "=" in word)
    if not all(said.get(key) for key in ("ID", "NAME", "VERSION_ID")):
        return {}
    return {
        "id": said["ID"].lower().replace(" ", "_"),
        "name": said["NAME"],
        "pretty_name": said.get("PRETTY_NAME") or said["NAME"],
        "version_id": said["VERSION_ID"],
    }


def _release_texts(system: System) -> dict[str, str]:
    """The release files by path; the copy in /usr/lib only where /etc has none."""
    texts = {path: read_or_none(system, f"/{path}") for path in RELEASE_FILES}
    if texts["etc/os-release"] is not None:
        texts["usr/lib/os-release"] = None
    return {path: text for path, text in texts.items() if text is not None}


def _laid_out(texts: Mapping[str, str]) -> Mapping[str, str]:
    """`distro` reads a folder, so the files are laid out in one: in memory if the disk is full."""
    try:
        return _by_distro(texts, None)
    except OSError:
        return _by_distro(texts, "/dev/shm")


def _by_distro(texts: Mapping[str, str], above: str | None) -> Mapping[str, str]:
    import tempfile

    import distro

    with tempfile.TemporaryDirectory(prefix="gpusetup-", dir=above) as root:
        for path, text in texts.items():
            place = Path(root, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        found = distro.LinuxDistribution(include_lsb=False, include_uname=False, root_dir=root)
        return {
            "id": found.id(),
            "name": found.name(),
            "pretty_name": found.name(pretty=True),
            "version_id": found.version(best=False),
        }


def read_libc(system: System, facts: Mapping[str, Any]) -> tuple[str | None, Reading]:
    """`glibc 2.36` as Python was told, or musl by its loader."""
    told = str(facts.get("libc") or "")
    if told:
        return told, Reading(subject="libc", source="confstr", value=told)
    for name in list_or_empty(system, "/lib"):
        if re.fullmatch(r"ld-musl-\w+\.so\.1", name):
            said = system.run([f"/lib/{name}"], MUSL_SECONDS)
            libc = parse_musl(said.stderr + said.stdout)
            return libc, Reading(subject="libc", source=f"/lib/{name}", value=libc)
    return None, Reading(subject="libc", source="confstr", problem="no C library is known")


def parse_musl(text: str) -> str:
    """What musl's loader says when it is started without a program.

    >>> parse_musl("musl libc (x86_64)\\nVersion 1.2.5\\nDynamic Program Loader")
    'musl 1.2.5'
    """
    match = re.search(r"Version (\d[\d.]*)", text)
    return f"musl {match[1]}" if match else "musl"


def is_wsl(system: System) -> bool:
    version = (read_or_none(system, "/proc/version") or "").lower()
    return "microsoft" in version or exists(system, "/dev/dxg")


def read_jetson(system: System) -> str | None:
    """The L4T release, else the board's name where it is a Jetson, else None."""
    release = parse_tegra_release(read_or_none(system, "/etc/nv_tegra_release") or "")
    if release:
        return release
    model = (read_or_none(system, "/proc/device-tree/model") or "").strip("\0\n ")
    return model if "Jetson" in model or _is_tegra(system) else None


def _is_tegra(system: System) -> bool:
    """Whether the chip is a Tegra: a maker's own carrier board has a name of its own."""
    chip = read_or_none(system, "/proc/device-tree/compatible") or ""
    return "nvidia,tegra" in chip or "nvidia,thor" in chip


def parse_tegra_release(text: str) -> str | None:
    """The release that `/etc/nv_tegra_release` names.

    >>> parse_tegra_release("# R36 (release), REVISION: 4.0, GCID: 37537400, BOARD: generic")
    'R36.4.0'
    """
    match = re.search(r"# R(\d+) \(release\), REVISION: ([\d.]+)", text)
    return f"R{match[1]}.{match[2]}" if match else None


def read_secure_boot(system: System) -> bool | None:
    """The last byte of the EFI variable; None where there is none or it is not readable."""
    value = read_or_none(system, SECURE_BOOT)
    return value.endswith("\x01") if value else None


# --- the CPU --------------------------------------------------------------------------------------


def read_cpu(system: System) -> Cpu:
    facts = system.facts()
    usable, quota = facts.get("usable_cores"), read_quota(system)
    if usable and quota:
        usable = min(usable, max(1, math.ceil(quota)))
    name = parse_cpu_name(read_or_none(system, "/proc/cpuinfo") or "")
    return Cpu(
        name=name or facts.get("processor"), logical_cores=facts.get("cores"), usable_cores=usable
    )


def parse_cpu_name(text: str) -> str | None:
    """The model's name in `/proc/cpuinfo`; ARM kernels print none.

    >>> parse_cpu_name("processor\\t: 0\\nmodel name\\t: AMD EPYC 7543 32-Core Processor\\n")
    'AMD EPYC 7543 32-Core Processor'
    """
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return match[1].strip() if match else None


def read_quota(system: System) -> float | None:
    """How many cores our cgroup grants, or one that it is in; None where there is no quota."""
    own = read_or_none(system, "/proc/self/cgroup") or ""
    granted = [_granted(system, folder) for folder in cgroup_folders(own)]
    return min((cores for cores in granted if cores is not None), default=None)


def cgroup_folders(text: str) -> tuple[str, ...]:
    """Where the quotas of `/proc/self/cgroup` stand, those of a container's own root first.

    >>> cgroup_folders("0::/user.slice/job")
    ('', '/cpu', '/user.slice/job', '/user.slice')
    >>> cgroup_folders("5:memory:/x\\n1:cpu,cpuacct:/docker/1f")
    ('', '/cpu', '/cpu/docker/1f', '/cpu/docker')
    """
    found = ["", "/cpu"]
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        base = "/cpu" if controllers else ""
        found += [base + "".join(f"/{p}" for p in parts[:n]) for n in range(len(parts), 0, -1)]
    return tuple(found)


def _granted(system: System, folder: str) -> float | None:
    v2 = read_or_none(system, f"/sys/fs/cgroup{folder}/cpu.max")
    if v2 is not None:
        return parse_cpu_max(v2)
    quota = read_or_none(system, f"/sys/fs/cgroup{folder}/cpu.cfs_quota_us")
    period = read_or_none(system, f"/sys/fs/cgroup{folder}/cpu.cfs_period_us")
    return parse_cpu_max(f"{quota} {period}") if quota and period else None


def parse_cpu_max(text: str) -> float | None:
    """`200000 100000` are two cores; `max` and -1 are no limit.

    >>> parse_cpu_max("200000 100000"), parse_cpu_max("max 100000"), parse_cpu_max("-1 100000")
    (2.0, None, None)
    """
    words = text.split()
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])
