"""This process's process group, and how its ranks agree on the outcome of a check.

They agree through the store, never through the collective that is being tested. The outcome names a
rank that does not arrive or does not return.
"""

from __future__ import annotations

import json
import time
import warnings
from datetime import timedelta
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch.distributed as dist

from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, WRONG, Outcome, working_on

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
"""A part of a backend's error message -> the next step."""


class ProcessGroup(NamedTuple):
    """The process group of this process: its store, rank, size, device and backend."""

    store: Any
    rank: int
    world: int
    device: str
    backend: str


class Members(NamedTuple):
    """A group of ranks that this rank belongs to."""

    handle: Any
    """The `group` argument of a collective; None means all ranks."""
    ranks: Tuple[int, ...]
    me: int
    """This rank's index in the group."""


class GroupState:
    """What this process knows about its groups."""

    group: Optional[ProcessGroup] = None
    groups: Dict[str, Members] = {}
    ended = ""
    """The check after which the ranks are no longer in step; empty while they are."""
    place = ""
    """The call that this rank is making."""
    held: Dict[str, Any] = {}
    """Group and call -> a value that must be the same on all members of the group."""


def hint_of(problem: str) -> str:
    """The next step after an error of a communication backend.

    >>> hint_of("NCCL WARN Error while creating shared memory segment").split(":")[0]
    '/dev/shm is too small or full'
    """
    for words, hint in HINTS:
        if words in problem:
            return hint
    return NETWORK


def begin(place: str) -> None:
    """Record that this rank begins a call, so that the parent can name the call if it hangs."""
    GroupState.place = place
    working_on(place)


def enter(group: ProcessGroup) -> None:
    """Make this the process's group, and create all subgroups, which every rank must do."""
    all_ranks = list(range(group.world))
    half = group.world // 2
    ranks_by_name = {
        "again": (all_ranks, []),
        "halves": (all_ranks[:half], all_ranks[half:]),
        "stripes": (all_ranks[::2], all_ranks[1::2]),
    }
    GroupState.group, GroupState.ended = group, ""
    GroupState.groups = {"world": Members(None, tuple(all_ranks), group.rank)}
    # Without this limit, a collective that hangs waits for half an hour.
    limit = timedelta(seconds=COLLECTIVE_SECONDS)
    for name, rank_lists in ranks_by_name.items():
        for ranks in filter(None, rank_lists):
            # Every rank must create every group, even the groups that it does not belong to.
            handle = dist.new_group(ranks, timeout=limit)
            if group.rank in ranks:
                my_place = ranks.index(group.rank)
                GroupState.groups[name] = Members(handle, tuple(ranks), my_place)


def together(name: str, work: Callable[[ProcessGroup], Outcome]) -> Outcome:
    """Run a check together with the other ranks, unless a rank is no longer in step. It fails on
    all ranks if it fails on one.

    The ranks meet before the check and after it, and tell each other what they found.
    """
    group = GroupState.group
    if group is None:
        return Outcome(SKIPPED, "this rank's process ended in an earlier check")
    if GroupState.ended:
        return Outcome(SKIPPED, f"the ranks are out of step since {GroupState.ended}")
    late_ranks = missing(group, f"{name}/come", COLLECTIVE_SECONDS)
    if late_ranks:
        GroupState.ended = name
        late = named(late_ranks)
        return Outcome(FAILED, f"{late} did not reach {name} within {COLLECTIVE_SECONDS:g} s")
    outcome, has_left = worked(group, work)
    failures = exchanged_failures(group, name, outcome, has_left)
    # If one rank fails, all ranks report it.
    if failures:
        return outcome._replace(status=FAILED, detail="; ".join(failures))
    return outcome


class RankOutcome(NamedTuple):
    """What a check found on this rank."""

    outcome: Outcome
    has_left: bool
    """Whether an error ended the check, perhaps in a collective that other ranks are still in."""


def worked(group: ProcessGroup, work: Callable[[ProcessGroup], Outcome]) -> RankOutcome:
    """Run this rank's part of a check. Any error of the backend becomes a failure."""
    try:
        return RankOutcome(work(group), has_left=False)
    except Exception as problem:
        error = first_line(problem)
        detail = f"rank {group.rank}: {GroupState.place} ended by {error}"
        failure = Outcome(FAILED, detail, hint=hint_of(error))
        return RankOutcome(failure, has_left=True)


def exchanged_failures(
    group: ProcessGroup, name: str, outcome: Outcome, has_left: bool
) -> List[str]:
    """Tell the other ranks what this one found, and return the failures of all ranks.

    If a rank left a collective or is late, records that the ranks are out of step from now on.
    """
    own_failure = outcome.detail if outcome.status == FAILED else ""
    own_message = json.dumps([own_failure, has_left])
    group.store.set(f"{name}/said/{group.rank}", own_message)
    patience = SECONDS_FOR_LAST_WORDS
    # The other ranks may still be in a last collective, so give them time. If this rank has left
    # that collective, however, they hang in it, and waiting is useless.
    if not has_left:
        patience += COLLECTIVE_SECONDS
    late_ranks = missing(group, f"{name}/went", patience)
    failures = []
    if late_ranks:
        failures.append(f"{named(late_ranks)} hangs in {name}")
    for rank in range(group.world):
        if rank in late_ranks:
            continue
        message = group.store.get(f"{name}/said/{rank}").decode()
        failure, rank_has_left = json.loads(message)
        if failure:
            failures.append(failure)
        # A rank that left a collective, or is late, is out of step with the other ranks.
        if rank_has_left or late_ranks:
            GroupState.ended = name
    return failures


