"""The process group of this process, and how its ranks agree on the outcome of a check.

They agree through the store, never through the collective that is on trial; a rank that does not
come, or does not return, is named.
"""

from __future__ import annotations

import json
import time
import warnings
from datetime import timedelta
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch.distributed as dist

from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, Outcome, working_on

COLLECTIVE_SECONDS = 30.0
"""How long one collective may take, and how long the ranks wait for one another before a check:
so long that one which other programs leave a tenth of a core still comes."""
BLOCK = 32
"""So many calls are made before the ranks ask each other whether there is time for more."""
REFUSING = (RuntimeError, ValueError, TypeError, AttributeError, ImportError)
REFUSALS = (
    *("not support", "Cannot use", "No backend type", "not impl", "Invalid scalar type"),
    *("must be contiguous", "Unconvertible NCCL type", "module 'torch", "unexpected keyword"),
    *("only supports", "Unsupported", "No module named", "cannot import name"),
)
"""What torch raises, and says, of a call that it does not offer, before anything is sent."""
NETWORK = "set NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME to the network interface between the hosts"
HINTS: Tuple[Tuple[str, str], ...] = (
    (
        "shared memory",
        "/dev/shm is too small or full: `docker run --ipc=host` or `--shm-size=8g`",
    ),
    ("Duplicate GPU", "give each rank its own GPU: LOCAL_RANK chooses it"),
    ("driver version is insufficient", "`gpusetup doctor` names the driver that this NCCL needs"),
    ("out of memory", "other programs use the GPU's memory: `nvidia-smi` shows which"),
    ("Too many open files", "raise the limit: `ulimit -n 65536`"),
)
"""Words of a backend's error -> the next step."""


class Group(NamedTuple):
    """The process group of this process."""

    store: Any
    rank: int
    world: int
    device: str
    backend: str


class Members(NamedTuple):
    """A group of ranks to which this one belongs."""

    handle: Any
    """What a collective is given as `group`; None: all ranks."""
    ranks: Tuple[int, ...]
    me: int
    """This rank's place in the group."""


class State:
    """What this process knows of its group."""

    group: Optional[Group] = None
    groups: Dict[str, Members] = {}
    ended = ""
    """The check after which the ranks are no longer in step; empty while they are."""
    place = ""
    """The call in which this rank stands."""
    held: Dict[str, Any] = {}


def hint_of(problem: str) -> str:
    """The next step after an error of a backend.

    >>> hint_of("NCCL WARN Error while creating shared memory segment").split(":")[0]
    '/dev/shm is too small or full'
    """
    return next((hint for words, hint in HINTS if words in problem), NETWORK)


def begin(place: str) -> None:
    """This rank enters a call: where it hangs, its parent says in which."""
    State.place = place
    working_on(place)


def enter(group: Group) -> None:
    """From now on this process is in that group; every rank makes all sub-groups."""
    every = list(range(group.world))
    half = group.world // 2
    parts = {
        "again": (every, []),
        "halves": (every[:half], every[half:]),
        "stripes": (every[::2], every[1::2]),
    }
    State.group, State.ended = group, ""
    State.groups = {"world": Members(None, tuple(every), group.rank)}
    limit = timedelta(seconds=COLLECTIVE_SECONDS)  # else it waits half an hour
    for name, lists in parts.items():
        for ranks in filter(None, lists):
            handle = dist.new_group(ranks, timeout=limit)
            if group.rank in ranks:
                State.groups[name] = Members(handle, tuple(ranks), ranks.index(group.rank))


def together(name: str, work: Callable[[Group], Outcome]) -> Outcome:
    """Do a check with the others, while the ranks are in step; it fails on all where on one."""
    group = State.group
    if group is None or State.ended:
        since = f"the ranks are out of step since {State.ended}"
        return Outcome(SKIPPED, since if group else "this rank's process ended in an earlier check")
    late = missing(group, f"{name}/come", COLLECTIVE_SECONDS)
    if late:
        State.ended = name
        told = f"{named(late)} did not reach {name} within {COLLECTIVE_SECONDS:g} s"
        return Outcome(FAILED, told)
    lost = ""
    try:
        own = work(group)
    except Exception as problem:  # whatever the backend raises is this rank's answer
        lost = first_line(problem)
        told = f"rank {group.rank}: {State.place} ended by {lost}"
        own = Outcome(FAILED, told, hint=hint_of(lost))
    said = own.detail if own.status == FAILED else ""
    group.store.set(f"{name}/said/{group.rank}", json.dumps([said, bool(lost)]))
    late = missing(group, f"{name}/went", 5.0 if lost else COLLECTIVE_SECONDS + 5.0)
    wrong = [f"{named(late)} hangs in {name}"] if late else []
    for rank in sorted(set(range(group.world)) - set(late)):
        said, left = json.loads(group.store.get(f"{name}/said/{rank}").decode())
        wrong += [said] if said else []
        State.ended = name if left or late else State.ended
    return own._replace(status=FAILED, detail="; ".join(wrong)) if wrong else own


