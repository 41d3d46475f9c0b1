"""The collectives: one loop makes each call of the table; every rank works out the numbers of all
others, so that each judges its own answer. Barriers."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any, List

import torch
import torch.distributed as dist

from ..values import asked
from .draws import COLLECTIVES, Draw, drawn, ring_step
from .group import Group, Members, Part, State, check, hold
from .numbers import ROUNDED, reduced, rows, signature, wrong

SECONDS = 30.0
"""How long the calls of one check may take; a quiet machine needs a tenth of it."""
ROUNDS = {"standard": 2, "census": 6}
LATE_SECONDS = 0.02
UNEVEN = ("uneven", "lists")
"""Ways of all-to-all in which each part has a length of its own; gloo has no such lists."""
JUNK = 77
MARGIN = 19
"""Elements before and behind a tensor that lies within another one."""


class Turn:
    """The tensors of one call on this rank, by the names that the table gives them."""

    nothing = None

    def __init__(self, group: Group, op: str, draw: Draw, turn: int = 0) -> None:
        self.collective, self.draw, self.nccl = COLLECTIVES[op], draw, group.backend == "nccl"
        whose, ways, parts, _ = self.collective
        # NCCL's are kernels that wait for each other: in one batch.
        self.calls = ways["together" if self.nccl and draw.way == "handles" else draw.way]
        self.handle, ranks, self.me = self.members = State.groups[draw.group]
        world, self.later = len(ranks), draw.mode.endswith(("async", "flight"))
        self.root = draw.root % world
        self.place, how = ranks[self.root], draw.kind[1].replace("fraction", "sum")
        step = ring_step(self.root, world)
        self.to, self.whence = (ranks[(self.me + each) % world] for each in (step, -step))
        # Those who send upwards send first, the others receive first.
        self.order = -1 if whose == "ring" and ranks[self.me] > self.to else 1
        self.op = getattr(dist.ReduceOp, how.upper(), None)
        self.chance = random.Random(f"{asked().seed} {op}/{draw.name} {turn}")
        counts = [[draw.size] * (world if parts else 1)] * world
        if op == "all_to_all" and draw.way in UNEVEN[: 2 if self.nccl else 1]:
            some = self.chance.randrange
            counts = [[some(draw.size + 1) * bool(some(5)) for _ in row] for row in counts]
        self.sent = counts[self.me]
        table = rows(draw.kind, world, max(map(sum, counts)), self.chance.getrandbits(60))
        held = [row[: sum(each)].split(each) for row, each in zip(table, counts)]
        self.before, self.limit = torch.cat(held[self.me]), None
        if whose == "sum":
            sums, limit = reduced(table, draw.kind[1])
            held.append(sums.split(self.sent))
            self.limit = limit.split(self.sent)[self.me * parts]
        pieces = [held[a][part] for a, part in self.collective.after(self.me, self.root, world)]
        self.exact = torch.cat(pieces) if pieces else None
        self.received = list(map(len, pieces))
        self.margins: List[Any] = []
        self.given = self.found = self._laid(sum(self.sent), group.device).copy_(self.before)
        if parts or whose not in ("sum", "root"):
            self.found = self._laid(sum(self.received), group.device)
        self.parts = list(self.given.split(self.sent))
        self.pieces = list(self.found.split(self.received)) if pieces else None
        self.root_parts = self.parts if self.me == self.root else None
        self.shown = self.given
        if draw.layout == "transposed" and len(self.given) % 2 == 0 < len(self.given):
            self.shown = self.given.view(2, -1).t()  # the same memory

    def _laid(self, size: int, device: str) -> Any:
        """A tensor in the layout of this call, full of what is wrong in an answer."""
        first = MARGIN - self.chance.randrange(8) if self.draw.layout == "offset" else 0
        kind = getattr(torch, self.draw.kind[0])
        whole = torch.full((size + 2 * first,), JUNK, dtype=kind, device=device)
        self.margins += [whole[:first], whole[first + size :]]
        return whole[first : first + size]

    @property
    def options(self) -> List[Any]:
        """Both calls of a ring, for one batch."""
        ways = ((dist.isend, self.given, self.to), (dist.irecv, self.found, self.whence))
        return [dist.P2POp(*way, self.handle) for way in ways]

    def start(self) -> List[Any]:
        """Make the call, or both in their order; the handles to wait for."""
        works: List[Any] = []
        for name, *words in [call.split() for call in self.calls.split("|")][:: self.order]:
            work = getattr(dist, name)(*(getattr(self, word) for word in words))
            works += work if isinstance(work, list) else [work]
        return works

    def wrong(self) -> str:
        """What is not as it must be; empty where all is."""
        said = "" if self.exact is None else wrong(self.found, self.exact, self.limit)
        if not said and self.found is not self.given:
            said = "its input changed" * bool(wrong(self.given, self.before))
        for around in self.margins:
            if not torch.equal(around, torch.full_like(around, JUNK)):
                said = said or "it wrote outside its tensor"
        return said


def performed(group: Group, op: str, draw: Draw) -> str:
    """Make a call in its mode; what is wrong with it."""
    several = 3 if draw.number and draw.mode == "flight" else 1
    turns = [Turn(group, op, draw, number) for number in range(several)]
    first, works = turns[0], []
    if COLLECTIVES[op].whose == "ring" and len(first.members.ranks) == 1:
        return ""
    if "late" in draw.mode and first.me == (draw.root + draw.number) % len(first.members.ranks):
        time.sleep(LATE_SECONDS)
    for turn in turns:
        works += turn.start()
        while works and not first.later:
            end(works.pop())
    for work in works[::-1]:
        end(work)
    if op == "all_reduce" and draw.kind[1] in ROUNDED:
        hold(first.members, draw.name, signature(first.found))
    return next((said for said in (turn.wrong() for turn in turns) if said), "")


def end(work: Any) -> None:
    """Wait for a handle; what answers at once gives none."""
    if hasattr(work, "wait"):
        work.wait()


def planned(op: str, group: Group) -> List[Part]:
    """The calls of a check, or those of them that `--only` names."""
    calls = drawn(op, group.world, ROUNDS.get(asked().level, 1), asked().seed)
    names = {name.partition("/")[2] for name in asked().only if name.startswith(op + "/")}
    return [
        (draw.name, partial(performed, group, op, draw))
        for draw in calls
        if (not names or draw.name in names) and (draw.size or group.backend == "gloo")
    ]


all_reduce = check("all_reduce", partial(planned, "all_reduce"), SECONDS)
reduce = check("reduce", partial(planned, "reduce"), SECONDS)
broadcast = check("broadcast", partial(planned, "broadcast"), SECONDS)
all_gather = check("all_gather", partial(planned, "all_gather"), SECONDS)
gather = check("gather", partial(planned, "gather"), SECONDS)
scatter = check("scatter", partial(planned, "scatter"), SECONDS)
reduce_scatter = check("reduce_scatter", partial(planned, "reduce_scatter"), SECONDS)
all_to_all = check("all_to_all", partial(planned, "all_to_all"), SECONDS)
send_recv = check("send_recv", partial(planned, "send_recv"), SECONDS)


def _barriers(group: Group) -> List[Part]:
    return [
        (f"{name} {mode} {turn}", partial(_waited, group, members, f"{name} {mode} {turn}", turn))
        for turn, (name, members) in enumerate([*State.groups.items()] * 2)
        for mode in ("async", "sync")[:: 1 if turn % 2 else -1]
    ]


def _waited(group: Group, members: Members, place: str, turn: int) -> str:
    """One member comes late and says through the store that it has; the others must see that."""
    late = members.ranks[(turn + turn // 4) % len(members.ranks)]
    if group.rank == late:
        time.sleep(LATE_SECONDS)
        group.store.add(f"barrier/{place}/{late}", 1)
    end(dist.barrier(group=members.handle, async_op="async" in place))
    if group.backend == "nccl":
        torch.cuda.synchronize(group.device)
    came = group.store.add(f"barrier/{place}/{late}", 0)
    return "" if came else f"it did not wait for rank {late}"


barrier = check("barrier", _barriers)
