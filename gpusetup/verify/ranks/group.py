"""The process group of this process, and how its ranks agree on the outcome of a check.

They agree through the store, never through the collective that is on trial. A rank that does not
come is named, with the call in which it stands.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

from ..device.importing import first_line
from ..values import FAILED, PASSED, SKIPPED, Outcome

ARRIVE_SECONDS = 8.0
"""How long the ranks wait for one another before each check."""
COLLECTIVE_SECONDS = 10
"""How long one collective may take before the ranks give it up."""
STUCK_SECONDS = 5.0
"""After so long in one call a rank tells the others where it stands."""

GAVE_NOTHING = "'NoneType' object"
"""Stands in the error of a call whose answer was nothing: that is a fault, not a form that this
torch lacks."""
NETWORK = "name the interface that joins the hosts: NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME"
HINTS: Tuple[Tuple[str, str], ...] = (
    (
        "shared memory",
        "/dev/shm is too small or full: `docker run --ipc=host` or `--shm-size=8g`",
    ),
    ("Duplicate GPU", "give each rank a GPU of its own: LOCAL_RANK chooses it"),
    ("driver version is insufficient", "`gpusetup doctor` names the driver that this NCCL needs"),
    ("out of memory", "the GPU's memory is taken: `nvidia-smi` shows by whom"),
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
    most_bytes: int = 1 << 26
    """The largest message that the memory of every rank allows."""


class State:
    """What this process knows of its group."""

    def __init__(self) -> None:
        self.group: List[Group] = []
        self.ended = ""
        """The check after which the ranks are no longer in step; empty while they are."""
        self.place: Tuple[float, str] = (0.0, "")
        """Since when (monotonic seconds) this rank is in which call."""
        self.told = ""


_STATE = State()


def hint_of(problem: str) -> str:
    """The next step after an error of a backend.

    >>> hint_of("NCCL WARN Error while creating shared memory segment").split(":")[0]
    '/dev/shm is too small or full'
    """
    return next((hint for words, hint in HINTS if words in problem), NETWORK)


def enter(group: Group) -> None:
    """From now on this process is in that group."""
    _STATE.group[:] = [group]
    _STATE.ended = ""
    threading.Thread(target=_watch, args=(group,), daemon=True).start()


def current() -> Group:
    """The group of this process."""
    return _STATE.group[0]


def begin(place: str) -> None:
    """This rank enters a call; an empty name: it has left it."""
    _STATE.place = (time.monotonic(), place)


def _watch(group: Group) -> None:
    """Tell the others where this rank stands, once it stands there for long."""
    while True:
        time.sleep(1.0)
        since, place = _STATE.place
        if place and place != _STATE.told and time.monotonic() - since > STUCK_SECONDS:
            _STATE.told = place
            with contextlib.suppress(Exception):  # the store's rank may have gone
                group.store.set(f"stuck/{group.rank}", place)
                group.store.add(f"stuck/{group.rank}/told", 1)


def together(name: str, work: Callable[[Group], Outcome]) -> Outcome:
    """Do a check with the others, while the ranks are in step."""
    if not _STATE.group:
        return Outcome(SKIPPED, "this rank's process ended in an earlier check")
    if _STATE.ended:
        return Outcome(SKIPPED, f"the ranks are not in step since {_STATE.ended}")
    group = current()
    return agreed(group, name, lambda: work(group))


def agreed(group: Group, name: str, work: Callable[[], Outcome]) -> Outcome:
    """Do the work when all ranks have come; fail on every rank where it fails on one."""
    late = missing(group, f"{name}/come", ARRIVE_SECONDS)
    if late:
        _STATE.ended = name
        return Outcome(FAILED, f"{ranks(late)} did not come to {name} within {ARRIVE_SECONDS:g} s")
    own, said = _worked(group, work), ""
    begin("")
    if own.status == FAILED:
        said = own.detail
    group.store.set(f"{name}/said/{group.rank}", said or own.status)
    late = missing(group, f"{name}/went", 5.0 if said else COLLECTIVE_SECONDS + 5.0)
    told = [said] if said else []
    told += [f"rank {other}: {text}" for other, text in _others(group, name, late)]
    if late:
        _STATE.ended = name
        told.insert(0, "; ".join(hanging(group, other, name) for other in late))
    if any(ENDS in text for text in told):
        _STATE.ended = name
    return own._replace(status=FAILED, detail="; ".join(told)) if told else own


ENDS = "ended by "
"""Stands before an error that leaves the ranks out of step."""


def _worked(group: Group, work: Callable[[], Outcome]) -> Outcome:
    try:
        return work()
    except Exception as problem:  # whatever the backend raises is this rank's answer
        place = f"{_STATE.place[1]} " if _STATE.place[1] else ""
        said = first_line(problem)
        return Outcome(FAILED, f"rank {group.rank}: {place}{ENDS}{said}", hint=hint_of(said))


def hanging(group: Group, other: int, name: str) -> str:
    """A rank that did not come out of a check, and the call in which it said it was."""
    told = bool(group.store.add(f"stuck/{other}/told", 0))
    place = group.store.get(f"stuck/{other}").decode() if told else ""
    return f"rank {other} hangs in {name}" + (f" ({place})" if place else "")


def _others(group: Group, name: str, late: List[int]) -> Iterator[Tuple[int, str]]:
    """What the other ranks say that failed on them."""
    for other in range(group.world):
        if other != group.rank and other not in late:
            said = group.store.get(f"{name}/said/{other}").decode()
            if said not in (PASSED, SKIPPED):
                yield other, said.replace(f"rank {other}: ", "", 1)


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


def goes_on(group: Group, place: str, until: float) -> bool:
    """Whether rank 0 still has time; all ranks get the same answer."""
    if group.rank == 0:
        group.store.set(place, "on" if time.monotonic() < until else "enough")
    return bool(group.store.get(place) == b"on")


def ranks(numbers: List[int]) -> str:
    """
    >>> ranks([1]), ranks([1, 3])
    ('rank 1', 'ranks 1, 3')
    """
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))
