"""The collectives of torch.distributed: one function for each way to call one, and the table of
them with who holds what afterwards."""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch.distributed as dist


class Message(NamedTuple):
    """The tensors and the partners of one call on this rank, as torch.distributed takes them."""

    group: Any
    """The handle of the group; None: all ranks."""
    is_async: bool
    """Whether the call returns a handle at once, to be waited for later."""
    sent: Any
    """The rank's own numbers."""
    received: Any
    """Where the answer goes; the same tensor as `sent` if the call writes over it."""
    in_place: Any
    """The memory of `sent` in the layout of the call, which may be transposed."""
    sent_parts: List[Any]
    """`sent` cut into the parts for each member."""
    received_parts: Optional[List[Any]]
    """`received` cut into what comes from each member; None where this rank gets no answer."""
    root_parts: Optional[List[Any]]
    """`sent_parts` on the root, None elsewhere: what `scatter` asks for."""
    root: int
    """The rank from which the call starts, or at which it ends, among all ranks."""
    reduction: Any
    """How numbers are reduced (`ReduceOp`); None where they are only moved."""
    next_rank: int
    previous_rank: int
    """Neighbours in a ring, among all ranks."""
    sends_first: bool
    """In a ring somebody must send while the next one receives, or all wait for ever."""


Handles = List[Any]
"""What the calls returned: handles to wait for, and None or a number where one was not asked."""
Call = Callable[[Message], Handles]


def all_reduce(m: Message) -> Handles:
    return [dist.all_reduce(m.in_place, m.reduction, m.group, m.is_async)]


def reduce(m: Message) -> Handles:
    return [dist.reduce(m.in_place, m.root, m.reduction, m.group, m.is_async)]


def broadcast(m: Message) -> Handles:
    return [dist.broadcast(m.in_place, m.root, m.group, m.is_async)]


def all_gather_lists(m: Message) -> Handles:
    return [dist.all_gather(m.received_parts, m.sent, m.group, m.is_async)]


def all_gather_tensor(m: Message) -> Handles:
    return [dist.all_gather_into_tensor(m.received, m.sent, m.group, m.is_async)]


def gather(m: Message) -> Handles:
    return [dist.gather(m.sent, m.received_parts, m.root, m.group, m.is_async)]


def scatter(m: Message) -> Handles:
    return [dist.scatter(m.received, m.root_parts, m.root, m.group, m.is_async)]


def reduce_scatter_lists(m: Message) -> Handles:
    return [dist.reduce_scatter(m.received, m.sent_parts, m.reduction, m.group, m.is_async)]


def reduce_scatter_tensor(m: Message) -> Handles:
    return [dist.reduce_scatter_tensor(m.received, m.sent, m.reduction, m.group, m.is_async)]


def all_to_all_even(m: Message) -> Handles:
    """Without lengths: all parts are alike."""
    return [dist.all_to_all_single(m.received, m.sent, None, None, m.group, m.is_async)]


def all_to_all_uneven(m: Message) -> Handles:
    sent_lengths = [len(part) for part in m.sent_parts]
    received_lengths = [len(part) for part in m.received_parts or ()]
    lengths = received_lengths, sent_lengths
    return [dist.all_to_all_single(m.received, m.sent, *lengths, m.group, m.is_async)]


def all_to_all_lists(m: Message) -> Handles:
    return [dist.all_to_all(m.received_parts, m.sent_parts, m.group, m.is_async)]


def send_and_receive(m: Message) -> Handles:
    """Two calls that return when they are done."""
    if m.sends_first:
        dist.send(m.sent, m.next_rank, m.group)
        dist.recv(m.received, m.previous_rank, m.group)
    else:
        dist.recv(m.received, m.previous_rank, m.group)
        dist.send(m.sent, m.next_rank, m.group)
    return []


