"""Shows in one line how the GPUs are connected."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from gpusetup.model.machine import Gpu, GpuLink, Snapshot
from gpusetup.readings.smi_topology import WORDS


def links_line(machine: Snapshot) -> str | None:
    """The links between the GPUs and their NUMA nodes as text; None if there is only one GPU or
    nothing is known.

    >>> gpus = tuple(Gpu(name="A100", nvml_index=n, numa_node=n) for n in (0, 1))
    >>> links_line(Snapshot(gpus=gpus, gpu_links=(GpuLink(first=0, second=1, kind="NV12"),)))
    'GPU 0-1 12 NVLinks (NV12); NUMA node 0: GPU 0; NUMA node 1: GPU 1'
    """
    gpus = machine.gpus or ()
    if len(gpus) < 2:
        return None
    links = _links(machine.gpu_links or ())
    numa_nodes = _numa_nodes(gpus)
    return "; ".join((*links, *numa_nodes)) or None


def _links(links: tuple[GpuLink, ...]) -> Iterator[str]:
    """Yields each kind of link with the pairs of GPUs that it connects."""
    pairs_by_kind: dict[str, list[str]] = defaultdict(list)
    for link in links:
        pair = f"{link.first}-{link.second}"
        pairs_by_kind[link.kind].append(pair)

    # Eight GPUs have 28 pairs. If all pairs have the same kind of link, listing the pairs adds
    # nothing.
    if len(pairs_by_kind) == 1 and len(links) > 1:
        yield f"every two GPUs {_in_words(links[0].kind)}"
        return
    for kind, pairs in pairs_by_kind.items():
        yield f"GPU {', '.join(pairs)} {_in_words(kind)}"


def _in_words(kind: str) -> str:
    """A kind of link in words, followed by nvidia-smi's abbreviation.

    >>> _in_words("NV4"), _in_words("PHB")
    ('4 NVLinks (NV4)', "the CPU's PCIe bridge (PHB)")
    """
    nvlinks = re.fullmatch(r"NV(\d+)", kind)
    if nvlinks is not None:
        count = nvlinks[1]
        return f"{count} NVLinks ({kind})"
    words = WORDS.get(kind, "unknown link")
    return f"{words} ({kind})"


def _numa_nodes(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    """Yields each NUMA node with its GPUs; GPUs with an unknown node are left out."""
    gpus_by_node: dict[int, list[str]] = defaultdict(list)
    for position, gpu in enumerate(gpus):
        if gpu.numa_node is None:
            continue
        # A report may list GPUs without NVML's indexes; in that case, use their order.
        index = position if gpu.nvml_index is None else gpu.nvml_index
        gpus_by_node[gpu.numa_node].append(str(index))
    for node, indexes in sorted(gpus_by_node.items()):
        gpu_list = ", ".join(indexes)
        yield f"NUMA node {node}: GPU {gpu_list}"
