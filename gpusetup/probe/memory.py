"""Main memory, its limits, shared memory, and the room on the disks that an install needs."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.model.machine import Disk, Memory
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join, parent
from gpusetup.readings.proc import parse_meminfo
from gpusetup.system.system import Space, System, exists, read_or_none

UNLIMITED_BYTES = 1 << 60
"""From here on a limit of cgroup v1 means none (it prints the largest page-aligned number)."""


def read_memory(system: System) -> Memory:
    facts = system.facts()
    limits = facts.get("limits") or {}
    sizes = parse_meminfo(read_or_none(system, "/proc/meminfo") or "")
    shared = _space(system, "/dev/shm") if system.family == "linux" else None
    return Memory(
        total_bytes=sizes.get("MemTotal") or facts.get("memory_total"),
        available_bytes=sizes.get("MemAvailable"),
        cgroup_limit_bytes=read_cgroup_limit(system),
        shm_total_bytes=shared.total_bytes if shared else None,
        shm_free_bytes=shared.free_bytes if shared else None,
        memlock_bytes=limits.get("memlock"),
        address_space_bytes=limits.get("address_space"),
    )


def read_cgroup_limit(system: System) -> int | None:
    """The memory limit of our cgroup, in bytes; None where there is none."""
    for path in _limit_files(system):
        limit = (read_or_none(system, path) or "").strip()
        if limit.isdigit() and int(limit) < UNLIMITED_BYTES:
            return int(limit)
    return None


def _limit_files(system: System) -> Iterable[str]:
    """Our own cgroup's files, then those of the root that a container sees (v2, then v1)."""
    for line in (read_or_none(system, "/proc/self/cgroup") or "").splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if path not in ("", "/") and (number == "0" or "memory" in controllers.split(",")):
            root = "/sys/fs/cgroup" if number == "0" else "/sys/fs/cgroup/memory"
            name = "memory.max" if number == "0" else "memory.limit_in_bytes"
            yield f"{root}{path}/{name}"
    yield "/sys/fs/cgroup/memory.max"
    yield "/sys/fs/cgroup/memory/memory.limit_in_bytes"


# --- disks ----------------------------------------------------------------------------------------


def read_disks(system: System, target: Target | None) -> tuple[Disk, ...]:
    """The room where an install writes: the target, the caches, the temporary folder."""
    places = {
        "site-packages": target.site_packages if target else None,
        "uv-cache": cache_folder(system, "uv"),
        "pip-cache": cache_folder(system, "pip"),
        "tmp": temporary_folder(system),
    }
    return tuple(_disk(system, subject, path) for subject, path in places.items() if path)


def _disk(system: System, subject: str, path: str) -> Disk:
    """The disk of a folder, which may not be there yet: then of the nearest one above it."""
    there = path
    while not exists(system, there) and parent(there) != there:
        there = parent(there)
    space = _space(system, there)
    try:
        writable = system.stat(there).writable
    except OSError:
        writable = None
    return Disk(
        subject=subject,
        path=path,
        free_bytes=space.free_bytes if space else None,
        writable=writable,
    )


def cache_folder(system: System, tool: str) -> str | None:
    """Where uv or pip keeps its downloads on this system."""
    environ, home = system.environ(), system.facts().get("home")
    if named := environ.get(f"{tool.upper()}_CACHE_DIR"):
        return named
    if system.family == "windows":
        local = environ.get("LOCALAPPDATA")
        return join(local, tool, "cache" if tool == "uv" else "Cache") if local else None
    if system.family == "macos" and tool == "pip":
        return join(home, "Library", "Caches", "pip") if home else None
    root = environ.get("XDG_CACHE_HOME") or (join(home, ".cache") if home else None)
    return join(root, tool) if root else None


def temporary_folder(system: System) -> str | None:
    environ = system.environ()
    if system.family == "windows":
        return environ.get("TEMP") or environ.get("TMP")
    return environ.get("TMPDIR") or "/tmp"


def _space(system: System, path: str) -> Space | None:
    try:
        return system.space(path)
    except OSError:
        return None
