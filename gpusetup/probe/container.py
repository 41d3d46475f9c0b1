"""Whether this is a container, which kind it is, and whether it was given GPUs."""

from __future__ import annotations

import re

from gpusetup.model.machine import Container, Reading, Snapshot
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

COMPAT_FOLDER = re.compile(r"(?m)^[ \t]*(/\S*/compat(?:/lib[^/\s]*)?)/?[ \t]*$")
"""A line with a folder of a cuda-compat package, such as `/usr/local/cuda-12.8/compat/lib.real`."""
GPU_NODE = re.compile(r"nvidia(ctl|\d+)|dxg|nvmap|nvhost-gpu")
"""The name of a device node that leads to a GPU, on a desktop, in WSL or on a Jetson."""


def read_container(system: System) -> Snapshot:
    """The kind of container, according to the first marker that is found, whether the container was
    given GPUs, and the cuda-compat folder whose libcuda it loads. Empty except on Linux."""
    if system.family != "linux":
        return Snapshot()
    # By systemd's convention, the first process in a container has a variable named `container`.
    lines = [f"{name}={value}" for name, value in system.environ().items()]
    lines += (read_or_none(system, "/proc/1/environ") or "").split("\0")
    lines += [path for path in MARKER_FILES if exists(system, path)]
    cgroup = read_or_none(system, "/proc/1/cgroup") or ""
    markers = [mark for mark in MARKERS if any(line.startswith(mark) for line in lines)]
    markers += [part for part in CGROUPS if part in cgroup]
    marker = markers[0] if markers else "no marker"
    kind = {**MARKERS, **CGROUPS}.get(marker, "none")
    has_gpu_node: bool | None = None
    # A container always has /dev/null, so an empty list means that the folder cannot be read. CUDA
    # images set `NVIDIA_VISIBLE_DEVICES=all` themselves, so that variable is no evidence.
    if kind != "none" and (nodes := list_or_empty(system, "/dev")):
        has_gpu_node = any(map(GPU_NODE.fullmatch, nodes))
    # The loader searches LD_LIBRARY_PATH first, then the folders that its configuration lists. A
    # cuda-compat folder there comes before the driver's own libcuda.
    texts = [system.environ().get("LD_LIBRARY_PATH", "").replace(":", "\n")]
    configuration = "/etc/ld.so.conf.d"
    for name in list_or_empty(system, configuration):
        if name.endswith(".conf"):
            texts.append(read_or_none(system, f"{configuration}/{name}") or "")
    folders = (str(folder) for folder in COMPAT_FOLDER.findall("\n".join(texts)))
    compat = next((path for path in folders if exists(system, f"{path}/libcuda.so.1")), None)
    container = Container(kind=kind, nvidia_requested=has_gpu_node, cuda_compat_path=compat)
    reading = Reading(subject="container", source=marker, value=kind)
    return Snapshot(container=container, readings=(reading,))


MARKER_FILES = ("/.singularity.d", "/run/.containerenv", "/.dockerenv", "/dev/lxd", "/dev/.lxc")
MARKERS = {
    "KUBERNETES_SERVICE_HOST=": "kubernetes",
    "APPTAINER_CONTAINER=": "singularity",
    "SINGULARITY_CONTAINER=": "singularity",
    "/.singularity.d": "singularity",
    "/run/.containerenv": "podman",
    "/.dockerenv": "docker",
    "container=docker": "docker",
    "container=oci": "docker",
    "container=podman": "podman",
    "container=lxc": "lxc",
    "/dev/": "lxc",
}
"""Maps the beginning of a variable or path that marks a container to its kind. The inner kind comes
first, because a Kubernetes pod may also be a Docker container."""
CGROUPS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "lxc"}
"""Maps a part of a cgroup's path to the kind of container that creates such a cgroup."""