def send_and_receive_with_handles(m: Message) -> Handles:
    if m.sends_first:
        sending = dist.isend(m.sent, m.next_rank, m.group)
        return [sending, dist.irecv(m.received, m.previous_rank, m.group)]
    receiving = dist.irecv(m.received, m.previous_rank, m.group)
    return [receiving, dist.isend(m.sent, m.next_rank, m.group)]


def send_and_receive_together(m: Message) -> Handles:
    """Both in one batch."""
    sending = dist.P2POp(dist.isend, m.sent, m.next_rank, m.group)
    receiving = dist.P2POp(dist.irecv, m.received, m.previous_rank, m.group)
    return list(dist.batch_isend_irecv([sending, receiving]))


class Source(enum.Enum):
    """Whose numbers a member holds after a collective."""

    TOTAL = "what all members make together"
    ROOT = "the root's"
    EVERY_MEMBER = "each member's, one after the other"
    PREVIOUS = "those of the member before in a ring"


class Piece(NamedTuple):
    """A part of what a member holds after a collective."""

    owner: Optional[int]
    """The member whose numbers it has; None: the total of all."""
    part: int
    """Which of the owner's parts."""


class Collective(NamedTuple):
    """One collective: who holds what after it, and the ways to call it."""

    source: Source
    calls: Dict[str, Call]
    """Name of a way -> the function that makes the call."""
    has_parts: bool = False
    """Whether each member has a part for each, so that the part for oneself arrives."""
    answers_root_only: bool = False

    @property
    def writes_over_its_input(self) -> bool:
        """Whether the answer is written where the numbers were."""
        return not self.has_parts and self.source in (Source.TOTAL, Source.ROOT)

    def pieces_after(self, me: int, root: int, world: int) -> List[Piece]:
        """What a member holds afterwards; nothing where the root alone gets an answer.

        >>> COLLECTIVES["all_to_all"].pieces_after(1, 0, 2)
        [Piece(owner=0, part=1), Piece(owner=1, part=1)]
        >>> COLLECTIVES["reduce"].pieces_after(1, 0, 2)
        []
        """
        if self.answers_root_only and me != root:
            return []
        owners: Dict[Source, List[Optional[int]]] = {
            Source.TOTAL: [None],
            Source.ROOT: [root],
            Source.EVERY_MEMBER: list(range(world)),
            Source.PREVIOUS: [(me - ring_step(root, world)) % world],
        }
        part = me if self.has_parts else 0
        return [Piece(owner, part) for owner in owners[self.source]]


def ring_step(root: int, world: int) -> int:
    """How far around a ring is sent.

    >>> ring_step(0, 4), ring_step(2, 4), ring_step(0, 1)
    (1, 3, 1)
    """
    return 1 + root % max(1, world - 1)


COLLECTIVES: Dict[str, Collective] = {
    "all_reduce": Collective(Source.TOTAL, {"plain": all_reduce}),
    "reduce": Collective(Source.TOTAL, {"plain": reduce}, answers_root_only=True),
    "broadcast": Collective(Source.ROOT, {"plain": broadcast}),
    "all_gather": Collective(
        Source.EVERY_MEMBER, {"plain": all_gather_lists, "tensor": all_gather_tensor}
    ),
    "gather": Collective(Source.EVERY_MEMBER, {"plain": gather}, answers_root_only=True),
    "scatter": Collective(Source.ROOT, {"plain": scatter}, has_parts=True),
    "reduce_scatter": Collective(
        Source.TOTAL,
        {"plain": reduce_scatter_lists, "tensor": reduce_scatter_tensor},
        has_parts=True,
    ),
    "all_to_all": Collective(
        Source.EVERY_MEMBER,
        {"even": all_to_all_even, "uneven": all_to_all_uneven, "lists": all_to_all_lists},
        has_parts=True,
    ),
    "send_recv": Collective(
        Source.PREVIOUS,
        {
            "blocking": send_and_receive,
            "handles": send_and_receive_with_handles,
            "together": send_and_receive_together,
        },
    ),
}
