"""Main memory, its limits, shared memory, and the room on the disks that an install needs."""

from __future__ import annotations

from gpusetup.model.machine import Disk, Memory
from gpusetup.probe.host import said_by_cgroups
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join, parent
from gpusetup.readings.proc import parse_meminfo
from gpusetup.system.system import System, exists, is_writable, read_or_none, unless_refused


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
    said = (text.strip() for text in said_by_cgroups(system, "memory.max"))
    return min((int(limit) for limit in said if limit.isdigit()), default=None)


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
    there = path
    while not exists(system, there) and parent(there) != there:
        there = parent(there)
    space = unless_refused(system.space, there)
    return Disk(
        subject=subject,
        path=path,
        free_bytes=space.free_bytes if space else None,
        writable=is_writable(system, there),
    )
