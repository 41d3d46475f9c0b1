"""What the host gives a program: disk, shared memory, memory, locked memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, events, gib, gpus, in_container
from gpusetup.evidence.places import IN_A_CONTAINER, IN_DOCKER, IN_PODMAN, no
from gpusetup.findings.layers import NCCL_SAYS, NO_TORCH, Layer
from gpusetup.findings.message_rules import finding, from_messages, seen, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.findings.sources import WHEELS
from gpusetup.fixes.disk_space import making_room, short_disks
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.units import GIB

PIP_CACHE_DISK_FULL = Cause(
    id="pip-cache-disk-full",
    place=(Layer.INSTALL, 60),
    title="no room for an install",
    means="Wheels of 3 GiB, unpacked 5 GiB.",
    proven_by="Free space below that",
    way_out="Clear caches, move TMPDIR",
    source=WHEELS,
    explains=(*NO_TORCH, "download-hash-mismatch"),
    message=Message(
        title="Little room for an install of torch",
        text="Make room: clear the installers' caches, or let TMPDIR and the cache name a disk "
        "with room. An install needs up to 8 GiB beside the packages, 4 GiB in a cache and 1 GiB "
        "in the temporary folder",
        way=lambda context, text: Fix(
            text=text, commands=making_room(context, short_disks(context))
        ),
    ),
)


def disk_full(context: RuleContext) -> Iterator[Finding]:
    """No room for an install where it writes."""
    said = events(context, "pip-cache-disk-full")
    room = [f"{d.path}: {gib(d.free_bytes or 0)} free" for d in short_disks(context)]
    if said or room:
        seen = (*said, *(shown(context, "disks", one) for one in room))
        will_fail = None if said else Severity.WARNING
        yield finding(context, PIP_CACHE_DISK_FULL, seen, severity=will_fail)


SHM_TOO_SMALL = Cause(
    id="shm-too-small",
    place=(Layer.RUNNING, 10),
    title="a small /dev/shm",
    means="DataLoader workers and NCCL share memory there; docker gives 64 MiB.",
    proven_by="1 GiB or less in a container",
    way_out="--shm-size",
    source="torch's message on a bus error",
    explains=("dataloader-worker-killed", "nccl-shm-error", *NCCL_SAYS),
    message=Message(
        title="A small /dev/shm: DataLoader workers and NCCL need more",
        text="Start the container with more shared memory (`--shm-size=8g`; the command does it "
        "with a plain image), or use num_workers=0",
        commands=("docker run --rm --shm-size=8g --gpus all ubuntu df -h",),
        cases=(
            Message(
                where=(IN_PODMAN,),
                commands=(
                    "podman run --rm --shm-size=8g --device nvidia.com/gpu=all ubuntu df -h",
                ),
            ),
            Message(where=(no(IN_DOCKER), IN_A_CONTAINER)),
        ),
    ),
)


def shm_too_small(context: RuleContext) -> Iterator[Finding]:
    """A small /dev/shm kills DataLoader workers."""
    total = context.snapshot.memory.shm_total_bytes
    yield from from_messages(context, (SHM_TOO_SMALL,))
    if total is not None and total <= GIB and in_container(context):
        about, text = "memory.shm_total_bytes", f"/dev/shm is {gib(total)}"
        yield seen(context, SHM_TOO_SMALL, about, text, severity=Severity.WARNING)


CLUSTER_GPUS = 8
"""A node with that many GPUs is usually one of several, joined by InfiniBand."""


RDMA_MEMLOCK = Cause(
    id="rdma-memlock",
    place=(Layer.RUNNING, 90),
    title="locked memory is limited",
    means="RDMA registers memory.",
    proven_by="RLIMIT_MEMLOCK below 64 MiB and eight GPUs",
    way_out="ulimit -l unlimited",
    source="NCCL documentation, troubleshooting",
    explains=NCCL_SAYS,
    stage="distributed",
    message=Message(
        title="Locked memory is limited: NCCL over InfiniBand fails",
        text="Lift the hard limit and log in again (a service: LimitMEMLOCK=infinity in its unit, "
        "also slurmd's)",
        commands=(
            "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' "
            "| sudo tee /etc/security/limits.d/99-memlock.conf",
        ),
        needs_root=True,
        cases=(
            Message(
                where=(IN_A_CONTAINER,), text="Start the container again with `--ulimit memlock=-1`"
            ),
        ),
    ),
)


def memlock_low(context: RuleContext) -> Iterator[Finding]:
    """Locked memory is limited on a cluster's node (RDMA registers memory)."""
    limit = context.snapshot.memory.memlock_bytes
    yield from from_messages(context, (RDMA_MEMLOCK,))
    if limit is not None and limit < 64 << 20 and len(gpus(context)) >= CLUSTER_GPUS:
        about, text = "memory.memlock_bytes", "RLIMIT_MEMLOCK below 64 MiB"
        yield seen(context, RDMA_MEMLOCK, about, text, severity=Severity.NOTE)


RULES = (
    disk_full,
    shm_too_small,
    memlock_low,
)
