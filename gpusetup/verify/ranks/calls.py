"""The collectives of torch.distributed: one function for each way to call them, and a table of
which member has which numbers afterwards."""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch.distributed as dist


class CallArguments(NamedTuple):
    """The tensors and partners of one call on this rank, as torch.distributed expects them."""

    group: Any
    """The group's handle; None means all ranks."""
    is_async: bool
    """Whether the call returns at once with a handle to wait for."""
    sent: Any
    """The numbers that this rank sends."""
    received: Any
    """The tensor for the answer; the same as `sent` if the call overwrites its input."""
    in_place: Any
    """The memory of `sent` in the call's layout, which may be transposed."""
    sent_parts: List[Any]
    """`sent`, split into one part for each member."""
    received_parts: Optional[List[Any]]
    """`received`, split into what comes from each member; None if this rank gets no answer."""
    root_parts: Optional[List[Any]]
    """`sent_parts` on the root, and None on the other ranks, as `scatter` requires."""
    root: int
    """The rank from which the call starts or at which it ends, counted among all ranks."""
    reduction: Any
    """How the numbers are reduced (`ReduceOp`); None if they are only moved."""
    next_rank: int
    previous_rank: int
    """The neighbors in a ring, counted among all ranks."""
    sends_first: bool
    """Whether this rank sends before it receives. In a ring some ranks must send first, because
    otherwise all of them would wait forever."""

    @property
    def in_group(self) -> Dict[str, Any]:
        """The arguments that every collective accepts."""
        return {"group": self.group, "async_op": self.is_async}


Handles = List[Any]
"""What the calls returned: handles to wait for or, if the call was synchronous, None or a number.
"""
Call = Callable[[CallArguments], Handles]


def all_reduce(message: CallArguments) -> Handles:
    """Reduce the numbers of all members; every member gets the result."""
    handle = dist.all_reduce(message.in_place, message.reduction, **message.in_group)
    return [handle]


def reduce(message: CallArguments) -> Handles:
    """Reduce the numbers of all members; only the root gets the result."""
    root = message.root
    reduction = message.reduction
    handle = dist.reduce(message.in_place, root, reduction, **message.in_group)
    return [handle]


def broadcast(message: CallArguments) -> Handles:
    """Send the root's numbers to every member."""
    handle = dist.broadcast(message.in_place, message.root, **message.in_group)
    return [handle]


def all_gather_lists(message: CallArguments) -> Handles:
    """Send every member's numbers to every member, as one tensor per member."""
    handle = dist.all_gather(message.received_parts, message.sent, **message.in_group)
    return [handle]


def all_gather_tensor(message: CallArguments) -> Handles:
    """Send every member's numbers to every member, in a single tensor."""
    handle = dist.all_gather_into_tensor(message.received, message.sent, **message.in_group)
    return [handle]


def gather(message: CallArguments) -> Handles:
    """Send every member's numbers to the root."""
    parts = message.received_parts
    root = message.root
    handle = dist.gather(message.sent, parts, root, **message.in_group)
    return [handle]


def scatter(message: CallArguments) -> Handles:
    """Send each member its part of the root's numbers."""
    parts = message.root_parts
    root = message.root
    handle = dist.scatter(message.received, parts, root, **message.in_group)
    return [handle]


def reduce_scatter_lists(message: CallArguments) -> Handles:
    """Reduce the numbers, and send each member its part of the result; the parts are separate
    tensors."""
    parts = message.sent_parts
    reduction = message.reduction
    handle = dist.reduce_scatter(message.received, parts, reduction, **message.in_group)
    return [handle]


def reduce_scatter_tensor(message: CallArguments) -> Handles:
    """Reduce the numbers, and send each member its part of the result; the parts are in one
    tensor."""
    sent = message.sent
    reduction = message.reduction
    handle = dist.reduce_scatter_tensor(message.received, sent, reduction, **message.in_group)
    return [handle]


def all_to_all_even(message: CallArguments) -> Handles:
    """Send each member its part of every member's numbers; all parts have the same length."""
    handle = dist.all_to_all_single(message.received, message.sent, **message.in_group)
    return [handle]


def all_to_all_uneven(message: CallArguments) -> Handles:
    """Send each member its part of every member's numbers; the parts have different lengths."""
    sent_lengths = [len(part) for part in message.sent_parts]
    received_lengths = [len(part) for part in message.received_parts or ()]
    handle = dist.all_to_all_single(
        message.received, message.sent, received_lengths, sent_lengths, **message.in_group
    )
    return [handle]


def all_to_all_lists(message: CallArguments) -> Handles:
    """Send each member its part of every member's numbers, as one tensor per part."""
    handle = dist.all_to_all(message.received_parts, message.sent_parts, **message.in_group)
    return [handle]


