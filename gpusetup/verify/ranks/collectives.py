"""Checks of the collectives. Every rank knows the numbers of all ranks, makes the same calls, and
judges its own answer. Also checks barriers."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any, List, NamedTuple, Sequence

import torch
import torch.distributed as dist

from ..values import asked
from .calls import COLLECTIVES, AnswerSource, CallArguments, ring_step
from .draws import DrawnCall, drawn
from .group import GroupState, Members, ProcessGroup, RankCall, check, hold
from .numbers import ROUNDED, reduced, rows, signature, wrong

SECONDS = 30.0
"""How long the calls of one check may take; an idle machine needs a tenth of that time."""
ROUNDS = {"standard": 2, "census": 6}
"""Level -> how many times every format is tested with every class of lengths; other levels test
each combination once."""
LATE_SECONDS = 0.02
"""How long a late rank keeps the others waiting."""
UNEVEN_NCCL = ("uneven", "lists")
"""With NCCL, the ways to call all-to-all in which parts differ in length."""
UNEVEN_GLOO = ("uneven",)
"""With gloo, the ways to call all-to-all in which parts differ in length; gloo's lists need parts
of equal length."""
JUNK = 77
"""The number that fills a tensor, and the memory around it, before the answer arrives."""
MARGIN = 19
"""The number of elements before and after a tensor that is part of a larger one."""


class Turn:
    """One call of a collective on this rank: what it sends, what must arrive, and the result."""

    def __init__(self, group: ProcessGroup, op: str, draw: DrawnCall, number: int = 0) -> None:
        self.collective = COLLECTIVES[op]
        self.draw = draw
        self.members = GroupState.groups[draw.group]
        self.device = group.device
        name = f"{op}/{draw.name} {number}"
        self.chance = random.Random(f"{asked().seed} {name}")
        self.margins: List[Any] = []
        """The memory before and after the call's tensors, which nothing may write to."""
        uses_nccl = group.backend == "nccl"
        # NCCL's sends and receives are kernels that wait for each other, so make them in one batch.
        in_one_batch = uses_nccl and draw.way == "handles"
        way_to_call = "together" if in_one_batch else draw.way
        self.call = self.collective.calls[way_to_call]
        uneven_ways = UNEVEN_NCCL if uses_nccl else UNEVEN_GLOO
        # In all other collectives the parts have equal lengths.
        is_uneven = op == "all_to_all" and draw.way in uneven_ways
        lengths = part_lengths(self, is_uneven)
        self.numbers = numbers_of(self, lengths)
        self.message = self._message()

    @property
    def is_async(self) -> bool:
        """Whether the call returns immediately with a handle to wait for."""
        return self.draw.mode.endswith(("async", "flight"))

    @property
    def world(self) -> int:
        """The number of members in the group."""
        return len(self.members.ranks)

    @property
    def root(self) -> int:
        """The root's index in the group."""
        return self.draw.root % self.world

    def _message(self) -> CallArguments:
        """The arguments of the call: partners, and tensors filled with the numbers to send."""
        ranks, me, numbers = self.members.ranks, self.members.me, self.numbers
        sent_lengths = [len(part) for part in numbers.sent]
        received_lengths = [len(part) for part in numbers.expected]
        sent = self._tensor(sum(sent_lengths))
        sent.copy_(torch.cat(numbers.sent))
        received = sent
        if not self.collective.writes_over_its_input:
            received = self._tensor(sum(received_lengths))
        received_parts = None
        if received_lengths:
            received_parts = list(received.split(received_lengths))
        sent_parts = list(sent.split(sent_lengths))
        step = ring_step(self.root, self.world)
        next_rank = ranks[(me + step) % self.world]
        previous_rank = ranks[(me - step) % self.world]
        _, reduction = self.draw.kind
        # Fractions are summed. Numbers that are only moved ("bits") have no reduction.
        reduction_name = reduction.replace("fraction", "sum").upper()
        return CallArguments(
            group=self.members.handle,
            is_async=self.is_async,
            sent=sent,
            received=received,
            in_place=self._in_layout(sent),
            sent_parts=sent_parts,
            received_parts=received_parts,
            root_parts=sent_parts if me == self.root else None,
            root=ranks[self.root],
            reduction=getattr(dist.ReduceOp, reduction_name, None),
            next_rank=next_rank,
            previous_rank=previous_rank,
            # To avoid a deadlock, ranks that send to a higher rank send first, and the others
            # receive first.
            sends_first=ranks[me] <= next_rank,
        )

    def _tensor(self, size: int) -> Any:
        """A tensor in the layout of this call, filled with a number that no answer contains."""
        margin = 0
        # Use eight offsets in turn, so that the tensor's memory is sometimes aligned and sometimes
        # not.
        if self.draw.layout == "offset":
            margin = MARGIN - self.chance.randrange(8)
        dtype_name, _ = self.draw.kind
        dtype = getattr(torch, dtype_name)
        memory = torch.full((size + 2 * margin,), JUNK, dtype=dtype, device=self.device)
        end = margin + size
        self.margins += [memory[:margin], memory[end:]]
        return memory[margin:end]

    def _in_layout(self, sent: Any) -> Any:
        """The tensor in the call's layout: as two columns of the same memory if it is to be
        transposed, otherwise as it is."""
        if self.draw.layout != "transposed":
            return sent
        can_be_halved = len(sent) > 0 and len(sent) % 2 == 0
        return sent.view(2, -1).t() if can_be_halved else sent

    def wrong(self) -> str:
        """What is wrong with the call's answer; empty if it is correct."""
        message, numbers = self.message, self.numbers
        if numbers.expected:
            expected = torch.cat(numbers.expected)
            problem = wrong(message.received, expected, numbers.limit)
            if problem:
                return problem
        # Some calls write their answer over their input.
        is_separate = message.received is not message.sent
        sent = torch.cat(numbers.sent)
        if is_separate and wrong(message.sent, sent):
            return "its input changed"
        for margin in self.margins:
            untouched = torch.full_like(margin, JUNK)
            if not torch.equal(margin, untouched):
                return "it wrote outside its tensor"
        return ""


