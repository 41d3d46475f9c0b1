"""The ranks meet: each comes, none has another's GPU, all were asked the same."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Optional

from ..device.identity import gpu_uuid
from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, Outcome, asked
from .group import COLLECTIVE_SECONDS, NETWORK, Group, agreed, enter, hint_of, missing, ranks

MEET_SECONDS = 240.0
"""How long the ranks wait for one another at first: a cold network file system takes minutes to
load torch, and hundreds of ranks start one after the other."""
NO_NCCL = "`--device cpu` proves the ranks over gloo"
SHARE_OF_MEMORY = 0.05
"""Of what is free on a host, for the largest message of each of its ranks."""
LARGEST = 1 << 28


def meet(device: str) -> Outcome:
    """All ranks form a group, and no two of them use the same GPU."""
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return Outcome(SKIPPED, "this torch is built without torch.distributed")
    on_gpu = device.startswith("cuda")
    if on_gpu and not dist.is_nccl_available():
        built = (
            "Windows, Jetson" if torch.version.cuda or torch.version.hip else "a CPU build of torch"
        )
        return Outcome(SKIPPED, f"this torch is built without NCCL ({built})", hint=NO_NCCL)
    if on_gpu:
        torch.cuda.set_device(device)
    try:
        return _met(torch, dist, device, "nccl" if on_gpu else "gloo")
    except Exception as problem:  # its kind differs between backends and releases
        said = first_line(problem)
        return Outcome(FAILED, f"the ranks do not meet: {said}", hint=hint_of(said))


def _met(torch: Any, dist: Any, device: str, backend: str) -> Outcome:
    from datetime import timedelta

    patient = timedelta(seconds=MEET_SECONDS)
    store, rank, world = next(iter(dist.rendezvous("env://", timeout=patient)))
    store.set_timeout(patient)
    load()
    group = Group(store, rank, world, device, backend)
    late = missing(group, "here", MEET_SECONDS)
    if late:
        said = f"the ranks do not meet: {ranks(late)} did not come within {MEET_SECONDS:g} s"
        return Outcome(FAILED, said, hint=NETWORK)
    store.set_timeout(timedelta(seconds=COLLECTIVE_SECONDS + 10))
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("group", store),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=COLLECTIVE_SECONDS),
    )
    group = group._replace(most_bytes=_agreed_bytes(torch, group))
    enter(group)
    return agreed(group, "meet", lambda: _alone(torch, dist, group))


LATER = (
    "torch.distributed._functional_collectives",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
    "torch.distributed.optim",
)
"""What the checks use; loaded while there is time. An old torch lacks some."""


def load() -> None:
    import importlib

    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _agreed_bytes(torch: Any, group: Group) -> int:
    """The largest message that every rank has memory for."""
    group.store.set(f"bytes/{group.rank}", str(_bytes_here(torch, group.device)))
    mine = [int(group.store.get(f"bytes/{other}").decode()) for other in range(group.world)]
    return max(1 << 20, min(LARGEST, *mine))


def _bytes_here(torch: Any, device: str) -> int:
    here = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or 1)
    free = (
        torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else _free_bytes() // here
    )
    return int(free * SHARE_OF_MEMORY)


def _free_bytes() -> int:
    """What the host has free, in bytes; a cautious figure where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = {line.split(":")[0]: line.split()[1] for line in lines}
        return int(found["MemAvailable"]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return 4 << 30


def _alone(torch: Any, dist: Any, group: Group) -> Outcome:
    """All were asked the same, no other rank has this GPU, and a first message arrives."""
    group.store.set(f"asked/{group.rank}", repr((asked().seed, asked().level, asked().only)))
    theirs = {group.store.get(f"asked/{other}") for other in range(group.world)}
    if len(theirs) > 1:
        said = "the ranks were asked different questions"
        return Outcome(FAILED, said, hint="give every rank the same options")
    detail = f"{group.world} ranks by {group.backend}"
    if group.backend == "nccl":
        taken = _same_gpu(torch, group)
        if taken is not None:
            return taken
        detail += ", each on a GPU of its own"
    _first_message(torch, dist, group)
    return Outcome(PASSED, detail)


def _first_message(torch: Any, dist: Any, group: Group) -> None:
    """Sets the connections up, and loads what a first call loads."""
    dist.all_reduce(torch.ones(1, device=group.device))
    with contextlib.suppress(ImportError, AttributeError):
        import torch.distributed._functional_collectives as functional

        everyone = dist.distributed_c10d._get_default_group()
        message = torch.ones(1, device=group.device)
        functional.wait_tensor(functional.all_reduce(message, "sum", everyone))


def _same_gpu(torch: Any, group: Group) -> Optional[Outcome]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    place = f"{os.uname().nodename} {visible} {group.device}"
    mine = gpu_uuid(torch, group.device) or place
    group.store.set(f"gpu/{group.rank}", mine)
    for other in range(group.world):
        if other != group.rank and group.store.get(f"gpu/{other}").decode() == mine:
            return Outcome(
                FAILED,
                f"rank {group.rank} and rank {other} use the same GPU {mine}",
                hint="give each rank a GPU of its own: one rank a GPU, LOCAL_RANK chooses it",
            )
    return None
