"""One call on this rank: its tensors, what they must be afterwards, what must stay as it was."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .drawing import Call
from .group import COLLECTIVE_SECONDS, Group
from .patterns import differing, reduced, spread, tables

LATE_SECONDS = 0.015
MARGIN = 19
"""Elements before and behind a tensor that lies within another one."""


class Members(NamedTuple):
    """A group of ranks to which this one belongs."""

    handle: Any
    """What a collective is given as `group`; None: all ranks."""
    ranks: Tuple[int, ...]
    me: int
    """This rank's place in the group."""


class Expected(NamedTuple):
    found: Callable[[], Any]
    table: Any
    phase: int
    how: str


class Ended:
    """The handle of a call that has none, or of several at once."""

    def __init__(self, *waits: Callable[[], Any]) -> None:
        self.waits = waits

    def wait(self) -> None:
        for wait in self.waits:
            wait()


class Scene:
    """The tensors of one call."""

    def __init__(self, torch: Any, group: Group, members: Members, call: Call, seed: int) -> None:
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.group, self.members, self.call = group, members, call
        self.seed = seed
        self.me, self.world = members.me, len(members.ranks)
        self.root = call.root % self.world
        self.size = call.size
        self.chance = random.Random(call.seed(seed))
        self.expected: List[Expected] = []
        self.kept: List[Any] = []
        self.rows: Any = None

    def draw(self, length: int) -> None:
        """The tables of all members, for tensors of up to so many elements."""
        seed = self.call.seed(self.seed) + self.chance.getrandbits(40)
        dtype, how = self.call.dtype, self.call.how
        self.rows = tables(self.torch, seed, self.world, length, dtype, how, self.call.number)

    @property
    def op(self) -> Any:
        return getattr(self.dist.ReduceOp, self.call.how.upper())

    @property
    def summed(self) -> Any:
        return reduced(self.torch, self.rows, self.call.how)

    @property
    def backend_group(self) -> Any:
        """The group itself, also where it is the default one."""
        return self.members.handle or self.dist.distributed_c10d._get_default_group()

    def place(self, member: int) -> int:
        """A member's rank among all."""
        return self.members.ranks[member]

    def own(self, size: int, phase: int = 0, member: Optional[int] = None) -> Any:
        """A tensor with the numbers of this rank (or of another member)."""
        made = self._held(size)
        row = self.rows[self.me if member is None else member]
        spread(self.torch, row, size, phase, made)
        return made

    def given(self, size: int, phase: int = 0) -> Any:
        """As `own`, of a call that must leave it as it was."""
        made = self.own(size, phase)
        self.expect(made, self.rows[self.me], phase, "bits")
        return made

    def blank(self, size: int) -> Any:
        """A tensor for the answer, full of what is wrong in it."""
        made = self._held(size)
        junk = 1 if self.call.dtype == "bool" else 77
        made.fill_(junk)
        if self.call.dtype == "bool":
            made[::2] = False
        return made

    def _held(self, size: int) -> Any:
        """A tensor in the layout of this call; what lies around it is remembered."""
        kind, device = getattr(self.torch, self.call.dtype), self.group.device
        if self.call.layout != "offset":
            return self.torch.empty(size, dtype=kind, device=device)
        whole = self.torch.ones(size + 2 * MARGIN, dtype=kind, device=device)
        first = MARGIN - self.chance.randrange(8)
        self.kept += [whole[:first], whole[first + size :]]
        return whole[first : first + size]

    def shown(self, flat: Any) -> Any:
        """What a collective is given for a flat tensor: that, or the same memory transposed."""
        size = flat.numel()
        if self.call.layout != "transposed" or size % 2:
            return flat
        return flat.view(2, size // 2).t()

    def expect(self, found: Any, table: Any, phase: int = 0, how: str = "") -> None:
        """What a tensor (or what a function gives after the call) must be."""
        get = found if callable(found) else lambda: found
        self.expected.append(Expected(get, table, phase, how or self.call.how))

    def wrong(self) -> str:
        """What is not as it must be; empty where all is."""
        for expected in self.expected:
            found = expected.found()
            told = differing(self.torch, found, expected.table, expected.phase, expected.how)
            if told[0]:
                return f"{told[0]} of {found.numel()} elements are wrong, the first at {told[-1]}"
        for around in self.kept:
            if not bool((around == 1).all().item()):
                return "it wrote beside its tensor"
        return ""

    def late(self) -> int:
        """The member that comes late: one on which others must wait."""
        starts = self.call.op in ("broadcast", "scatter")
        return self.root if starts else (self.root + 1) % self.world


Start = Callable[[bool], Any]
Made = Callable[[Scene], Start]


def performed(torch: Any, group: Group, members: Members, call: Call, seed: int, make: Made) -> str:
    """Make a call in its mode; what is wrong with it."""
    several = 3 if call.mode == "flight" else 2 if call.mode == "again" else 1
    scenes = [Scene(torch, group, members, call, seed + extra) for extra in range(several)]
    starts = [make(scene) for scene in scenes]
    if call.mode.startswith("late") and members.me == scenes[0].late() and len(members.ranks) > 1:
        time.sleep(LATE_SECONDS)
    if call.mode in ("sync", "late", "again"):
        for start in starts:
            start(False)
        return _first_wrong(scenes)
    works = [start(True) for start in starts]
    for work in reversed(works):
        if work is not None:
            work.wait()
    return _first_wrong(scenes)


def _first_wrong(scenes: List[Scene]) -> str:
    return next((said for said in (scene.wrong() for scene in scenes) if said), "")


class Groups:
    """The groups of this process, each made once; every rank makes all of them."""

    def __init__(self, group: Group) -> None:
        import torch.distributed as dist

        limit = timedelta(seconds=COLLECTIVE_SECONDS)
        everyone = list(range(group.world))
        self.all = Members(None, tuple(everyone), group.rank)
        self.known: Dict[str, Members] = {"world": self.all}
        half = group.world // 2
        parts = {
            "again": [everyone],
            "halves": [everyone[:half], everyone[half:]],
            "stripes": [everyone[::2], everyone[1::2]],
            "ends": [[0, group.world - 1], everyone[1:-1]],
        }
        for name, lists in parts.items():
            for members in (each for each in lists if each):
                handle = dist.new_group(members, timeout=limit)  # else it waits half an hour
                if group.rank in members:
                    place = members.index(group.rank)
                    self.known[name] = Members(handle, tuple(members), place)

    def of(self, name: str) -> Members:
        return self.known[name]


_GROUPS: List[Tuple[Group, Groups]] = []


def groups_of(group: Group) -> Groups:
    """The sub-groups of a group."""
    if not _GROUPS or _GROUPS[0][0] is not group:
        _GROUPS[:] = [(group, Groups(group))]
    return _GROUPS[0][1]
