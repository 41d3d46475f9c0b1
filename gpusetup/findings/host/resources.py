"""What the host gives a program: disk, shared memory, memory, locked memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    gib,
    in_container,
    value_evidence,
)
from gpusetup.evidence.places import IN_A_CONTAINER
from gpusetup.findings.layers import NCCL_SAYS, NO_TORCH, Layer
from gpusetup.findings.message_rules import case_of, from_message
from gpusetup.findings.record import Cause, Message
from gpusetup.findings.sources import WHEELS
from gpusetup.fixes.disk_space import making_room, short_disks
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines
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
)


def disk_full(context: RuleContext) -> Iterator[Finding]:
    """No room for an install where it writes."""
    said = events(context, "pip-cache-disk-full")
    short = short_disks(context)
    if said or short:
        room = [f"{d.path}: {gib(d.free_bytes or 0)} free ({d.subject})" for d in short]
        yield _graver_if_said(
            said,
            PIP_CACHE_DISK_FULL,
            f"Little room for an install of torch: {', '.join(room) or 'no space left on device'}",
            tuple(value_evidence(context, "disks", one) for one in room),
            Fix(
                text="Make room: clear the installers' caches, or let TMPDIR and the cache name a "
                "disk with room. An install needs up to 8 GiB beside the packages, 4 GiB in a "
                "cache and 1 GiB in the temporary folder",
                commands=making_room(context, short),
            ),
        )


def _graver_if_said(
    said: tuple[Event, ...], cause: Cause, title: str, seen: tuple[Evidence, ...], fix: Fix
) -> Finding:
    """What a program failed at is an error; what it will fail at, as the machine shows, is not."""
    make = cause.found if said else cause.as_warning
    return make(title, evidence=(*event_evidence(said), *seen), fix=fix)


SHM_TOO_SMALL = Cause(
    id="shm-too-small",
    place=(Layer.RUNNING, 10),
    title="a small /dev/shm",
    means="DataLoader workers and NCCL share memory there; docker gives 64 MiB.",
    proven_by="1 GiB or less in a container",
    way_out="--shm-size",
    source="torch's message on a bus error",
    explains=("dataloader-worker-killed", "nccl-shm-error", *NCCL_SAYS),
)


def shm_too_small(context: RuleContext) -> Iterator[Finding]:
    """A small /dev/shm kills DataLoader workers."""
    total = context.snapshot.memory.shm_total_bytes
    said = events(context, "shm-too-small")
    small = total is not None and total <= GIB and in_container(context)
    if said or small:
        size = f"/dev/shm is {gib(total) if total else 'too small'}"
        yield _graver_if_said(
            said,
            SHM_TOO_SMALL,
            f"{size}: DataLoader workers and NCCL need more",
            (value_evidence(context, "memory.shm_total_bytes", size),),
            Fix(
                text="Start the container with more shared memory (`--shm-size=8g`; the command "
                "does it with a plain image), or use num_workers=0",
                commands=SHM_OPTIONS.get(context.snapshot.container.kind or "docker", ()),
            ),
        )


SHM_OPTIONS = {
    "docker": lines("docker run --rm --shm-size=8g --gpus all ubuntu df -h"),
    "podman": lines("podman run --rm --shm-size=8g --device nvidia.com/gpu=all ubuntu df -h"),
}


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
)


def memlock_low(context: RuleContext) -> Iterator[Finding]:
    """Locked memory is limited on a cluster's node (RDMA registers memory)."""
    limit = context.snapshot.memory.memlock_bytes
    several = len(context.snapshot.gpus or ()) >= CLUSTER_GPUS
    said = events(context, "rdma-memlock")
    if said or (several and limit is not None and limit < 64 << 20):
        found = from_message(context, RDMA_MEMLOCK, *case_of(context, LIMITED, said or (LOW,)))
        yield found if said else replace(found, severity=Severity.NOTE)


LOW = Event(kind="limit", source="memory.memlock_bytes", text="RLIMIT_MEMLOCK below 64 MiB")
LIMITED = Message(
    title="Locked memory is limited: NCCL over InfiniBand fails",
    text="Lift the hard limit and log in again (a service: LimitMEMLOCK=infinity in its unit, also "
    "slurmd's)",
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
)


RULES = (
    disk_full,
    shm_too_small,
    memlock_low,
)