def missing(group: Group, place: str, seconds: float) -> List[int]:
    """The ranks that have not come to a place after so long; this one has.

    Asked by adding nothing: the store of every torch can, `check` came later.
    """
    group.store.add(f"{place}/{group.rank}", 1)
    until = time.monotonic() + seconds
    waited = list(range(group.world))
    while waited and time.monotonic() < until:
        waited = [other for other in waited if not group.store.add(f"{place}/{other}", 0)]
        if waited:
            time.sleep(0.01)
    return waited


def shared(group: Group, name: str, value: str) -> List[str]:
    """What each rank says under a name; this one says the value."""
    group.store.set(f"{name}/{group.rank}", value)
    return [group.store.get(f"{name}/{rank}").decode() for rank in range(group.world)]


def goes_on(group: Group, place: str, until: float) -> bool:
    """Whether rank 0 still has time; all ranks get the same answer."""
    if group.rank == 0:
        group.store.set(place, "on" if time.monotonic() < until else "enough")
    return bool(group.store.get(place) == b"on")


def named(numbers: List[int]) -> str:
    """
    >>> named([1]), named([1, 3])
    ('rank 1', 'ranks 1, 3')
    """
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))


Part = Tuple[str, Callable[[], str]]
"""What is tried, and what says what is wrong with it."""


def hold(members: Members, name: str, bits: Any) -> None:
    """Say what all members must hold alike; compared at the end of the check."""
    State.held[f"{members.ranks} {name}"] = bits


def check(
    name: str, parts: Callable[[Group], Sequence[Part]], seconds: float = 1e9
) -> Callable[[str], Outcome]:
    """A check of several parts, for which there are so many seconds."""
    return lambda device: together(
        name, lambda group: each_part(group, name, parts(group), seconds)
    )


def each_part(group: Group, name: str, every: Sequence[Part], seconds: float = 1e9) -> Outcome:
    """Do the parts of a check in their order, with the others; what each says is wrong."""
    made, until = 0, time.monotonic() + seconds
    wrong: List[str] = []
    lacking: List[str] = []
    State.held = {}
    while made < len(every) and (made % BLOCK or goes_on(group, f"{name}/{made}", until)):
        part, run = every[made]
        made += 1
        begin(f"{name}/{part}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of forms that torch advises against
                said = run()
            wrong += [f"{State.place}: {said}"] if said else []
        except REFUSING as problem:
            told = first_line(problem)
            # An answer that was nothing is a fault.
            if "'NoneType' object" in told or not any(words in told for words in REFUSALS):
                raise
            lacking.append(f"{part} ({told})")
    group.store.set(f"{name}/held/{group.rank}", json.dumps(State.held))
    for first in {members.ranks[0] for members in State.groups.values()}:
        theirs = json.loads(group.store.get(f"{name}/held/{first}").decode())
        unlike = [each for each in theirs if theirs[each] != State.held.get(each, theirs[each])]
        wrong += [f"{each}: not the bits that rank {first} holds" for each in unlike]
    if wrong:
        told = f"{wrong[0]} ({len(wrong)} of {made} are wrong)"
        return Outcome(FAILED, f"rank {group.rank}: {told}")
    less = f"; not offered: {lacking[0]} and {len(lacking) - 1} more" if lacking else ""
    if made < len(every):
        told = f"{made} of {len(every)} calls in {seconds:g} s, all of them exact{less}"
        return Outcome(SKIPPED, told, hint="a quieter machine makes all of them")
    status = PASSED if len(lacking) < made else SKIPPED
    return Outcome(status, f"{made - len(lacking)} calls exact on {group.world} ranks{less}")
