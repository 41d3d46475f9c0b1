"""Whether this is a container, of what kind, and whether GPUs were given to it."""

from __future__ import annotations

import re

from gpusetup.model.machine import Container, Reading, Snapshot
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

COMPAT = r"/(cuda[^/]*|[^/]*)/compat(/lib[^/]*)?/?$"


def read_container(system: System) -> Snapshot:
    """The container, from the first marker that says so."""
    if system.family != "linux":
        return Snapshot()
    kind, source = _kind(system)
    found = Container(
        kind=kind,
        nvidia_requested=None if kind == "none" else nvidia_given(system),
        cuda_compat_path=compat_path(system),
    )
    reading = Reading(subject="container", source=source, value=kind)
    return Snapshot(container=found, readings=(reading,))


def _kind(system: System) -> tuple[str, str]:
    """What it is and what says so, the inner one first: a pod is also a container of docker."""
    environ = system.environ()
    # systemd's convention: the first process gets a variable `container`.
    first = re.search(r"(?:^|\0)container=([\w-]+)", read_or_none(system, "/proc/1/environ") or "")
    named = environ.get("container") or (first[1] if first else "")
    apptainer = environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER")
    ways = read_or_none(system, "/proc/1/cgroup") or ""
    rows = {
        "kubernetes": environ.get("KUBERNETES_SERVICE_HOST") and "kubernetes",
        "singularity": (apptainer or exists(system, "/.singularity.d")) and "singularity",
        "podman": exists(system, "/run/.containerenv") and "podman",
        "docker": exists(system, "/.dockerenv") and "docker",
        "variable": {"oci": "docker", "lxc-libvirt": "lxc", "wsl": ""}.get(named, named),
        "cgroup": next((kind for mark, kind in CGROUP_MARKS if mark in ways), None),
        "lxc": (exists(system, "/dev/lxd") or exists(system, "/dev/.lxc")) and "lxc",
    }
    return next(((str(kind), by) for by, kind in rows.items() if kind), ("none", "no marker"))


CGROUP_MARKS = (
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("docker", "docker"),
    ("lxc", "lxc"),
)
"""What stands in a cgroup's path -> what made it."""


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
    lines = "\n".join(read_or_none(system, f"{conf}/{name}") or "" for name in names)
    listed = system.environ().get("LD_LIBRARY_PATH", "").split(":")
    folders = (*listed, *(line.strip() for line in lines.splitlines() if line.startswith("/")))
    named = (folder for folder in folders if re.search(COMPAT, folder))
    there = (one for one in named if exists(system, f"{one.rstrip('/')}/libcuda.so.1"))
    return next(there, None)
