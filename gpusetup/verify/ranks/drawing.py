"""Which calls are tried: every value of every axis, in combinations that the seed draws."""

from __future__ import annotations

import random
import zlib
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .patterns import EXTREMES

SIZES: Dict[str, Tuple[int, ...]] = {
    "one": (1,),
    "few": (2, 3, 5, 7, 8),
    "warp": (15, 16, 17, 31, 32, 33, 63, 64, 65),
    "tile": (127, 128, 129, 255, 256, 257, 511, 513, 1000),
    "block": (1023, 1024, 1025, 2049, 4095, 4096, 4097),
    "long": (8191, 16384, 16385, 32768, 65535, 65537),
}
"""Elements of a message (of a rank's part of it, where it has parts)."""
BIG: Tuple[int, ...] = (2**18 + 1, 2**20 - 1, 2**20 + 2**10)
"""Elements of messages that travel in several pieces."""
MODES = (*["sync"] * 5, *["async"] * 4, *["flight"] * 2, "late", "late-async", "again")
"""How a call is made: at once; with a handle; several in flight; while one rank comes late; twice
with the same tensors."""
SEVERAL = 4
"""Calls of one element, in which one rank each decides."""
LAYOUTS = ("plain", "plain", "offset", "transposed")
GROUPS = ("world", "world", "again", "halves", "stripes", "ends")


class Call(NamedTuple):
    """One call of one collective."""

    op: str
    form: str
    dtype: str
    how: str
    """`bits`, or the reduction."""
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
        how = "" if self.how == "bits" else f"-{self.how}"
        where = f"{self.group}-root{self.root}-{self.mode}-{self.layout}-{self.number}"
        return f"{self.form}-{self.dtype}{how}-{self.size}-{where}"

    def seed(self, seed: int) -> int:
        """Of this call's numbers, the same on every rank."""
        return (seed * 1_000_003 + zlib.crc32(f"{self.op}/{self.name}".encode())) % 2**63


def drawn(
    op: str,
    forms: Sequence[str],
    kinds: Sequence[Tuple[str, str]],
    seed: int,
    transposed: bool,
    rounds: int = 1,
) -> List[Call]:
    """Every kind (format, reduction) in every size class; the other axes take turns.

    >>> found = drawn("broadcast", ("plain",), (("float32", "bits"),), 1, True)
    >>> len(found) == len(SIZES)
    True
    """
    chance = random.Random(f"{seed} {op}")
    layouts = LAYOUTS if transposed else LAYOUTS[:3]
    turns = [_turns(chance, axis) for axis in (forms, GROUPS, range(64), MODES, layouts)]
    found: List[Call] = []
    for _ in range(rounds):
        pairs = [(kind, size) for kind in kinds for size in SIZES]
        chance.shuffle(pairs)
        for (dtype, how), size in _in_turn(pairs):
            form, group, root, mode, layout = (next(turn) for turn in turns)
            length = chance.choice(SIZES[size])
            values = (form, dtype, how, length, group, root, mode, layout, len(found))
            found.append(Call(op, *values))  # type: ignore[arg-type]
    return found


def _in_turn(pairs: Sequence[Tuple[Tuple[str, str], str]]) -> Iterator[Tuple[Tuple[str, str], str]]:
    """The same; of one element alone, several ranks in turn decide a `min` or a `max`."""
    for kind, size in pairs:
        alone = size == "one" and kind[1] in EXTREMES
        yield from [(kind, size)] * (SEVERAL if alone else 1)


def _turns(chance: random.Random, axis: Sequence[object]) -> Iterator[object]:
    """Each value once in every round, in another order each time."""
    while True:
        yield from chance.sample(list(axis), len(axis))


def large(
    op: str,
    forms: Sequence[str],
    kinds: Sequence[Tuple[str, str]],
    seed: int,
    elements: Sequence[int],
) -> List[Call]:
    """Messages of these sizes, each in a form and a format that the seed draws."""
    chance = random.Random(f"{seed} {op} large")
    found = []
    for place, size in enumerate(elements):
        dtype, how = kinds[0] if place == 0 else chance.choice(list(kinds))
        mode = chance.choice(("sync", "async"))
        group = "world" if place % 2 == 0 else "again"
        form, root = chance.choice(list(forms)), chance.randrange(64)
        found.append(Call(op, form, dtype, how, size, group, root, mode, number=place))
    return found
