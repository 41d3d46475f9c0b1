"""Whether this is a container, of what kind, and whether GPUs were given to it."""

from __future__ import annotations

import re

from gpusetup.model.machine import Container, Reading, Snapshot
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

COMPAT = r"(?m)^[ \t]*(/\S*/compat(?:/lib[^/\s]*)?)/?[ \t]*$"


def read_container(system: System) -> Snapshot:
    """The container, from the first marker that says so."""
    if system.family != "linux":
        return Snapshot()
    kind, source = _kind_and_source(system)
    found = Container(
        kind=kind,
        nvidia_requested=None if kind == "none" else nvidia_given(system),
        cuda_compat_path=compat_path(system),
    )
    reading = Reading(subject="container", source=source, value=kind)
    return Snapshot(container=found, readings=(reading,))


MARKER_FILES = ("/.singularity.d", "/run/.containerenv", "/.dockerenv", "/dev/lxd", "/dev/.lxc")
MARKERS = {
    "\nKUBERNETES_SERVICE_HOST=": "kubernetes",
    "\nAPPTAINER_CONTAINER=": "singularity",
    "\nSINGULARITY_CONTAINER=": "singularity",
    "\n/.singularity.d": "singularity",
    "\n/run/.containerenv": "podman",
    "\n/.dockerenv": "docker",
    "\ncontainer=docker": "docker",
    "\ncontainer=oci": "docker",
    "\ncontainer=podman": "podman",
    "\ncontainer=lxc": "lxc",
    "\n/dev/": "lxc",
}
"""How a line begins that says it, the inner kind first: a pod is also a container of docker."""
CGROUPS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "lxc"}
"""What stands in a cgroup's path -> what made it."""


def _kind_and_source(system: System) -> tuple[str, str]:
    """What it is and what says so: a variable (systemd's convention gives the first process one,
    `container`), a file, or a cgroup."""
    first = (read_or_none(system, "/proc/1/environ") or "").replace("\0", "\n")
    own = "\n".join(f"{name}={value}" for name, value in system.environ().items())
    markers = "\n".join(path for path in MARKER_FILES if exists(system, path))
    lines = "\n".join(("", own, first, markers))
    ways = read_or_none(system, "/proc/1/cgroup") or ""
    found = [(kind, mark.strip()) for mark, kind in MARKERS.items() if mark in lines]
    found += [(kind, mark) for mark, kind in CGROUPS.items() if mark in ways]
    return next(iter(found), ("none", "no marker"))


def nvidia_given(system: System) -> bool | None:
    """Whether GPUs were given: their device nodes are there.

    CUDA images carry `NVIDIA_VISIBLE_DEVICES=all` themselves, so the variable alone says nothing.
    """
    names = list_or_empty(system, "/dev")
    if not names:
        return None
    return any(re.fullmatch(r"nvidia(ctl|\d+)|dxg|nvmap|nvhost-gpu", name) for name in names)


def compat_path(system: System) -> str | None:
    """The first cuda-compat folder whose libcuda the loader would find before the driver's."""
    conf = "/etc/ld.so.conf.d"
    names = (name for name in list_or_empty(system, conf) if name.endswith(".conf"))
    texts = (read_or_none(system, f"{conf}/{name}") or "" for name in names)
    listed = system.environ().get("LD_LIBRARY_PATH", "").replace(":", "\n")
    found = re.findall(COMPAT, "\n".join((listed, *texts)))
    return next((folder for folder in found if exists(system, f"{folder}/libcuda.so.1")), None)
