"""Whether this is a container, of what kind, and whether GPUs were given to it."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.model.machine import Container, Reading
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

COMPAT = r"/(cuda[^/]*|[^/]*)/compat(/lib[^/]*)?/?$"


def read_container(system: System) -> tuple[Container, tuple[Reading, ...]]:
    """The container, from the first marker that says so."""
    if system.family != "linux":
        return Container(), ()
    kind, source = _kind(system)
    found = Container(
        kind=kind,
        nvidia_requested=None if kind == "none" else nvidia_given(system),
        cuda_compat_path=compat_path(system),
    )
    return found, (Reading(subject="container", source=source, value=kind),)


def _kind(system: System) -> tuple[str, str]:
    for reader in READERS:
        if kind := reader(system):
            return kind, reader.__name__
    return "none", "no marker"


def kubernetes(system: System) -> str | None:
    return "kubernetes" if system.environ().get("KUBERNETES_SERVICE_HOST") else None


def singularity(system: System) -> str | None:
    environ = system.environ()
    named = environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER")
    return "singularity" if named or exists(system, "/.singularity.d") else None


def podman(system: System) -> str | None:
    return "podman" if exists(system, "/run/.containerenv") else None


def docker(system: System) -> str | None:
    return "docker" if exists(system, "/.dockerenv") else None


def variable(system: System) -> str | None:
    """systemd's convention: the first process gets a variable `container`."""
    first = read_or_none(system, "/proc/1/environ") or ""
    match = re.search(r"(?:^|\0)container=([\w-]+)", first)
    named = system.environ().get("container") or (match[1] if match else "")
    return {"oci": "docker", "lxc-libvirt": "lxc", "wsl": None}.get(named, named) or None


def cgroup(system: System) -> str | None:
    return parse_cgroup(read_or_none(system, "/proc/1/cgroup") or "")


def lxc(system: System) -> str | None:
    return "lxc" if exists(system, "/dev/lxd") or exists(system, "/dev/.lxc") else None


READERS: tuple[Callable[[System], str | None], ...] = (
    kubernetes, singularity, podman, docker, variable, cgroup, lxc,
)  # fmt: skip
"""The inner one first: a pod is also a container of docker or containerd."""


def parse_cgroup(text: str) -> str | None:
    """The container that the paths of `/proc/1/cgroup` name.

    >>> parse_cgroup("0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1f.scope")
    'kubernetes'
    """
    return next((kind for mark, kind in CGROUP_MARKS if mark in text), None)


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
    listed = system.environ().get("LD_LIBRARY_PATH", "").split(":")
    for folder in (*listed, *_configured(system)):
        if re.search(COMPAT, folder) and "libcuda.so.1" in list_or_empty(
            system, folder.rstrip("/")
        ):
            return folder
    return None


def _configured(system: System) -> tuple[str, ...]:
    """The folders that `/etc/ld.so.conf.d` names."""
    folder = "/etc/ld.so.conf.d"
    names = (n for n in list_or_empty(system, folder) if n.endswith(".conf"))
    lines = "\n".join(read_or_none(system, join(folder, name)) or "" for name in names)
    return tuple(line.strip() for line in lines.splitlines() if line.startswith("/"))
