"""The ranks meet: each comes, none has another's GPU, all were asked the same."""

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
    Group,
    enter,
    hint_of,
    missing,
    named,
    shared,
    together,
)

MEET_SECONDS = 240.0
"""How long the ranks wait for one another at first: a cold network file system takes minutes to
load torch, and hundreds of ranks start one after the other."""
NO_NCCL = "`--device cpu` tests the ranks with gloo"
LATER = (
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
    "torch.distributed.optim",
)
"""What the checks use; loaded while there is time. An old torch lacks some."""


def meet(device: str) -> Outcome:
    """All ranks form a group, and no two of them use the same GPU."""
    if not dist.is_available():
        return Outcome(SKIPPED, "this torch was built without torch.distributed")
    on_gpu = device.startswith("cuda")
    if on_gpu and not dist.is_nccl_available():
        built = (
            "Windows, Jetson" if torch.version.cuda or torch.version.hip else "a CPU build of torch"
        )
        return Outcome(SKIPPED, f"this torch is built without NCCL ({built})", hint=NO_NCCL)
    if on_gpu:
        torch.cuda.set_device(device)
    try:
        return _met(device)
    except Exception as problem:  # its kind differs between backends and releases
        said = first_line(problem)
        return Outcome(
            FAILED, f"the ranks cannot connect to each other: {said}", hint=hint_of(said)
        )


def load() -> None:
    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _met(device: str) -> Outcome:
    patient = timedelta(seconds=MEET_SECONDS)
    store, rank, world = next(iter(dist.rendezvous("env://", timeout=patient)))
    store.set_timeout(patient)
    load()
    group = Group(store, rank, world, device, "nccl" if device.startswith("cuda") else "gloo")
    late = missing(group, "here", MEET_SECONDS)
    if late:
        said = f"the ranks do not meet: {named(late)} did not connect within {MEET_SECONDS:g} s"
        return Outcome(FAILED, said, hint=NETWORK)
    store.set_timeout(timedelta(seconds=COLLECTIVE_SECONDS + 10))
    dist.init_process_group(
        group.backend,
        store=dist.PrefixStore("group", store),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=COLLECTIVE_SECONDS),
    )
    enter(group)
    return together("meet", _first_words)


def _first_words(group: Group) -> Outcome:
    """All were asked the same, no other rank has this GPU, and a first message arrives."""
    theirs = shared(group, "asked", repr((asked().seed, asked().level, asked().only)))
    if len(set(theirs)) > 1:
        said = "the ranks were started with different options"
        return Outcome(FAILED, said, hint="give every rank the same options")
    detail = f"{group.world} ranks by {group.backend}"
    if group.backend == "nccl":
        gpus = shared(group, "gpu", _gpu(group.device))
        same = [rank for rank, gpu in enumerate(gpus) if gpu == gpus[group.rank]]
        if len(same) > 1:
            said = f"{named(same)} use the same GPU {gpus[group.rank]}"
            hint = "give each rank its own GPU: one rank per GPU, LOCAL_RANK chooses it"
            return Outcome(FAILED, said, hint=hint)
        detail += ", each on its own GPU"
    # Sets the connections up, and loads what a first call loads.
    dist.all_reduce(torch.ones(1, device=group.device))
    return Outcome(PASSED, detail)


def _gpu(device: str) -> str:
    """What tells this GPU from all others."""
    place = (os.uname().nodename, os.environ.get("CUDA_VISIBLE_DEVICES", ""), device)
    return gpu_uuid(torch, device) or " ".join(place)
