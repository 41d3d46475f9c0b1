"""What a process takes of the GPU beside torch's allocator: CUDA's context, kernels, NCCL."""

from __future__ import annotations

from gpusetup.model.units import GIB
from gpusetup.plan.memory.constants import Constants
from gpusetup.plan.model.workload import Workload

LINKED_NCCL = 1.2 * GIB
"""NCCL's buffers and kernels where GPUs are linked by NVLink: the median of seven messages of runs
out of memory on several A100 to H200 is 1.28 GiB beside a context (0.6 to 2.9; both halves of them
1.1 and 1.3), where six on cards without NVLink have 0.1. NCCL uses few
channels there and 24 to 32 here; each has 9.2 MiB for either neighbour (the buffers of its Simple,
LL128 and LL protocols: 4, 4.7 and 0.5), so that a communicator takes 0.4 to 0.6 GiB, and trainers
make two or more."""


def runtime_bytes(w: Workload, c: Constants) -> float:
    """All of it, and what other programs hold of the card."""
    return c.context_bytes + nccl_bytes(w, c) + w.beside * GIB


def nccl_bytes(w: Workload, c: Constants) -> float:
    """NCCL's buffers for each group of GPUs that talks.

    A communicator has buffers of its own on every GPU; tensor, pipeline, context and expert
    parallelism have one each beside that of all. The constants of the measured cells hold for a
    budget of tokens, wherever it runs.
    """
    groups = communicators(w)
    linked = w.linked and w.batch is not None and groups > 0
    return c.nccl_bytes * groups + (LINKED_NCCL - c.nccl_bytes if linked else 0.0)


def communicators(w: Workload) -> int:
    """Groups of GPUs that exchange tensors by NCCL."""
    if w.gpus == 1 or w.strategy in ("dp", "device-map"):
        return 0
    return 1
