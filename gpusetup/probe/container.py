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
    kind, source = _kind(system)
    found = Container(
        kind=kind,
        nvidia_requested=None if kind == "none" else nvidia_given(system),
        cuda_compat_path=compat_path(system),
    )
    reading = Reading(subject="container", source=source, value=kind)
    return Snapshot(container=found, readings=(reading,))


PLACES = ("/.singularity.d", "/run/.containerenv", "/.dockerenv", "/dev/lxd", "/dev/.lxc")
MARKS = (
    ("kubernetes", r"^KUBERNETES_SERVICE_HOST=."),
    ("singularity", r"^(?:APPTAINER|SINGULARITY)_CONTAINER=.|^/\.singularity\.d"),
    ("podman", r"^/run/\.containerenv"),
    ("docker", r"^/\.dockerenv"),
    ("docker", r"^container=(?:docker|oci)"),
    ("podman", r"^container=podman"),
    ("lxc", r"^container=lxc"),
    ("kubernetes", r"^\d+:.*kubepods"),
    ("podman", r"^\d+:.*libpod"),
    ("docker", r"^\d+:.*docker"),
    ("lxc", r"^\d+:.*lxc|^/dev/"),
)
"""A kind and its mark, the inner one first: a pod is also a container of docker."""


def _kind(system: System) -> tuple[str, str]:
    """What it is and what says so: a variable (systemd's convention gives the first process one,
    `container`), a file, or a cgroup."""
    first = (read_or_none(system, "/proc/1/environ") or "").replace("\0", "\n")
    own = "\n".join(f"{name}={value}" for name, value in system.environ().items())
    there = "\n".join(path for path in PLACES if exists(system, path))
    marks = "\n".join((own, first, there, read_or_none(system, "/proc/1/cgroup") or ""))
    rows = ((kind, re.search(mark, marks, re.M)) for kind, mark in MARKS)
    return next(((kind, found[0]) for kind, found in rows if found), ("none", "no marker"))


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
    return next((one for one in found if exists(system, f"{one}/libcuda.so.1")), None)
