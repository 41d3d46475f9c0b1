"""Checks of the collectives and of barriers. Every rank knows what all send, and judges its own
result."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from ..values import asked
from .group import Calls, GroupState, ProcessGroup, check
from .numbers import EXACT_TO, ROUNDED, reduced, rows, signature, wrong

SECONDS = 30.0
"""How long the calls of one check may take; an idle machine needs a tenth of that time."""
LATE_SECONDS = 0.02
"""How long a late rank keeps the others waiting."""
SIZES = (1, 7, 33, 1025, 65_537)
"""Lengths of a rank's part, in elements: about a vector, a tile, a block, many blocks."""
LARGE = 2**20 + 2**10
"""The length of a message that is sent in several pieces, in elements."""
JUNK = 77
"""The number that fills a tensor, and the memory around it, before the answer arrives."""
MARGIN = 19
"""The elements before and after a tensor. It is odd, so that the tensor's memory is not aligned."""
FLOATS = ("float32", "bfloat16", "float16", "float64")
REDUCTIONS: Dict[str, Tuple[str, ...]] = {
    "sum": (*FLOATS, "int32", "int64", "uint8"),
    "fraction": FLOATS,
    "avg": FLOATS,
    "max": (*FLOATS, "int32", "int64", "uint8", "bool"),
    "min": FLOATS,
}
"""Reduction -> the formats to test it with; `fraction` is a sum of fractional numbers."""


class Message(NamedTuple):
    """The tensors of one call on this rank, as torch.distributed expects them."""

    sent: List[Any]
    """What this rank sends, in parts: one, or one for each member."""
    received: List[Any]
    """Where the answer arrives, in parts; the memory is contiguous."""
    whole: Any
    """The memory of `received` in one tensor."""
    root: int
    """The rank from which the call starts or at which it ends."""
    reduction: Any
    """How the numbers are reduced (`ReduceOp`); None if they are only moved."""
    more: Dict[str, Any]
    """`async_op`: whether the call returns a handle."""

    def at_root(self, tensors: List[Any]) -> Optional[List[Any]]:
        return tensors if dist.get_rank() == self.root else None


def neighbours() -> Tuple[int, int]:
    """The next rank and the previous one."""
    me, world = dist.get_rank(), dist.get_world_size()
    return (me + 1) % world, (me - 1) % world


def send_and_receive(m: Message) -> List[Any]:
    """Send to the next rank and receive from the previous one, in one batch of handles."""
    to, origin = neighbours()
    sending, receiving = (
        dist.P2POp(dist.isend, m.sent[0], to),
        dist.P2POp(dist.irecv, m.whole, origin),
    )
    return list(dist.batch_isend_irecv([sending, receiving]))


def send_then_receive(m: Message) -> None:
    """Blocking calls. Ranks that send to a higher one send first, or all would wait."""
    to, origin = neighbours()
    if dist.get_rank() < to:
        dist.send(m.sent[0], to)
        dist.recv(m.whole, origin)
    else:
        dist.recv(m.whole, origin)
        dist.send(m.sent[0], to)


def reduce_scatter_tensor(m: Message) -> Any:
    return dist.reduce_scatter_tensor(m.whole, torch.cat(m.sent), m.reduction, **m.more)


def all_to_all_single(m: Message) -> Any:
    lengths = [[len(part) for part in parts] for parts in (m.received, m.sent)]
    return dist.all_to_all_single(m.whole, torch.cat(m.sent), *lengths, **m.more)


class Collective(NamedTuple):
    """A collective: the ways to call it, and which numbers a member has afterwards."""

    ways: Dict[str, Callable[[Message], Any]]
    """Name -> a function that makes the call; it returns a handle, handles or None."""
    pieces: Callable[[int, int, int], List[Tuple[Optional[int], int]]]
    """Takes this member, the root and the number of members. Returns (member, part) of the numbers
    that arrive; the member None means the total of all. Empty if this member gets no answer."""
    has_parts: bool = False
    """Whether every member sends one part to each member."""