class CallNumbers(NamedTuple):
    """The numbers of one call on this rank, on the CPU."""

    sent: List[Any]
    """The numbers that this rank sends, in parts."""
    expected: List[Any]
    """What must arrive, piece by piece; empty if this rank gets no answer."""
    limit: Any
    """How far each number of the answer may be off; None means that every bit must be right."""


def part_lengths(turn: Turn, is_uneven: bool) -> List[List[int]]:
    """For each member, the lengths of the parts that it sends: a single part, or one part per
    member.

    All ranks draw the same lengths.
    """
    size, draw_below = turn.draw.size, turn.chance.randrange
    parts = turn.world if turn.collective.has_parts else 1
    if not is_uneven:
        return [[size] * parts for _ in range(turn.world)]
    lengths = []
    for _ in range(turn.world):
        row = []
        for _ in range(parts):
            length = draw_below(size + 1)
            # Make one part in five empty.
            is_empty = draw_below(5) == 0
            row.append(0 if is_empty else length)
        lengths.append(row)
    return lengths


def numbers_of(turn: Turn, lengths: List[List[int]]) -> CallNumbers:
    """What this rank sends and must receive, computed from the numbers of all members.

    `lengths`: for each member, the lengths of the parts that it sends (see `part_lengths`). There
    is one part, or one for each member if the collective distributes parts (`has_parts`).
    """
    me, collective = turn.members.me, turn.collective
    kind = turn.draw.kind
    longest = max(sum(lengths_of_parts) for lengths_of_parts in lengths)
    seed = turn.chance.getrandbits(60)
    # Every rank uses the same seed, so each can compute the numbers of all members.
    table = rows(kind, turn.world, longest, seed)
    parts_of_members = []
    for row, lengths_of_parts in zip(table, lengths):
        numbers = row[: sum(lengths_of_parts)]
        parts_of_members.append(numbers.split(lengths_of_parts))
    total_parts: Sequence[Any] = ()
    limit = None
    if collective.source is AnswerSource.TOTAL:
        # The answer is a reduction (sum, maximum) of all members' numbers, perhaps in parts.
        _, reduction = kind
        total = reduced(table, reduction)
        total_parts = total.numbers.split(lengths[me])
        limits = total.limits.split(lengths[me])
        # Each member gets its own part of the total. Without parts, use the limits of the whole.
        limit = limits[me if collective.has_parts else 0]
    expected = []
    for piece in collective.pieces_after(me, turn.root, turn.world):
        # A piece without an owner is a piece of the total.
        parts = total_parts if piece.owner is None else parts_of_members[piece.owner]
        expected.append(parts[piece.part])
    return CallNumbers(list(parts_of_members[me]), expected, limit)


