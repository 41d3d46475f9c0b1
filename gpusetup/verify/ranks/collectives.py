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
from .group import Calls, ProcessGroup, together
from .numbers import FLOATS, FORMATS, Kind, reduced, rows, signature, wrong

LATE_SECONDS = 0.02
"""How long a late rank keeps the others waiting."""
SIZES = (1, 7, 33, 1025, 65_537)
"""Lengths of a rank's part, in elements: about a vector, a tile, a block, many blocks."""
LARGE = 2**22 + 2**12
"""The elements that all ranks together send in a large message, which is sent in several pieces."""
JUNK = 77
"""The number that fills a tensor before the answer arrives."""
REDUCTIONS: Dict[str, Tuple[str, ...]] = {
    "sum": (*FLOATS, "int32", "int64"),
    "avg": FLOATS,
    "max": FORMATS,
    "min": FLOATS,
}
"""Reduction -> the formats to test it with."""


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
    more: Dict[str, bool]
    """`async_op`: whether the call returns a handle."""

    def at_root(self, tensors: List[Any]) -> Optional[List[Any]]:
        return tensors if dist.get_rank() == self.root else None


def send_and_receive(m: Message) -> Any:
    """Send to the next rank and receive from the previous one."""
    me, world = dist.get_rank(), dist.get_world_size()
    sending = dist.P2POp(dist.isend, m.sent[0], (me + 1) % world)
    return dist.batch_isend_irecv([sending, dist.P2POp(dist.irecv, m.whole, (me - 1) % world)])


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
            "tensor": lambda m: dist.reduce_scatter_tensor(
                m.whole, torch.cat(m.sent), m.reduction, **m.more
            ),
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
        {"plain": send_and_receive},
        lambda me, root, world: [((me - 1) % world, 0)],
    ),
}
REDUCING = ("all_reduce", "reduce", "reduce_scatter")


def calls_of(op: str, group: ProcessGroup) -> Calls:
    """The calls of a check: every format and reduction with every size."""
    table = REDUCTIONS if op in REDUCING else {"bits": FORMATS}
    # With gloo, `reduce_scatter_tensor` of torch 2.7 and older adds, whatever is asked for.
    if op == "reduce_scatter" and group.backend == "gloo":
        table = {"sum": REDUCTIONS["sum"]}
    kinds: List[Kind] = [(name, how) for how, names in table.items() for name in names]
    pairs = [(kind, size) for kind in kinds for size in SIZES]
    pairs += [(kinds[0], LARGE // group.world)] * 4
    calls = []
    for number, (kind, size) in enumerate(pairs):
        name = "-".join((*kind, str(size), str(number)))
        calls.append((name, partial(performed, group, op, number, kind, size)))
    random.Random(f"{asked().seed} {op}").shuffle(calls)
    return dict(calls)


def performed(group: ProcessGroup, op: str, number: int, kind: Kind, size: int) -> str:
    """Make a call, as the seed draws it on every rank, and return what is wrong with its answer;
    empty if it is correct."""
    collective, me, world, reduction = COLLECTIVES[op], group.rank, group.world, kind[1]
    chance = random.Random(f"{asked().seed} {op} {number}")
    # There is an odd number of sizes, so each format is sent in every way.
    way = sorted(collective.ways)[(number + asked().seed) % len(collective.ways)]
    # A call of a large message is not done at once, so it returns a handle.
    is_async = size > SIZES[-1] or chance.random() < 0.5
    root = chance.randrange(world)
    lengths = [[size] * (world if collective.has_parts else 1)] * world
    if op == "all_to_all" and way == "tensor" and chance.random() < 0.5:
        # Parts of different lengths, some of them empty; every rank draws the same.
        lengths = [[chance.randrange(size + 1) for _ in range(world)] for _ in range(world)]
    table = rows(kind, world, max(map(sum, lengths)), chance.getrandbits(60))
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
    whole = torch.full((sum(arriving),), JUNK, dtype=table.dtype, device=group.device)
    if op in ("all_reduce", "reduce", "broadcast"):
        whole.copy_(torch.cat(sent[me]))
    mine = [part.to(group.device) for part in sent[me]]
    message = Message(
        sent=mine,
        received=list(whole.split(arriving)),
        whole=whole,
        root=root,
        reduction=getattr(dist.ReduceOp, reduction.upper(), None),
        more={"async_op": is_async},
    )
    if number % 8 == 3 and me == number % world:
        time.sleep(LATE_SECONDS)
    wait_for(collective.ways[way](message))
    if op == "all_reduce":
        # Each rank may have rounded in another order, but all must end up with the same bits.
        group.held[group.place] = signature(whole)
    problem = wrong(f"the answer ({way})", whole, torch.cat(known), limit) if known else ""
    return problem or wrong("its input", torch.cat(mine), torch.cat(sent[me]))


def wait_for(handles: Any) -> None:
    """Wait for a handle or several, the last one first. Calls that have waited return None."""
    for handle in reversed(handles if isinstance(handles, list) else [handles]):
        if hasattr(handle, "wait"):
            handle.wait()


# Each collective has a check of its own name.
globals().update({op: partial(together, op, partial(calls_of, op)) for op in COLLECTIVES})


def barriers(group: ProcessGroup) -> Calls:
    """Barriers, synchronous and asynchronous, with each rank late in turn."""

    def waits(mode: str, late_rank: int) -> str:
        key = f"barrier/{mode} {late_rank}"
        if group.rank == late_rank:
            time.sleep(LATE_SECONDS)
            group.store.add(key, 1)
        wait_for(dist.barrier(async_op=mode == "async"))
        # On a GPU the barrier is a kernel, which only the device waits for.
        if group.backend == "nccl":
            torch.cuda.synchronize(group.device)
        return "" if group.store.add(key, 0) else f"it did not wait for rank {late_rank}"

    places = [(mode, rank) for rank in range(min(group.world, 4)) for mode in ("sync", "async")]
    return {f"{mode} {rank}": partial(waits, mode, rank) for mode, rank in places}


barrier = partial(together, "barrier", barriers)
