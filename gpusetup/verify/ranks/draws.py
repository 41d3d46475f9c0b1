"""Chooses which calls the ranks make. Every format and reduction meets every class of lengths;
everything else alternates."""

from __future__ import annotations

import random
from typing import Dict, List, NamedTuple, Sequence, Tuple

from .calls import COLLECTIVES, AnswerSource, Collective

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
"""Number format -> the largest n for which it represents all integers up to n exactly."""
FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "int64", "int8", "uint8")
COMPLEX = ("complex64", "complex128")
EVERY = (*FLOATS, *INTEGERS, "bool", *COMPLEX)
Kind = Tuple[str, str]
"""A number format, and how its numbers are reduced; `bits` means that they are only moved."""
FORMATS: Dict[str, Tuple[str, ...]] = {
    "sum": (*FLOATS, *INTEGERS, *COMPLEX),
    "fraction": FLOATS,
    "avg": FLOATS,
    "min": (*FLOATS, *INTEGERS, "bool"),
    "max": (*FLOATS, *INTEGERS, "bool"),
}
"""Reduction -> the formats to test it with; `fraction` is a sum of fractional numbers."""
SIZES: Tuple[Tuple[int, ...], ...] = (
    (0,),
    (1,),
    (2, 3, 5, 7, 8),
    (15, 16, 17, 31, 32, 33, 63, 64, 65),
    (127, 128, 129, 255, 256, 257, 511, 513, 1000),
    (1023, 1024, 1025, 2049, 4095, 4096, 4097),
    (8191, 16384, 16385, 32768, 65535, 65537),
)
"""Lengths by class, in elements of a message (or of a rank's part of it): none, one, few, and about
the size of a vector, a tile, a block and many blocks."""
BIG = (2**18 + 1, 2**20 - 1, 2**20 + 2**10)
"""Lengths, in elements, of messages that are sent in several pieces. Each way to call the
collective sends one such message, and one of these calls comes early."""
LARGEST = (1 << 23, 1 << 24)
"""The total sizes in bytes, over all ranks, of the largest messages, which are sent last."""
MODES = (*("sync", "async", "flight") * 2, "sync", "async", "late-sync", "late-async")
"""How to make a call. A mode that is listed more often is drawn more often. `sync` waits at once,
`async` gets a handle, and `flight` has three calls in flight and waits for them in reverse order.
With `late-`, one rank arrives late."""
LAYOUTS = ("plain", "offset", "transposed")
ROOTS = 64
"""Roots are drawn below this number, and then taken modulo the number of members."""
GROUPS = ("world", "again", "world", "halves", "stripes")
"""The groups in which calls are made (see `enter` in `group.py`); the world comes twice as often.
"""


class DrawnCall(NamedTuple):
    """A drawn call of a collective: way, format, size, group, root, mode and layout."""

    way: str
    kind: Kind
    size: int
    group: str = "world"
    root: int = 0
    """The member of the group from which the call starts or at which it ends (modulo the number of
    members)."""
    mode: str = "sync"
    layout: str = "plain"
    number: int = 0

    @property
    def name(self) -> str:
        """The name of the call for `--only`."""
        dtype, reduction = self.kind
        # Users repeat a call by this name, so do not change the order or the number of words in the
        # name.
        size, root, number = str(self.size), str(self.root), str(self.number)
        words = [self.way, dtype, reduction, size, self.group, root, self.mode, self.layout, number]
        return "-".join(words)


def drawn(op: str, world: int, rounds: int = 1, seed: int = 0) -> List[DrawnCall]:
    """The calls of a check in order, the same on every rank.

    >>> len(drawn("broadcast", 2))
    310
    """
    chance = random.Random(f"{seed} {op}")
    collective = COLLECTIVES[op]
    kinds = kinds_of(collective, world)
    pairs = [(kind, sizes) for kind in kinds for sizes in SIZES] * rounds
    chance.shuffle(pairs)
    ways = tuple(collective.calls)
    groups: Sequence[str] = GROUPS
    # Half of two ranks would be a group of one rank.
    if world == 2:
        groups = ("world", "again", "world")
    count = len(pairs)
    ways_in_turn = shuffled_rounds(chance, ways, count)
    groups_in_turn = shuffled_rounds(chance, groups, count)
    modes_in_turn = shuffled_rounds(chance, MODES, count)
    layouts_in_turn = shuffled_rounds(chance, LAYOUTS, count)
    calls = []
    for number, (kind, sizes) in enumerate(pairs):
        call = DrawnCall(
            way=ways_in_turn[number],
            kind=kind,
            size=chance.choice(sizes),
            group=groups_in_turn[number],
            root=chance.randrange(ROOTS),
            mode=modes_in_turn[number],
            layout=layouts_in_turn[number],
            number=number,
        )
        calls.append(call)
    heavy_calls = heavy_calls_of(chance, collective, world)
    # Make one heavy call early, so that even a check that runs out of time includes one.
    return [*calls[:1], *heavy_calls[:1], *calls[1:], *heavy_calls[1:]]


def heavy_calls_of(chance: random.Random, collective: Collective, world: int) -> List[DrawnCall]:
    """For each way to call the collective, one message sent in several pieces, and one of the
    largest."""
    # The first kind is always float32.
    kind = kinds_of(collective, world)[0]
    bytes_of_element = 4
    largest_sizes = [byte_count // bytes_of_element // world for byte_count in LARGEST]
    calls = []
    for way in collective.calls:
        for sizes, mode in ((BIG, "async"), (largest_sizes, "sync")):
            size, root = chance.choice(sizes), chance.randrange(ROOTS)
            calls.append(DrawnCall(way, kind, size, root=root, mode=mode))
    return calls


def kinds_of(collective: Collective, world: int) -> List[Kind]:
    """The formats and reductions to test a collective with; sums only if they are exact."""
    if collective.source is not AnswerSource.TOTAL:
        # These collectives only move numbers, as bits. Each format gets four turns here; in the
        # other collectives it gets one turn per reduction.
        return [(dtype, "bits") for dtype in EVERY * 4]
    kinds = []
    for reduction, formats in FORMATS.items():
        for dtype in formats:
            # Each rank needs at least three different numbers whose sum is exact.
            sum_is_exact = EXACT_TO[dtype] >= 3 * world
            if reduction != "sum" or sum_is_exact:
                kinds.append((dtype, reduction))
    return kinds


def shuffled_rounds(chance: random.Random, values: Sequence[str], count: int) -> List[str]:
    """More than `count` values, in rounds: each round contains every value once, in a new order."""
    values_in_turn: List[str] = []
    # Fewer rounds would do. But every draw changes the later ones, so with fewer rounds a seed
    # would choose other calls than those in older reports.
    for _ in range(count):
        values_in_turn += chance.sample(values, len(values))
    return values_in_turn