def performed(group: ProcessGroup, op: str, draw: DrawnCall) -> str:
    """Make a call in its mode, and return what is wrong with the result; empty if it is correct."""
    # The first call sets up connections, so do not have other calls in flight with it.
    in_flight = 3 if draw.number and draw.mode == "flight" else 1
    # Each turn has its own numbers and tensors.
    turns = [Turn(group, op, draw, number) for number in range(in_flight)]
    first = turns[0]
    # If there is only one rank in the ring, it would send to itself, which torch refuses.
    if first.collective.source is AnswerSource.PREVIOUS and first.world == 1:
        return ""
    late_member = (draw.root + draw.number) % first.world
    is_late = "late" in draw.mode and first.members.me == late_member
    if is_late:
        time.sleep(LATE_SECONDS)
    handles: List[Any] = []
    for turn in turns:
        handles += turn.call(turn.message)
        if not first.is_async:
            wait_for(handles)
            handles = []
    wait_for(handles)
    _, reduction = draw.kind
    if op == "all_reduce" and reduction in ROUNDED:
        # Each rank may have rounded in another order, but all must end up with the same bits.
        bits = signature(first.message.received)
        hold(first.members, draw.name, bits)
    for turn in turns:
        problem = turn.wrong()
        if problem:
            return problem
    return ""


def wait_for(handles: Sequence[Any]) -> None:
    """Wait for all handles, beginning with the last one. Values without `wait` are skipped."""
    # Start with the last one, so that the result cannot depend on the order of waiting.
    for handle in reversed(handles):
        if hasattr(handle, "wait"):
            handle.wait()


def planned(op: str, group: ProcessGroup) -> List[RankCall]:
    """The calls of a check, or only those that `--only` names."""
    rounds = ROUNDS.get(asked().level, 1)
    names = set()
    for name in asked().only:
        check_name, slash, call_name = name.partition("/")
        if check_name == op and slash:
            names.add(call_name)
    calls = []
    for draw in drawn(op, group.world, rounds, asked().seed):
        is_chosen = not names or draw.name in names
        # Empty messages are sent only with gloo.
        takes_size = draw.size > 0 or group.backend == "gloo"
        if is_chosen and takes_size:
            calls.append(RankCall(draw.name, partial(performed, group, op, draw)))
    return calls


all_reduce = check("all_reduce", partial(planned, "all_reduce"), SECONDS)
reduce = check("reduce", partial(planned, "reduce"), SECONDS)
broadcast = check("broadcast", partial(planned, "broadcast"), SECONDS)
all_gather = check("all_gather", partial(planned, "all_gather"), SECONDS)
gather = check("gather", partial(planned, "gather"), SECONDS)
scatter = check("scatter", partial(planned, "scatter"), SECONDS)
reduce_scatter = check("reduce_scatter", partial(planned, "reduce_scatter"), SECONDS)
all_to_all = check("all_to_all", partial(planned, "all_to_all"), SECONDS)
send_recv = check("send_recv", partial(planned, "send_recv"), SECONDS)


def barriers(group: ProcessGroup) -> List[RankCall]:
    """Barriers of every group, synchronous and asynchronous, with one member arriving late."""
    calls = []
    groups = list(GroupState.groups.items())
    for turn, (name, members) in enumerate(groups * 2):
        # Alternate which of the two modes comes first.
        modes = ("async", "sync") if turn % 2 else ("sync", "async")
        # In the second round, start with the next member of each group.
        rounds_before = turn // len(groups)
        late_member = (turn + rounds_before) % len(members.ranks)
        late_rank = members.ranks[late_member]
        for mode in modes:
            place = f"{name} {mode} {turn}"
            wait = partial(barrier_waits, group, members, place, late_rank)
            calls.append(RankCall(place, wait))
    return calls


def barrier_waits(group: ProcessGroup, members: Members, place: str, late_rank: int) -> str:
    """Make one barrier call in which a member arrives late, and return what is wrong; empty if all
    waited for it."""
    key = f"barrier/{place}/{late_rank}"
    if group.rank == late_rank:
        time.sleep(LATE_SECONDS)
        group.store.add(key, 1)
    handle = dist.barrier(group=members.handle, async_op="async" in place)
    wait_for([handle])
    # On a GPU the barrier is a kernel, which only the device waits for, so wait for the device.
    if group.backend == "nccl":
        torch.cuda.synchronize(group.device)
    has_come = group.store.add(key, 0)
    return "" if has_come else f"it did not wait for rank {late_rank}"


barrier = check("barrier", barriers)
