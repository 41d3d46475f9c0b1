"""Checks of collectives and barriers. Every rank knows what all send, and judges its result."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from ..values import run_options
from .group import Calls, ProcessGroup, run_calls
from .numbers import FLOATS, FORMATS, Kind, problem_with, reduced, rows, signature

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
    whole: Any
    """Where the answer arrives. A call in place also reads its input there."""
    received: List[Any]
    """The parts of `whole`, for a call that takes a list."""
    root: int
    """The rank from which the call starts or at which it ends."""
    reduction: Any
    """How the numbers are reduced (`ReduceOp`); None if they are only moved."""
    options: Dict[str, bool]
    """`async_op`: whether the call returns a handle."""

    def at_root(self, tensors: List[Any]) -> Optional[List[Any]]:
        """The list that only the root passes to a call."""
        return tensors if dist.get_rank() == self.root else None


def send_and_receive(m: Message) -> Any:
    """Send to the next rank and receive from the previous one, in one batch, because NCCL's two
    kernels may wait for each other."""
    me, world = dist.get_rank(), dist.get_world_size()
    sending = dist.P2POp(dist.isend, m.sent[0], (me + 1) % world)
    return dist.batch_isend_irecv([sending, dist.P2POp(dist.irecv, m.whole, (me - 1) % world)])


class Collective(NamedTuple):
    """A collective: how to call it, and which numbers a member has afterwards."""

    call: Callable[[Message], Any]
    """Makes the call, and returns a handle, several handles or None."""
    pieces: Callable[[int, int, int], List[Tuple[Optional[int], int]]]
    """Takes this member, the root and the number of members. Returns (member, part) of the numbers
    that arrive; the member None means the total of all. Empty if this member gets no answer."""
    has_parts: bool = False
    """Whether every member sends one part to each member."""


COLLECTIVES: Dict[str, Collective] = {
    "all_reduce": Collective(
        lambda m: dist.all_reduce(m.whole, m.reduction, **m.options),
        lambda me, root, world: [(None, 0)],
    ),
    "reduce": Collective(
        lambda m: dist.reduce(m.whole, m.root, m.reduction, **m.options),
        lambda me, root, world: [(None, 0)] if me == root else [],
    ),
    "broadcast": Collective(
        lambda m: dist.broadcast(m.whole, m.root, **m.options),
        lambda me, root, world: [(root, 0)],
    ),
    "all_gather": Collective(
        lambda m: dist.all_gather_into_tensor(m.whole, m.sent[0], **m.options),
        lambda me, root, world: [(member, 0) for member in range(world)],
    ),
    "gather": Collective(
        lambda m: dist.gather(m.sent[0], m.at_root(m.received), m.root, **m.options),
        lambda me, root, world: [(n, 0) for n in range(world)] if me == root else [],
    ),
    "scatter": Collective(
        lambda m: dist.scatter(m.whole, m.at_root(m.sent), m.root, **m.options),
        lambda me, root, world: [(root, me)],
        has_parts=True,
    ),
    "reduce_scatter": Collective(
        lambda m: dist.reduce_scatter_tensor(m.whole, torch.cat(m.sent), m.reduction, **m.options),
        lambda me, root, world: [(None, me)],
        has_parts=True,
    ),
    "all_to_all": Collective(
        lambda m: dist.all_to_all_single(m.whole, torch.cat(m.sent), **m.options),
        lambda me, root, world: [(member, me) for member in range(world)],
        has_parts=True,
    ),
    "send_recv": Collective(send_and_receive, lambda me, root, world: [((me - 1) % world, 0)]),
}
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
IN_PLACE = ("all_reduce", "reduce", "broadcast")
"""The calls that write their answer over their input."""


def calls_of(op: str, group: ProcessGroup) -> Calls:
    """The calls of a check: every format and reduction with every size, and four large messages of
    float32, in an order that the seed draws."""
    table = REDUCTIONS if op in REDUCING else {"bits": FORMATS}
    # With gloo, `reduce_scatter_tensor` of torch 2.7 and older always adds.
    if op == "reduce_scatter" and group.backend == "gloo":
        table = {"sum": REDUCTIONS["sum"]}
    kinds: List[Kind] = [(name, how) for how, names in table.items() for name in names]
    pairs = [(kind, size) for kind in kinds for size in SIZES]
    pairs += [(kinds[0], LARGE // group.world)] * 4
    calls = []
    for number, (kind, size) in enumerate(pairs):
        name = "-".join((*kind, str(size), str(number)))
        calls.append((name, partial(problem_of_call, group, op, number, kind, size)))
    random.Random(f"{run_options().seed} {op}").shuffle(calls)
    return dict(calls)


def problem_of_call(group: ProcessGroup, op: str, number: int, kind: Kind, size: int) -> str:
    """Make a call with parts of this size, and return what is wrong with its answer; empty if it is
    right. The seed draws the same numbers on every rank, so each knows what all of them send."""
    collective, me, world, reduction = COLLECTIVES[op], group.rank, group.world, kind[1]
    chance = random.Random(f"{run_options().seed} {op} {number}")
    # A large message takes long, so its handle has something to wait for; of the other calls, half
    # return a handle.
    is_async = size > SIZES[-1] or chance.random() < 0.5
    root = chance.randrange(world)
    part_count = world if collective.has_parts else 1
    table = rows(kind, world, part_count * size, chance.getrandbits(60))
    # The parts that each rank sends.
    sent_by = [row.split(size) for row in table]
    # Numbers that are only moved must arrive bit for bit, without a limit for their errors.
    totals, limit = (), None
    if op in REDUCING:
        exact, limits = reduced(table, reduction)
        totals = exact.split(size)
        limit = limits.split(size)[me if collective.has_parts else 0]
    known = []
    for member, part in collective.pieces(me, root, world):
        numbers = totals if member is None else sent_by[member]
        known.append(numbers[part])
    # A member without an answer still passes its own numbers to `reduce`.
    whole = torch.full((size * max(1, len(known)),), JUNK, dtype=table.dtype, device=group.device)
    if op in IN_PLACE:
        whole.copy_(torch.cat(sent_by[me]))
    mine = [part.to(group.device) for part in sent_by[me]]
    message = Message(
        sent=mine,
        whole=whole,
        received=list(whole.split(size)),
        root=root,
        reduction=getattr(dist.ReduceOp, reduction.upper(), None),
        options={"async_op": is_async},
    )
    # In every eighth call one rank is late, which shows a call that does not wait for all.
    if number % 8 == 3 and me == number % world:
        time.sleep(LATE_SECONDS)
    wait_for(collective.call(message))
    if op == "all_reduce":
        # Each rank may have rounded in another order, but all must end up with the same bits.
        group.equal_on_all[group.place] = signature(whole)
    problem = problem_with("the answer", whole, torch.cat(known), limit) if known else ""
    # A call must not write to what it sends.
    return problem or problem_with("its input", torch.cat(mine), torch.cat(sent_by[me]))


def wait_for(handles: Any) -> None:
    """Wait for a handle or several, the last one first, because the order must not matter. A call
    that has waited returns None."""
    for handle in reversed(handles if isinstance(handles, list) else [handles]):
        if hasattr(handle, "wait"):
            handle.wait()


# The table of checks names these functions: `ranks.collectives:all_reduce` and so on.
globals().update({op: partial(run_calls, op, partial(calls_of, op)) for op in COLLECTIVES})


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
        # Adding 0 reads the number: 0 if the late rank has not arrived.
        return "" if group.store.add(key, 0) else f"it did not wait for rank {late_rank}"

    # A few late ranks are enough, and each costs all the others a moment.
    turns = [(mode, rank) for rank in range(min(group.world, 4)) for mode in ("sync", "async")]
    return {f"{mode} {rank}": partial(waits, mode, rank) for mode, rank in turns}


barrier = partial(run_calls, "barrier", barriers)