def send_and_receive(message: CallArguments) -> Handles:
    """Send to the next rank and receive from the previous one, with two blocking calls."""

    def send() -> None:
        dist.send(message.sent, message.next_rank, message.group)

    def receive() -> None:
        dist.recv(message.received, message.previous_rank, message.group)

    if message.sends_first:
        send()
        receive()
    else:
        receive()
        send()
    return []


def send_and_receive_with_handles(message: CallArguments) -> Handles:
    """Start sending to the next rank and receiving from the previous one, with two asynchronous
    calls."""

    def send() -> Any:
        return dist.isend(message.sent, message.next_rank, message.group)

    def receive() -> Any:
        return dist.irecv(message.received, message.previous_rank, message.group)

    if message.sends_first:
        return [send(), receive()]
    return [receive(), send()]


def send_and_receive_together(message: CallArguments) -> Handles:
    """Start sending to the next rank and receiving from the previous one, in one batch."""
    next_rank, previous_rank = message.next_rank, message.previous_rank
    group = message.group
    sending = dist.P2POp(dist.isend, message.sent, next_rank, group)
    receiving = dist.P2POp(dist.irecv, message.received, previous_rank, group)
    handles = dist.batch_isend_irecv([sending, receiving])
    return list(handles)


class AnswerSource(enum.Enum):
    """Whose numbers a member has after a collective."""

    TOTAL = "what all members make together"
    ROOT = "the root's"
    EVERY_MEMBER = "each member's, one after the other"
    PREVIOUS = "those of the member before in a ring"


class Piece(NamedTuple):
    """A part of the numbers that a member has after a collective."""

    owner: Optional[int]
    """The member that the numbers come from; None means the total over all members."""
    part: int
    """Which part of the owner's numbers."""


class Collective(NamedTuple):
    """A collective: which member has which numbers afterwards, and the ways to call it."""

    source: AnswerSource
    calls: Dict[str, Call]
    """The name of a way to call the collective -> the function that makes the call."""
    has_parts: bool = False
    """Whether every member has one part for each member, so that a member receives only the parts
    meant for it."""
    answers_root_only: bool = False

    @property
    def writes_over_its_input(self) -> bool:
        """Whether the call writes the result over its input."""
        # If numbers from every rank arrive, or only a part of them, the answer's length differs
        # from the input's.
        has_same_length = self.source in (AnswerSource.TOTAL, AnswerSource.ROOT)
        return has_same_length and not self.has_parts

    def pieces_after(self, me: int, root: int, world: int) -> List[Piece]:
        """The pieces that a member has afterwards; empty if only the root gets a result.

        >>> COLLECTIVES["all_to_all"].pieces_after(1, 0, 2)
        [Piece(owner=0, part=1), Piece(owner=1, part=1)]
        >>> COLLECTIVES["reduce"].pieces_after(1, 0, 2)
        []
        """
        if self.answers_root_only and me != root:
            return []
        previous_member = (me - ring_step(root, world)) % world
        owners: Dict[AnswerSource, List[Optional[int]]] = {
            AnswerSource.TOTAL: [None],
            AnswerSource.ROOT: [root],
            AnswerSource.EVERY_MEMBER: list(range(world)),
            AnswerSource.PREVIOUS: [previous_member],
        }
        part = me if self.has_parts else 0
        return [Piece(owner, part) for owner in owners[self.source]]


def ring_step(root: int, world: int) -> int:
    """The distance between sender and receiver in a ring, which depends on the root.

    >>> ring_step(0, 4), ring_step(2, 4), ring_step(0, 1)
    (1, 3, 1)
    """
    # The step is between 1 and the number of other ranks; a single rank would send to itself.
    step_count = max(1, world - 1)
    return 1 + root % step_count


COLLECTIVES: Dict[str, Collective] = {
    "all_reduce": Collective(AnswerSource.TOTAL, {"plain": all_reduce}),
    "reduce": Collective(AnswerSource.TOTAL, {"plain": reduce}, answers_root_only=True),
    "broadcast": Collective(AnswerSource.ROOT, {"plain": broadcast}),
    "all_gather": Collective(
        AnswerSource.EVERY_MEMBER, {"plain": all_gather_lists, "tensor": all_gather_tensor}
    ),
    "gather": Collective(AnswerSource.EVERY_MEMBER, {"plain": gather}, answers_root_only=True),
    "scatter": Collective(AnswerSource.ROOT, {"plain": scatter}, has_parts=True),
    "reduce_scatter": Collective(
        AnswerSource.TOTAL,
        {"plain": reduce_scatter_lists, "tensor": reduce_scatter_tensor},
        has_parts=True,
    ),
    "all_to_all": Collective(
        AnswerSource.EVERY_MEMBER,
        {"even": all_to_all_even, "uneven": all_to_all_uneven, "lists": all_to_all_lists},
        has_parts=True,
    ),
    "send_recv": Collective(
        AnswerSource.PREVIOUS,
        {
            "blocking": send_and_receive,
            "handles": send_and_receive_with_handles,
            "together": send_and_receive_together,
        },
    ),
}
