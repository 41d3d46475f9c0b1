"""The host: room, memory, settings of the environment, and how far our own sources agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpusetup.model import Evidence, Finding, Fix, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import (
    GIB,
    Case,
    error,
    events,
    gib,
    in_container,
    is_cuda_build,
    note,
    on,
    shown,
    told,
    warning,
)
from gpusetup.rules.room import making_room, short_disks
from gpusetup.shell import lines

CATALOG_DAYS = 120
SMALL_SHM_BYTES = GIB
DOCKER_SHM_BYTES = 64 << 20
"""docker's default: too small for DataLoader workers and NCCL."""


def disk_full(case: Case) -> Iterator[Finding]:
    """No room for an install where it writes."""
    said = events(case, "pip-cache-disk-full")
    short = short_disks(case)
    if not said and not short:
        return
    needed_now = bool(said) or (
        _install_is_due(case) and any(d.subject == "site-packages" for d in short)
    )
    make = error if said else warning
    rooms = ", ".join(f"{gib(d.free_bytes or 0)} in {d.path} ({d.subject})" for d in short)
    yield make(
        "pip-cache-disk-full",
        f"Little room for an install of torch: {rooms or 'no space left on device'}",
        detail="The install that is due needs it." if needed_now else "",
        evidence=(
            *told(said),
            *(shown(case, "disks", f"{d.path}: {gib(d.free_bytes or 0)} free") for d in short),
        ),
        fix=Fix(
            text="Make room: clear the installers' caches, or let TMPDIR and the cache name a "
            "disk with room. An install needs up to 8 GiB beside the packages, 4 GiB in a cache "
            "and 1 GiB in the temporary folder",
            commands=making_room(case, short),
        ),
    )


def _install_is_due(case: Case) -> bool:
    return not is_cuda_build(case.snapshot.torch)


def shm_too_small(case: Case) -> Iterator[Finding]:
    """A small /dev/shm kills DataLoader workers."""
    total = case.snapshot.memory.shm_total_bytes
    said = events(case, "shm-too-small")
    small = total is not None and total <= SMALL_SHM_BYTES and in_container(case)
    if not said and not small:
        return
    make = error if said else warning
    size = gib(total) if total and total >= GIB else f"{(total or 0) >> 20} MiB"
    yield make(
        "shm-too-small",
        f"/dev/shm is {size if total else 'too small'}: DataLoader workers and NCCL need more",
        evidence=(
            *told(said),
            *((shown(case, "memory.shm_total_bytes", f"/dev/shm: {size}"),) if total else ()),
        ),
        fix=Fix(
            text="Start the container with more shared memory (`--shm-size=8g`; the command does "
            "it with a plain image), or use num_workers=0",
            commands=SHM_OPTIONS.get(case.snapshot.container.kind or "docker", ()),
        ),
    )


SHM_OPTIONS = {
    "docker": lines("docker run --rm --shm-size=8g --gpus all ubuntu df -h /dev/shm"),
    "podman": lines(
        "podman run --rm --shm-size=8g --device nvidia.com/gpu=all ubuntu df -h /dev/shm"
    ),
}


def memory_small(case: Case) -> Iterator[Finding]:
    """A cgroup that leaves less memory than torch needs to load."""
    memory = case.snapshot.memory
    limit = min((b for b in (memory.cgroup_limit_bytes, memory.total_bytes) if b), default=None)
    if limit is not None and limit < 4 * GIB:
        yield warning(
            "memory-small",
            f"Programs here have {gib(limit)} of memory: a CUDA build of torch may be killed "
            "while it loads",
            evidence=(shown(case, "memory", f"limit {gib(limit)}"),),
            fix=Fix(text="Give the container or the virtual machine 4 GiB or more"),
        )


CLUSTER_GPUS = 8
"""A node with that many GPUs is usually one of several, joined by InfiniBand."""


def memlock_low(case: Case) -> Iterator[Finding]:
    """Locked memory is limited on a cluster's node (RDMA registers memory)."""
    limit = case.snapshot.memory.memlock_bytes
    several = len(case.snapshot.gpus or ()) >= CLUSTER_GPUS
    said = events(case, "rdma-memlock")
    if said or (several and limit is not None and limit < 64 << 20):
        make = error if said else note
        yield make(
            "rdma-memlock",
            f"Locked memory is limited to {(limit or 0) >> 10} KiB: NCCL over InfiniBand fails"
            if limit
            else "Locked memory is limited: NCCL over InfiniBand fails",
            evidence=(*told(said), shown(case, "memory.memlock_bytes", "RLIMIT_MEMLOCK")),
            fix=_unlimited(case),
        )


def _unlimited(case: Case) -> Fix:
    """The hard limit is lifted by PAM at the next login; a service and a container have theirs."""
    if in_container(case):
        return Fix(text="Start the container again with `--ulimit memlock=-1`")
    return Fix(
        text="Lift the hard limit and log in again (a service: LimitMEMLOCK=infinity in its unit, "
        "also slurmd's)",
        commands=lines(
            "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' "
            "| sudo tee /etc/security/limits.d/99-memlock.conf"
        ),
        needs_root=True,
    )


