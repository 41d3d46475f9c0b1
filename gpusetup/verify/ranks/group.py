"""This process's process group: how its ranks meet, and how they agree on the outcome of a check.

They agree through the store, never through the collective that is being tested. The outcome names a
rank that does not arrive or does not return.
"""

from __future__ import annotations

import importlib
import json
import os
import time
import warnings
from datetime import timedelta
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch
import torch.distributed as dist

from ..device.gpus import gpu_uuid
from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, WRONG, Outcome, asked, working_on

MEET_SECONDS = 240.0
"""How long the ranks wait for one another at first. A cold network file system takes minutes to
load torch, and hundreds of ranks start one after the other."""
COLLECTIVE_SECONDS = 30.0
"""How long one collective may take, and how long the ranks wait for one another before a check. It
is long enough even for a rank that gets a tenth of a core."""
SECONDS_FOR_LAST_WORDS = 5.0
"""How long a rank waits for the others' results when they should be available at once."""
BLOCK = 32
"""After this many calls, the ranks ask each other whether there is time for more."""
REFUSING = (RuntimeError, ValueError, TypeError, AttributeError, ImportError)
"""The errors that torch raises, before it sends anything, for a call that it does not support."""
REFUSALS = (
    *("not support", "Cannot use", "No backend type", "not impl", "Invalid scalar type"),
    *("must be contiguous", "Unconvertible NCCL type", "module 'torch", "unexpected keyword"),
    *("only supports", "Unsupported", "No module named", "cannot import name"),
)
"""Parts of the messages with which torch rejects such a call."""
NETWORK = "set NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME to the network interface between the hosts"
HINTS: Dict[str, str] = {
    "shared memory": "/dev/shm is too small or full: `docker run --ipc=host` or `--shm-size=8g`",
    "Duplicate GPU": "give each rank its own GPU: LOCAL_RANK chooses it",
    "driver version is insufficient": "`gpusetup doctor` names the driver that this NCCL needs",
    "out of memory": "other programs use the GPU's memory: `nvidia-smi` shows which",
    "Too many open files": "raise the limit: `ulimit -n 65536`",
}
"""A part of a backend's error message -> the next step."""
Calls = Dict[str, Callable[[], str]]
"""Name -> a call that all ranks make; it returns what is wrong with its answer."""


class ProcessGroup(NamedTuple):
    """The process group of this process: its store, rank, size, device and backend."""

    store: Any
    rank: int
    world: int
    device: str
    backend: str


class GroupState:
    """What this process knows about its group."""

    group: Optional[ProcessGroup] = None
    ended = ""
    """The check after which the ranks are no longer in step; empty while they are."""
    place = ""
    """The call that this rank is making."""
    held: Dict[str, Any] = {}
    """Call -> a value that must be the same on all ranks."""


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
    # The type of the error differs between backends and releases.
    try:
        return form_group(device, backend)
    except Exception as problem:
        error = first_line(problem)
        detail = f"the ranks cannot connect to each other: {error}"
        return Outcome(FAILED, detail, hint=hint_of(error))


