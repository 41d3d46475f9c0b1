"""The first check among ranks: all connect with the same options, and no two share a GPU."""

from __future__ import annotations

import contextlib
import importlib
import os
from datetime import timedelta

import torch
import torch.distributed as dist

from ..device.gpus import gpu_uuid
from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, Outcome, asked
from .group import (
    COLLECTIVE_SECONDS,
    NETWORK,
    GroupState,
    ProcessGroup,
    hint_of,
    missing,
    named,
    shared,
    together,
)

MEET_SECONDS = 240.0
"""How long the ranks wait for one another at first. A cold network file system takes minutes to
load torch, and hundreds of ranks start one after the other."""
NO_NCCL = "`--device cpu` tests the ranks with gloo"
LATER = ("torch.distributed.fsdp", "torch.distributed.device_mesh", "torch.nn.parallel")
"""Modules that later checks use, loaded before the timeouts get short."""


def meet(device: str) -> Outcome:
    """All ranks can form a group in which no two use the same GPU."""
    if not dist.is_available():
        return Outcome(SKIPPED, "this torch was built without torch.distributed")
    on_gpu = device.startswith("cuda")
    if on_gpu and not dist.is_nccl_available():
        is_gpu_build = torch.version.cuda or torch.version.hip
        build = "Windows, Jetson" if is_gpu_build else "a CPU build of torch"
        return Outcome(SKIPPED, f"this torch is built without NCCL ({build})", hint=NO_NCCL)
    if on_gpu:
        torch.cuda.set_device(device)
    # The type of the error differs between backends and releases.
    try:
        return form_group(device)
    except Exception as problem:
        error = first_line(problem)
        detail = f"the ranks cannot connect to each other: {error}"
        return Outcome(FAILED, detail, hint=hint_of(error))


def load() -> None:
    """Import the modules of torch that the checks with several ranks use."""
    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def form_group(device: str) -> Outcome:
    """Wait for all ranks, start the process group, and exchange the first messages."""
    meeting_timeout = timedelta(seconds=MEET_SECONDS)
    store, rank, world = next(iter(dist.rendezvous("env://", timeout=meeting_timeout)))
    store.set_timeout(meeting_timeout)
    load()
    backend = "nccl" if device.startswith("cuda") else "gloo"
    group = ProcessGroup(store, rank, world, device, backend)
    late_ranks = missing(group, "here", MEET_SECONDS)
    if late_ranks:
        late = f"{named(late_ranks)} did not connect within {MEET_SECONDS:g} s"
        return Outcome(FAILED, f"the ranks do not meet: {late}", hint=NETWORK)
    # From now on, a rank waits only as long as one collective may take.
    store.set_timeout(timedelta(seconds=COLLECTIVE_SECONDS + 10))
    dist.init_process_group(
        group.backend,
        store=dist.PrefixStore("group", store),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=COLLECTIVE_SECONDS),
    )
    GroupState.group, GroupState.ended = group, ""
    return together("meet", exchange_first_words)


def exchange_first_words(group: ProcessGroup) -> Outcome:
    """All ranks have the same options, each its own GPU, and a first message arrives."""
    options = repr((asked().seed, asked().level, asked().only))
    if len(set(shared(group, "asked", options))) > 1:
        detail = "the ranks were started with different options"
        return Outcome(FAILED, detail, hint="give every rank the same options")
    detail = f"{group.world} ranks by {group.backend}"
    if group.backend == "nccl":
        # If the UUID is unknown, the host and the device tell GPUs apart.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        place = f"{os.uname().nodename} {visible} {group.device}"
        gpus = shared(group, "gpu", gpu_uuid(torch, group.device) or place)
        sharing = [rank for rank, gpu in enumerate(gpus) if gpu == gpus[group.rank]]
        if len(sharing) > 1:
            problem = f"{named(sharing)} use the same GPU {gpus[group.rank]}"
            hint = "give each rank its own GPU: one rank per GPU, LOCAL_RANK chooses it"
            return Outcome(FAILED, problem, hint=hint)
        detail += ", each on its own GPU"
    # The first call sets up connections and loads libraries, so it takes longer.
    dist.all_reduce(torch.ones(1, device=group.device))
    return Outcome(PASSED, detail)