def missing(group: ProcessGroup, place: str, seconds: float) -> List[int]:
    """The ranks that have not reached this place within `seconds`. Also records that this rank has
    reached it.

    Adding 0 to a counter reads it without waiting. Old releases of torch have no `store.check`.
    """
    group.store.add(f"{place}/{group.rank}", 1)
    end = time.monotonic() + seconds
    late_ranks = list(range(group.world))
    while late_ranks and time.monotonic() < end:
        late_ranks = [rank for rank in late_ranks if not group.store.add(f"{place}/{rank}", 0)]
        if late_ranks:
            time.sleep(0.01)
    return late_ranks


def shared(group: ProcessGroup, name: str, value: str) -> List[str]:
    """The values that all ranks publish under this name, in rank order. Also publishes this rank's
    value."""
    group.store.set(f"{name}/{group.rank}", value)
    values = []
    for rank in range(group.world):
        # `get` waits until the rank has published its value.
        message = group.store.get(f"{name}/{rank}")
        values.append(message.decode())
    return values


def goes_on(group: ProcessGroup, place: str, end: float) -> bool:
    """Whether rank 0 still has time for more calls; all ranks get the same answer."""
    if group.rank == 0:
        has_time = time.monotonic() < end
        group.store.set(place, "on" if has_time else "enough")
    return bool(group.store.get(place) == b"on")


def named(ranks: List[int]) -> str:
    """A list of ranks in words.

    >>> named([1]), named([1, 3])
    ('rank 1', 'ranks 1, 3')
    """
    noun = "rank" if len(ranks) == 1 else "ranks"
    numbers = ", ".join(str(rank) for rank in ranks)
    return f"{noun} {numbers}"


class RankCall(NamedTuple):
    """One call of a check, which all ranks make together."""

    name: str
    run: Callable[[], str]
    """Makes the call, and returns what is wrong with its answer (empty if it is correct)."""


def hold(members: Members, name: str, bits: Any) -> None:
    """Record bits that must be the same on all members; the check compares them at its end."""
    place = f"{members.ranks} {name}"
    GroupState.held[place] = bits


def check(
    name: str, calls_of: Callable[[ProcessGroup], Sequence[RankCall]], seconds: float = 1e9
) -> Callable[[str], Outcome]:
    """Returns the function of a check, which makes the calls of `calls_of` as long as there is
    time."""

    def make_calls(group: ProcessGroup) -> Outcome:
        return each_part(group, name, calls_of(group), seconds)

    def run(_: str) -> Outcome:
        return together(name, make_calls)

    return run


def each_part(
    group: ProcessGroup, name: str, calls: Sequence[RankCall], seconds: float = 1e9
) -> Outcome:
    """Make the calls of a check in order, together with the other ranks, and return the outcome."""
    end = time.monotonic() + seconds
    made = 0
    problems: List[str] = []
    not_offered: List[str] = []
    GroupState.held = {}
    for number, (call_name, run) in enumerate(calls):
        # From time to time the ranks agree on whether there is time for more calls.
        if number % BLOCK == 0 and not goes_on(group, f"{name}/{number}", end):
            break
        made += 1
        begin(f"{name}/{call_name}")
        try:
            with warnings.catch_warnings():
                # torch warns that some ways to call a collective are deprecated.
                warnings.simplefilter("ignore")
                problem = run()
            if problem:
                problems.append(f"{GroupState.place}: {problem}")
        except REFUSING as refusal:
            error = first_line(refusal)
            if not is_refusal(error):
                raise
            not_offered.append(f"{call_name} ({error})")
    problems += unlike_bits(group, name)
    if problems:
        detail = f"{problems[0]} ({len(problems)} of {made} are wrong)"
        return Outcome(FAILED, f"rank {group.rank}: {detail}", problem=WRONG)
    left_out = ""
    if not_offered:
        left_out = f"; not offered: {not_offered[0]} and {len(not_offered) - 1} more"
    if made < len(calls):
        detail = f"{made} of {len(calls)} calls in {seconds:g} s, all of them exact{left_out}"
        return Outcome(SKIPPED, detail, hint="a quieter machine makes all of them")
    # If no call could be made at all, the check has shown nothing.
    exact_calls = made - len(not_offered)
    status = PASSED if exact_calls else SKIPPED
    return Outcome(status, f"{exact_calls} calls exact on {group.world} ranks{left_out}")


def is_refusal(error: str) -> bool:
    """Whether the error says that torch does not support the call."""
    # A call that returns None where an answer is expected is a fault, not a refusal.
    if "'NoneType' object" in error:
        return False
    return any(words in error for words in REFUSALS)


def unlike_bits(group: ProcessGroup, name: str) -> List[str]:
    """The places where this rank's bits differ from those of the group's first rank, in words."""
    message = json.dumps(GroupState.held)
    group.store.set(f"{name}/held/{group.rank}", message)
    problems = []
    first_ranks = {members.ranks[0] for members in GroupState.groups.values()}
    for first_rank in first_ranks:
        message = group.store.get(f"{name}/held/{first_rank}").decode()
        for place, bits in json.loads(message).items():
            # Some places belong to groups that this rank is not in.
            if place in GroupState.held and GroupState.held[place] != bits:
                problems.append(f"{place}: not the bits that rank {first_rank} holds")
    return problems