def form_group(device: str, backend: str) -> Outcome:
    """Wait for all ranks, start the process group, and exchange the first messages."""
    wait = timedelta(seconds=MEET_SECONDS)
    store, rank, world = next(iter(dist.rendezvous("env://", timeout=wait)))
    store.set_timeout(wait)
    # Later checks use it; load it before the timeouts get short.
    importlib.import_module("torch.nn.parallel")
    group = ProcessGroup(store, rank, world, device, backend)
    late = missing(group, "here", MEET_SECONDS)
    if late:
        detail = f"{named(late)} did not connect within {MEET_SECONDS:g} s"
        return Outcome(FAILED, f"the ranks do not meet: {detail}", hint=NETWORK)
    # From now on, a rank waits only as long as one collective may take.
    store.set_timeout(timedelta(seconds=COLLECTIVE_SECONDS + 10))
    dist.init_process_group(
        backend,
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


def hint_of(problem: str) -> str:
    """The next step after an error of a communication backend."""
    return next((hint for words, hint in HINTS.items() if words in problem), NETWORK)


def together(name: str, work: Callable[[ProcessGroup], Outcome]) -> Outcome:
    """Run a check together with the other ranks, unless one is no longer in step. The ranks meet
    before it and after it, and it fails on all ranks if it fails on one."""
    group = GroupState.group
    if group is None:
        return Outcome(SKIPPED, "this rank's process ended in an earlier check")
    if GroupState.ended:
        return Outcome(SKIPPED, f"the ranks are out of step since {GroupState.ended}")
    late = missing(group, f"{name}/come", COLLECTIVE_SECONDS)
    if late:
        GroupState.ended = name
        detail = f"{named(late)} did not reach {name} within {COLLECTIVE_SECONDS:g} s"
        return Outcome(FAILED, detail)
    has_left = False
    try:
        outcome = work(group)
    except Exception as problem:  # the type of the error differs between backends
        # The error may have ended the check in a collective that other ranks are still in.
        has_left = True
        error = first_line(problem)
        detail = f"rank {group.rank}: {GroupState.place} ended by {error}"
        outcome = Outcome(FAILED, detail, hint=hint_of(error))
    own_failure = outcome.detail if outcome.status == FAILED else ""
    group.store.set(f"{name}/said/{group.rank}", json.dumps([own_failure, has_left]))
    # The other ranks may still be in a last collective, so give them time. If this rank has left
    # that collective, however, they hang in it, and waiting is useless.
    patience = SECONDS_FOR_LAST_WORDS + (0.0 if has_left else COLLECTIVE_SECONDS)
    late = missing(group, f"{name}/went", patience)
    failures = [f"{named(late)} hangs in {name}"] if late else []
    for rank in sorted(set(range(group.world)) - set(late)):
        failure, rank_has_left = json.loads(group.store.get(f"{name}/said/{rank}").decode())
        failures += [failure] if failure else []
        # A rank that left a collective, or is late, is out of step with the other ranks.
        if rank_has_left or late:
            GroupState.ended = name
    if failures:
        return outcome._replace(status=FAILED, detail="; ".join(failures))
    return outcome


def missing(group: ProcessGroup, place: str, seconds: float) -> List[int]:
    """Record that this rank has reached this place, and return those that do not in time. Adding 0
    to a counter reads it without waiting; old releases have no `store.check`."""
    group.store.add(f"{place}/{group.rank}", 1)
    end = time.monotonic() + seconds
    late = list(range(group.world))
    while late and time.monotonic() < end:
        late = [rank for rank in late if not group.store.add(f"{place}/{rank}", 0)]
        if late:
            time.sleep(0.01)
    return late


def shared(group: ProcessGroup, name: str, value: str) -> List[str]:
    """Publish this rank's value, and return those of all ranks in order."""
    group.store.set(f"{name}/{group.rank}", value)
    # `get` waits until the rank has published its value.
    return [group.store.get(f"{name}/{rank}").decode() for rank in range(group.world)]


def named(ranks: List[int]) -> str:
    """A list of ranks in words."""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def check(
    name: str, calls_of: Callable[[ProcessGroup], Calls], seconds: float = 1e9
) -> Callable[[str], Outcome]:
    """The function of a check, which makes its calls as long as there is time."""
    return lambda _: together(name, lambda group: made(group, name, calls_of(group), seconds))


def made(group: ProcessGroup, name: str, calls: Calls, seconds: float) -> Outcome:
    """Make the calls of a check in order, together with the other ranks, and return the outcome."""
    end = time.monotonic() + seconds
    count = 0
    problems: List[str] = []
    not_offered: List[str] = []
    GroupState.held = {}
    for number, (call, run) in enumerate(calls.items()):
        if number % BLOCK == 0:
            # Rank 0 decides for all whether there is time for more calls.
            if group.rank == 0:
                group.store.set(f"{name}/{number}", "on" if time.monotonic() < end else "enough")
            if group.store.get(f"{name}/{number}") != b"on":
                break
        count += 1
        GroupState.place = f"{name}/{call}"
        # The parent names the call if it hangs.
        working_on(GroupState.place)
        try:
            with warnings.catch_warnings():
                # torch warns that some ways to call a collective are deprecated.
                warnings.simplefilter("ignore")
                problem = run()
            if problem:
                problems.append(f"{GroupState.place}: {problem}")
        except REFUSING as refusal:
            error = first_line(refusal)
            # A call that returns None where an answer is expected is a fault, not a refusal.
            if "'NoneType' object" in error or not any(words in error for words in REFUSALS):
                raise
            not_offered.append(f"{call} ({error})")
    problems += unlike_bits(group, name)
    if problems:
        detail = f"rank {group.rank}: {problems[0]} ({len(problems)} of {count} are wrong)"
        return Outcome(FAILED, detail, problem=WRONG)
    left_out = ""
    if not_offered:
        left_out = f"; not offered: {not_offered[0]} and {len(not_offered) - 1} more"
    if count < len(calls):
        detail = f"{count} of {len(calls)} calls in {seconds:g} s, all of them exact{left_out}"
        return Outcome(SKIPPED, detail, hint="a quieter machine makes all of them")
    # If no call could be made at all, the check has shown nothing.
    exact = count - len(not_offered)
    status = PASSED if exact else SKIPPED
    return Outcome(status, f"{exact} calls exact on {group.world} ranks{left_out}")


def unlike_bits(group: ProcessGroup, name: str) -> List[str]:
    """The calls after which this rank's bits differ from those of rank 0, in words."""
    if group.rank == 0:
        group.store.set(f"{name}/held", json.dumps(GroupState.held))
    first = json.loads(group.store.get(f"{name}/held").decode())
    unlike = [call for call, bits in GroupState.held.items() if first.get(call) != bits]
    return [f"{call}: not the bits that rank 0 holds" for call in unlike]
