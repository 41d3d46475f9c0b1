"""This process's process group: how its ranks meet, and how this rank makes the calls of a check.

The parent processes see to it that all ranks begin a check together, and name one that hangs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist

from ..device.gpus import gpu_uuid
from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, WRONG, Outcome, run_options, working_on

MEET_SECONDS = 240.0
"""How long the ranks wait for one another at first. A cold network file system takes minutes to
load torch, and hundreds of ranks start one after the other."""
COLLECTIVE_SECONDS = 30.0
"""How long one collective may take: long enough even for a rank that gets a tenth of a core."""
REFUSALS = (
    *("not support", "Cannot use", "No backend type", "not impl", "Invalid scalar type"),
    *("must be contiguous", "Unconvertible NCCL type", "module 'torch", "unexpected keyword"),
    *("only supports", "Unsupported", "no support for"),
)
"""Parts of the messages with which torch rejects a call that it does not support here."""
NETWORK = "set NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME to the network interface between the hosts"
HINTS: Dict[str, str] = {
    "shared memory": "/dev/shm is too small or full: `docker run --ipc=host` or `--shm-size=8g`",
    "driver version is insufficient": "`gpusetup doctor` names the driver that this NCCL needs",
    "out of memory": "other programs use the GPU's memory: `nvidia-smi` shows which",
    "Too many open files": "raise the limit: `ulimit -n 65536`",
}
"""A part of a backend's error message -> the next step."""
Calls = Dict[str, Callable[[], str]]
"""Name -> a call that all ranks make; it returns what is wrong with its answer."""


@dataclass
class ProcessGroup:
    """This process's place in its group, and what it knows about the running check."""

    store: Any
    rank: int
    world: int
    device: str
    backend: str
    place: str = ""
    """The call that this rank is making."""
    equal_on_all: Dict[str, Any] = field(default_factory=dict)
    """Call -> a value that must be the same on all ranks, such as a checksum of its answer."""


JOINED: List[ProcessGroup] = []
"""The group of this process, once it has joined one."""


def meet(device: str) -> Outcome:
    """All ranks can form a group in which no two use the same GPU."""
    if not dist.is_available():
        return Outcome(SKIPPED, "this torch was built without torch.distributed")
    backend = "gloo"
    if device.startswith("cuda"):
        backend = "nccl"
        if not dist.is_nccl_available():
            detail = "this torch is built without NCCL, as on Windows, Jetson and in CPU builds"
            return Outcome(SKIPPED, detail, hint="`--device cpu` tests the ranks with gloo")
        torch.cuda.set_device(device)
    wait = timedelta(seconds=MEET_SECONDS)
    try:
        store, rank, world = next(iter(dist.rendezvous("env://", timeout=wait)))
        store.set_timeout(wait)
        group = ProcessGroup(store, rank, world, device, backend)
        options = repr((run_options().seed, run_options().level, run_options().only))
        if len(set(shared(group, "options", options))) > 1:
            detail = "the ranks were started with different options"
            return Outcome(FAILED, detail, hint="give every rank the same options")
        if backend == "nccl":
            # A GPU whose UUID is unknown counts as the rank's own.
            gpus = shared(group, "gpu", gpu_uuid(torch, device) or f"of rank {rank}")
            sharing = [str(other) for other, gpu in enumerate(gpus) if gpu == gpus[rank]]
            if len(sharing) > 1:
                problem = f"ranks {', '.join(sharing)} use the same GPU {gpus[rank]}"
                hint = "give each rank its own GPU: one rank per GPU, LOCAL_RANK chooses it"
                return Outcome(FAILED, problem, hint=hint)
        # From now on, a rank waits only as long as one collective may take; the store waits 10
        # seconds longer, so that the collective fails first and its error names it.
        store.set_timeout(timedelta(seconds=COLLECTIVE_SECONDS + 10))
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("group", store),
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=COLLECTIVE_SECONDS),
        )
        # The first call sets up connections and loads libraries, so it takes longer.
        dist.all_reduce(torch.ones(1, device=device))
    except Exception as problem:  # the type of the error differs between backends and releases
        error = first_line(problem)
        detail = f"the ranks cannot connect to each other: {error}"
        return Outcome(FAILED, detail, hint=hint_of(error))
    JOINED[:] = [group]
    return Outcome(PASSED, f"{world} ranks connected by {backend}")


def hint_of(problem: str) -> str:
    """The next step after an error of a communication backend."""
    return next((hint for words, hint in HINTS.items() if words in problem), NETWORK)


def run_calls(name: str, calls_of: Callable[[ProcessGroup], Calls], _: str) -> Outcome:
    """Make a check's calls in order, as the other ranks do, and return this rank's outcome."""
    if not JOINED:
        return Outcome(SKIPPED, "this rank's process ended in an earlier check")
    group = JOINED[0]
    problems: List[str] = []
    not_offered: List[str] = []
    group.equal_on_all = {}
    calls = calls_of(group)
    calls["same bits"] = partial(differs_from_rank_0, group, name)
    for call, run in calls.items():
        group.place = f"{name}/{call}"
        # The parent names the call if it hangs.
        working_on(group.place)
        try:
            problem = run()
            problems += [f"{group.place}: {problem}"] if problem else []
        except Exception as raised:  # the type of the error differs between backends
            error = first_line(raised)
            is_refused = any(words in error for words in REFUSALS)
            # `'NoneType' object does not support ...` means that an answer is missing: a fault.
            if "'NoneType' object" in error or not is_refused:
                # Other ranks may still be in this collective, so the parents end the checks here.
                detail = f"rank {group.rank}: {group.place} ended by {error}"
                return Outcome(FAILED, detail, hint=hint_of(error))
            not_offered.append(f"{call} ({error})")
    if problems:
        detail = f"rank {group.rank}: {problems[0]} ({len(problems)} of {len(calls)} are wrong)"
        return Outcome(FAILED, detail, problem=WRONG)
    # The last call only compares bits. If no other could be made, the check has shown nothing.
    right = len(calls) - 1 - len(not_offered)
    detail = f"{right} calls right on {group.world} ranks ({group.backend})"
    if not_offered:
        detail += f"; not offered: {not_offered[0]} and {len(not_offered) - 1} more"
    return Outcome(PASSED if right else SKIPPED, detail)


def differs_from_rank_0(group: ProcessGroup, name: str) -> str:
    """The first call after which this rank's bits differ from rank 0's, in words; empty if none."""
    key = f"{name}/equal on all"
    if group.rank == 0:
        group.store.set(key, json.dumps(group.equal_on_all))
    # `get` waits until rank 0 has published its values.
    of_rank_0 = json.loads(group.store.get(key).decode())
    for call, bits in group.equal_on_all.items():
        if of_rank_0.get(call) != bits:
            return f"{call}: not bit for bit the result of rank 0"
    return ""


def shared(group: ProcessGroup, name: str, value: str) -> List[str]:
    """Publish this rank's value, and return those of all ranks in order."""
    group.store.set(f"{name}/{group.rank}", value)
    # `get` waits until the rank has published its value.
    return [group.store.get(f"{name}/{rank}").decode() for rank in range(group.world)]
