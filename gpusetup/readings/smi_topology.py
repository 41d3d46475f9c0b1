"""Reads the matrix of `nvidia-smi topo -m`, with pure functions: how the GPUs are connected, and
their NUMA nodes.

Source of the words: the legend that nvidia-smi prints below the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.model.machine import Gpu, GpuLink, Snapshot
from gpusetup.readings.sources import UNNAMED

# `        GPU0    GPU1    CPU Affinity    NUMA Affinity`.
HEADING = re.compile(r"^\s*GPU0\s.*(?:CPU Affinity|NUMA Affinity|\bGPU\d+\b|NIC\d+)|^\s*GPU0\s*$")
DEVICE = re.compile(r"(?:GPU|NIC)\d{1,3}|mlx\d_\w{1,8}|hfi\d_\w{1,4}")
GPU = re.compile(r"GPU(\d{1,3})")
LINK = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|N/A")
"""A cell of the matrix: X for the device itself, bonded NVLinks (NV4), or the level of the PCIe
tree at which the two devices meet."""

WORDS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the CPU's PCIe bridge",
    "NODE": "PCIe within a NUMA node",
    "SYS": "PCIe across NUMA nodes",
}


def parse_topology(lines: Sequence[str]) -> Snapshot:
    """The GPUs, with their NUMA nodes but without names, and the links in the first matrix of a
    text; empty without one. Incomplete rows are left out.

    >>> matrix = ["      GPU0  GPU1  CPU Affinity  NUMA Affinity", "GPU0   X   NV4  0-15  0",
    ...     "GPU1  NV4   X   16-31  1"]
    >>> parse_topology(matrix).gpu_links[0].kind, parse_topology(matrix).gpus[1].numa_node
    ('NV4', 1)
    """
    first = next((index for index, line in enumerate(lines) if HEADING.match(line)), None)
    if first is None:
        return Snapshot()
    devices = DEVICE.findall(lines[first])
    gpus: list[Gpu] = []
    links: list[GpuLink] = []
    for line in lines[first + 1 :]:
        name, *cells = line.split() or [""]
        # The matrix ends with an empty line or with the legend. Before the first GPU, such a line
        # is skipped below.
        if gpus and not DEVICE.fullmatch(name):
            break
        kinds, affinities = cells[: len(devices)], cells[len(devices) :]
        is_whole = len(kinds) == len(devices) and all(map(LINK.fullmatch, kinds))
        gpu = GPU.fullmatch(name)
        if not gpu or not is_whole:
            continue
        number = int(gpu[1])
        # The NUMA node comes after the list of CPUs: `0-15,32-47 0 N/A`.
        node = re.fullmatch(r"\d{1,3}", affinities[1]) if len(affinities) > 1 else None
        numa_node = int(node[0]) if node else None
        gpus.append(Gpu(name=UNNAMED, nvml_index=number, numa_node=numa_node))
        for other, kind in zip(map(GPU.fullmatch, devices), kinds, strict=True):
            # The matrix shows each pair twice. `other` is None for a network card.
            if other and int(other[1]) > number and kind != "N/A":
                links.append(GpuLink(first=number, second=int(other[1]), kind=kind))
    return Snapshot(gpus=tuple(gpus) or None, gpu_links=tuple(links) or None)