# --- settings ------------------------------------------------------------------------------------

SETTINGS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    (
        "cuda-launch-blocking",
        ("CUDA_LAUNCH_BLOCKING", "1"),
        "every kernel is waited for; good to find a fault, slow otherwise",
        "warning",
    ),
    (
        "memory-caching-off",
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
        "torch asks the driver for every tensor: many times slower",
        "warning",
    ),
    (
        "tf32-precision",
        ("NVIDIA_TF32_OVERRIDE", "1"),
        "float32 products are computed in TF32, with 10 bits of mantissa",
        "note",
    ),
    (
        "tf32-precision",
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"),
        "float32 products are computed in TF32, with 10 bits of mantissa",
        "note",
    ),
    (
        "cuda-jit-off",
        ("CUDA_DISABLE_PTX_JIT", "1"),
        "PTX is not compiled: GPUs that the build has no kernel for fail",
        "warning",
    ),
    (
        "cuda-jit-forced",
        ("CUDA_FORCE_PTX_JIT", "1"),
        "binary kernels are ignored and compiled anew: slow starts, or `no kernel image`",
        "warning",
    ),
    (
        "conda-cuda-virtual-missing",
        ("CONDA_OVERRIDE_CUDA", ""),
        "conda believes that there is no CUDA and chooses CPU builds",
        "warning",
    ),
)
"""id, (variable, value), what it does, severity. From CUDA's, torch's and conda's own docs."""


def settings(case: Case) -> Iterator[Finding]:
    """Environment variables that make CUDA slow, imprecise or blind."""
    environment = case.snapshot.environment
    for id, (name, value), effect, severity in SETTINGS:
        if environment.get(name) != value:
            continue
        evidence = (Evidence(source="environment", text=f"{name}={value}"),)
        title = f"{name}={value or '(empty)'}: {effect}"
        fix = Fix(text=f"Unset {name} unless you mean it", commands=ways.unset(case, name))
        make = warning if severity == "warning" else note
        yield make(id, title, evidence=evidence, fix=fix)


def expandable_segments(case: Case) -> Iterator[Finding]:
    """An allocator setting that this platform does not have."""
    environment = case.snapshot.environment
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        named = "expandable_segments:true" in environment.get(name, "").lower()
        if named and (on(case, "windows") or case.snapshot.os.wsl or case.snapshot.os.jetson):
            yield note(
                "expandable-segments-unsupported",
                f"{name} asks for expandable segments, which this platform does not have: it "
                "is ignored",
                evidence=(Evidence(source="environment", text=f"{name}={environment[name]}"),),
                fix=Fix(text="Leave it out here", commands=ways.unset(case, name)),
            )
            return


def extra_index(case: Case) -> Iterator[Finding]:
    """An extra index mixes builds: the newest version wins, from wherever."""
    for name in ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        value = case.snapshot.environment.get(name, "")
        if "pytorch.org" in value:
            yield warning(
                "extra-index",
                f"{name} names a torch index beside the default one: the newest version wins, of "
                "whatever build",
                evidence=(Evidence(source="environment", text=f"{name}={value}"),),
                fix=Fix(
                    text=f"Unset {name}; gpusetup names the index for torch alone",
                    commands=ways.unset(case, name),
                ),
            )


# --- our own sources -----------------------------------------------------------------------------


def catalog_old(case: Case) -> Iterator[Finding]:
    """The embedded table is old against the day of the snapshot."""
    taken = case.snapshot.taken_at
    days = _days(case.catalog.as_of, taken) if taken else None
    if days is not None and days > CATALOG_DAYS:
        yield note(
            "catalog-old",
            f"The catalog is of {case.catalog.as_of}, {days} days old: there may be newer builds",
            fix=Fix(
                text="Update gpusetup, or ask the live index",
                commands=lines("gpusetup resolve --refresh"),
            ),
        )


def _days(as_of: str, taken_at: str) -> int | None:
    """
    >>> _days("2026-11-20", "2026-11-22T10:00:00Z")
    2
    """
    try:
        return (date.fromisoformat(taken_at[:10]) - date.fromisoformat(as_of[:10])).days
    except ValueError:
        return None


ONE_TRUTH = ("driver.version", "gpus.count", "torch.version")
"""Subjects about which all sources must say the same."""


def sources_disagree(case: Case) -> Iterator[Finding]:
    """Two sources give different values for one fact."""
    for subject in ONE_TRUTH:
        said = {
            r.source: r.value for r in case.snapshot.readings if r.subject == subject and r.value
        }
        if len({parsed(value) for value in said.values()}) > 1:
            yield note(
                "sources-disagree",
                f"Sources disagree about {subject}: "
                + ", ".join(f"{source} says {value}" for source, value in said.items()),
                evidence=tuple(Evidence(source=s, text=v) for s, v in said.items()),
            )


RULES = (
    disk_full,
    shm_too_small,
    memory_small,
    memlock_low,
    settings,
    expandable_segments,
    extra_index,
    catalog_old,
    sources_disagree,
)
