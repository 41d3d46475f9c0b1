"""What is asked among ranks: one table says who holds what after a collective and how it is called;
every format and reduction meets every class of lengths, and the rest comes round by turns."""

from __future__ import annotations

import random
from typing import Dict, List, NamedTuple, Tuple

EXACT_TO: Dict[str, int] = {
    "float32": 2**24,
    "float16": 2**11,
    "bfloat16": 2**8,
    "float64": 2**53,
    "int32": 2**31 - 1,
    "int64": 2**53,
    "int8": 127,
    "uint8": 255,
    "bool": 1,
    "complex64": 2**24,
    "complex128": 2**53,
}
"""Format -> up to which number every integer is exact in it."""
EVERY = tuple(EXACT_TO)
FLOATS, NUMBERS = EVERY[:4], EVERY[:8]
Kind = Tuple[str, str]
"""A format, and how it is reduced; `bits`: moved only."""
FORMATS: Dict[str, Tuple[str, ...]] = {
    "sum": NUMBERS + EVERY[9:],
    "fraction": FLOATS,
    "avg": FLOATS,
    "min": EVERY[:9],
    "max": EVERY[:9],
}
"""Reduction -> the formats of which it is asked; `fraction` is a sum of fractional numbers."""
SIZES: Tuple[Tuple[int, ...], ...] = (
    (0,),
    (1,),
    (2, 3, 5, 7, 8),
    (15, 16, 17, 31, 32, 33, 63, 64, 65),
    (127, 128, 129, 255, 256, 257, 511, 513, 1000),
    (1023, 1024, 1025, 2049, 4095, 4096, 4097),
    (8191, 16384, 16385, 32768, 65535, 65537),
)
"""Elements of a message (of a rank's part of it, where it has parts): none, one, few, and those
about a vector, a tile, a block and many of them."""
BIG = (2**18 + 1, 2**20 - 1, 2**20 + 2**10)
"""Elements of messages that travel in several pieces, one for each way to call; one is among the
first calls."""
LARGEST = (1 << 23, 1 << 24)
"""Bytes of the last messages, on all ranks together."""
MODES = (*("sync", "async", "flight") * 2, "sync", "async", "late-sync", "late-async")
"""How a call is made: at once; with a handle; three in flight, waited for in reverse; while one
rank comes late."""
LAYOUTS = ("plain", "offset", "transposed")
GROUPS = ("world", "again", "world", "halves", "stripes")
SUM = -1
"""In the place of a rank: what all members make together."""


class Collective(NamedTuple):
    """Who holds what afterwards, and the ways to call it."""

    whose: str
    """Numbers: of the `root`, of `each` in turn, the `sum`, of the one before in a `ring`."""
    ways: Dict[str, str]
    """The function of torch.distributed, and what of a turn (collectives.py) it is given."""
    parts: bool = False
    """Whether each member has a part for each, so that one's own part of the numbers arrives."""
    at_root: bool = False
    """Whether the root alone gets an answer."""

    def after(self, me: int, root: int, world: int) -> List[Tuple[int, int]]:
        """What a member holds afterwards: whose numbers, and which part of them.

        >>> COLLECTIVES["all_to_all"].after(1, 0, 2), COLLECTIVES["reduce"].after(1, 0, 2)
        ([(0, 1), (1, 1)], [])
        """
        before = (me - ring_step(root, world)) % world
        found = {"sum": [SUM], "root": [root], "each": list(range(world)), "ring": [before]}
        held = [] if self.at_root and me != root else found[self.whose]
        return [(whose, me * self.parts) for whose in held]


def ring_step(root: int, world: int) -> int:
    """How far around a ring is sent."""
    return 1 + root % max(1, world - 1)


COLLECTIVES: Dict[str, Collective] = {
    "all_reduce": Collective(
        "sum",
        {
            "plain": "all_reduce shown op handle later",
        },
    ),
    "reduce": Collective("sum", {"plain": "reduce shown place op handle later"}, at_root=True),
    "broadcast": Collective(
        "root",
        {
            "plain": "broadcast shown place handle later",
        },
    ),
    "all_gather": Collective(
        "each",
        {
            "plain": "all_gather pieces given handle later",
            "tensor": "all_gather_into_tensor found given handle later",
        },
    ),
    "gather": Collective("each", {"plain": "gather given pieces place handle later"}, at_root=True),
    "scatter": Collective("root", {"plain": "scatter found root_parts place handle later"}, True),
    "reduce_scatter": Collective(
        "sum",
        {
            "plain": "reduce_scatter found parts op handle later",
            "tensor": "reduce_scatter_tensor found given op handle later",
        },
        parts=True,
    ),
    "all_to_all": Collective(
        "each",
        {
            "even": "all_to_all_single found given nothing nothing handle later",
            "uneven": "all_to_all_single found given received sent handle later",
            "lists": "all_to_all pieces parts handle later",
        },
        parts=True,
    ),
    "send_recv": Collective(
        "ring",
        {
            "blocking": "send given to handle | recv found whence handle",
            "handles": "isend given to handle | irecv found whence handle",
            "together": "batch_isend_irecv options",
        },
    ),
}


class Draw(NamedTuple):
    """One call of a collective."""

    way: str
    kind: Kind
    size: int
    group: str = "world"
    root: int = 0
    """Which member of the group it starts from or ends at (modulo their number)."""
    mode: str = "sync"
    layout: str = "plain"
    number: int = 0

    @property
    def name(self) -> str:
        """How `--only` names it."""
        return "-".join([self.way, *self.kind, *map(str, self[2:])])


def drawn(op: str, world: int, rounds: int = 1, seed: int = 0) -> List[Draw]:
    """The calls in their order, the same on every rank.

    >>> len(drawn("broadcast", 2))
    310
    """
    chance, (whose, ways, *_) = random.Random(f"{seed} {op}"), COLLECTIVES[op]
    formats = FORMATS if whose == "sum" else {"bits": EVERY * 4}
    kinds = [
        (dtype, how)
        for how, each in formats.items()
        for dtype in each
        if how != "sum" or EXACT_TO[dtype] >= 3 * world  # else the sum is not exact
    ]
    pairs = [(kind, sizes) for kind in kinds for sizes in SIZES] * rounds
    chance.shuffle(pairs)
    groups = GROUPS[: 3 if world == 2 else 5]  # a half of two is one rank alone
    axes = (tuple(ways), groups, MODES, LAYOUTS)
    # Each value once in every round, in another order each time.
    turns = [[each for _ in pairs for each in chance.sample(axis, len(axis))] for axis in axes]
    found = []
    for number, ((kind, sizes), way, group, mode, layout) in enumerate(zip(pairs, *turns)):
        size, root = chance.choice(sizes), chance.randrange(64)
        found.append(Draw(way, kind, size, group, root, mode, layout, number))
    last = [each // 4 // world for each in LARGEST]
    heavy = [
        Draw(way, kinds[0], chance.choice(sizes), "world", chance.randrange(64), mode)
        for way in ways
        for sizes, mode in ((BIG, "async"), (last, "sync"))
    ]
    return [*found[:1], *heavy[:1], *found[1:], *heavy[1:]]