COLLECTIVES: Dict[str, Collective] = {
    "all_reduce": Collective(
        {"plain": lambda m: dist.all_reduce(m.whole, m.reduction, **m.more)},
        lambda me, root, world: [(None, 0)],
    ),
    "reduce": Collective(
        {"plain": lambda m: dist.reduce(m.whole, m.root, m.reduction, **m.more)},
        lambda me, root, world: [(None, 0)] if me == root else [],
    ),
    "broadcast": Collective(
        {"plain": lambda m: dist.broadcast(m.whole, m.root, **m.more)},
        lambda me, root, world: [(root, 0)],
    ),
    "all_gather": Collective(
        {
            "lists": lambda m: dist.all_gather(m.received, m.sent[0], **m.more),
            "tensor": lambda m: dist.all_gather_into_tensor(m.whole, m.sent[0], **m.more),
        },
        lambda me, root, world: [(member, 0) for member in range(world)],
    ),
    "gather": Collective(
        {"plain": lambda m: dist.gather(m.sent[0], m.at_root(m.received), m.root, **m.more)},
        lambda me, root, world: [(n, 0) for n in range(world)] if me == root else [],
    ),
    "scatter": Collective(
        {"plain": lambda m: dist.scatter(m.whole, m.at_root(m.sent), m.root, **m.more)},
        lambda me, root, world: [(root, me)],
        has_parts=True,
    ),
    "reduce_scatter": Collective(
        {
            "lists": lambda m: dist.reduce_scatter(m.whole, m.sent, m.reduction, **m.more),
            "tensor": reduce_scatter_tensor,
        },
        lambda me, root, world: [(None, me)],
        has_parts=True,
    ),
    "all_to_all": Collective(
        {
            "tensor": all_to_all_single,
            "lists": lambda m: dist.all_to_all(m.received, m.sent, **m.more),
        },
        lambda me, root, world: [(member, me) for member in range(world)],
        has_parts=True,
    ),
    "send_recv": Collective(
        {"blocking": send_then_receive, "handles": send_and_receive},
        lambda me, root, world: [((me - 1) % world, 0)],
    ),
}
REDUCING = ("all_reduce", "reduce", "reduce_scatter")


class Turn(NamedTuple):
    """One call of a check; the same on every rank."""

    number: int
    way: str
    kind: Tuple[str, str]
    """The format, and the reduction (`bits` if numbers are only moved)."""
    size: int
    is_async: bool

    @property
    def name(self) -> str:
        """The name of the call for `--only` and in reports."""
        mode = "async" if self.is_async else "sync"
        return "-".join((self.way, *self.kind, str(self.size), mode, str(self.number)))


def turns_of(op: str, world: int) -> List[Turn]:
    """Every format and reduction with every size; ways and modes vary with the seed."""
    collective, chance = COLLECTIVES[op], random.Random(f"{asked().seed} {op}")
    kinds = [(name, "bits") for name in EXACT_TO]
    if op in REDUCING:
        kinds = [(name, how) for how, names in REDUCTIONS.items() for name in names]
        # Each rank needs at least three different numbers whose sum is exact.
        kinds = [kind for kind in kinds if kind[1] != "sum" or EXACT_TO[kind[0]] >= 3 * world]
    pairs = [(kind, size) for kind in kinds for size in SIZES]
    chance.shuffle(pairs)
    first = kinds[0]
    # Large messages stand early too, so that even a check that runs out of time sends one.
    large = [(first, LARGE), (first, 4 * LARGE // world)] * len(collective.ways)
    pairs = [pairs[0], *large[:2], *pairs[1:], *large[2:]]
    turns = []
    for number, (kind, size) in enumerate(pairs):
        way = chance.choice(sorted(collective.ways))
        # A call of a large message is not done at once, so it returns a handle.
        is_async = size >= LARGE or chance.random() < 0.5
        turns.append(Turn(number, way, kind, size, is_async))
    return turns


def performed(group: ProcessGroup, op: str, turn: Turn) -> str:
    """Make a call, and return what is wrong with its answer; empty if it is correct."""
    collective, me, world = COLLECTIVES[op], group.rank, group.world
    dtype_name, reduction = turn.kind
    chance = random.Random(f"{asked().seed} {op} {turn.name}")
    root = chance.randrange(world)
    count = world if collective.has_parts else 1
    lengths = [[turn.size] * count for _ in range(world)]
    if op == "all_to_all" and turn.way == "tensor" and turn.number % 2:
        # Parts of different lengths, some of them empty; every rank draws the same.
        lengths = [[chance.randrange(turn.size + 1) for _ in range(world)] for _ in range(world)]
    table = rows(turn.kind, world, max(map(sum, lengths)), chance.getrandbits(60))
    sent = [row[: sum(own)].split(own) for row, own in zip(table, lengths)]
    total, limit = sent[me], None
    if op in REDUCING:
        exact, limits = reduced(table, reduction)
        total = exact.split(lengths[me])
        limit = limits.split(lengths[me])[me if collective.has_parts else 0]
    pieces = collective.pieces(me, root, world)
    known = [(total if member is None else sent[member])[part] for member, part in pieces]
    # A member without an answer lends its own numbers to calls that write over their input.
    arriving = [len(part) for part in known or sent[me]]
    dtype = getattr(torch, dtype_name)
    memory = torch.full((sum(arriving) + 2 * MARGIN,), JUNK, dtype=dtype, device=group.device)
    whole = memory[MARGIN : MARGIN + sum(arriving)]
    if op in ("all_reduce", "reduce", "broadcast"):
        whole.copy_(torch.cat(sent[me]))
    mine = [part.to(group.device) for part in sent[me]]
    names = {"fraction": "SUM", "bits": ""}
    message = Message(
        sent=mine,
        received=list(whole.split(arriving)),
        whole=whole,
        root=root,
        reduction=getattr(dist.ReduceOp, names.get(reduction, reduction.upper()), None),
        more={"async_op": turn.is_async},
    )
    if turn.number % 8 == 3 and me == turn.number % world:
        time.sleep(LATE_SECONDS)
    wait_for(collective.ways[turn.way](message))
    if op == "all_reduce" and reduction in ROUNDED:
        # Each rank may have rounded in another order, but all must end up with the same bits.
        GroupState.held[turn.name] = signature(whole)
    if known:
        problem = wrong(whole, torch.cat(known), limit)
        if problem:
            return problem
    if wrong(torch.cat(mine), torch.cat(sent[me])):
        return "its input changed"
    margins = torch.cat([memory[:MARGIN], memory[-MARGIN:]])
    return "" if torch.equal(margins, torch.full_like(margins, JUNK)) else "it wrote outside"


def wait_for(handles: Any) -> None:
    """Wait for a handle or several, the last one first. Calls that have waited return None."""
    for handle in reversed(handles if isinstance(handles, list) else [handles]):
        if hasattr(handle, "wait"):
            handle.wait()


def planned(op: str, group: ProcessGroup) -> Calls:
    """The calls of a check, or only those that `--only` names."""
    wanted = {name.partition("/")[2] for name in asked().only if name.startswith(f"{op}/")}
    return {
        turn.name: partial(performed, group, op, turn)
        for turn in turns_of(op, group.world)
        if not wanted or turn.name in wanted
    }


all_reduce = check("all_reduce", partial(planned, "all_reduce"), SECONDS)
reduce = check("reduce", partial(planned, "reduce"), SECONDS)
broadcast = check("broadcast", partial(planned, "broadcast"), SECONDS)
all_gather = check("all_gather", partial(planned, "all_gather"), SECONDS)
gather = check("gather", partial(planned, "gather"), SECONDS)
scatter = check("scatter", partial(planned, "scatter"), SECONDS)
reduce_scatter = check("reduce_scatter", partial(planned, "reduce_scatter"), SECONDS)
all_to_all = check("all_to_all", partial(planned, "all_to_all"), SECONDS)
send_recv = check("send_recv", partial(planned, "send_recv"), SECONDS)


def barriers(group: ProcessGroup) -> Calls:
    """Barriers, synchronous and asynchronous, with each rank late in turn."""
    places = [(mode, rank) for rank in range(min(group.world, 4)) for mode in ("sync", "async")]
    return {f"{mode} {rank}": partial(waits, group, mode, rank) for mode, rank in places}


def waits(group: ProcessGroup, mode: str, late_rank: int) -> str:
    """What is wrong with a barrier at which a rank arrives late; empty if all waited for it."""
    key = f"barrier/{mode} {late_rank}"
    if group.rank == late_rank:
        time.sleep(LATE_SECONDS)
        group.store.add(key, 1)
    wait_for(dist.barrier(async_op=mode == "async"))
    # On a GPU the barrier is a kernel, which only the device waits for, so wait for the device.
    if group.backend == "nccl":
        torch.cuda.synchronize(group.device)
    return "" if group.store.add(key, 0) else f"it did not wait for rank {late_rank}"


barrier = check("barrier", barriers)
