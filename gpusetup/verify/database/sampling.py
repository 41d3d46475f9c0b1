"""Which samples of torch's database a level takes, and how each is named."""

from __future__ import annotations

import random
import zlib
from itertools import islice
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from ..operators.sampling import USED
from ..values import WrongQuestion
from .calls import Call
from .entries import Entry

READ = (8, 24, 24, 72, 216)
"""So many samples of an entry are read before those of a draw are chosen; some have a thousand."""
EACH = 2
"""How many samples of each entry `standard` draws."""


class Sample(NamedTuple):
    """One call of the database; its name and a seed give the same numbers with this torch."""

    entry: str
    dtype: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.entry}/{self.dtype}/{self.number}"


Asked = Tuple[Sample, Call]


def calls(torch: Any, device: str, entry: Entry, dtype: str, seed: int) -> Iterator[Asked]:
    """All samples of an entry in a format."""
    number = zlib.crc32(f"{seed}:{entry.name}:{dtype}".encode())
    for place, call in enumerate(entry.calls(torch, device, dtype, number)):
        yield Sample(entry.name, dtype, place), call


def every(torch: Any, device: str, entry: Entry, seed: int) -> Iterator[Asked]:
    """All samples of an entry."""
    for dtype in entry.formats(torch, device):
        yield from calls(torch, device, entry, dtype, seed)


def drawn(torch: Any, device: str, entry: Entry, seed: int, turn: int = 0) -> List[Asked]:
    """`EACH` samples of an entry in one format: formats by how often they are used."""
    chance = random.Random(f"{seed}:{turn}:{entry.name}")
    formats = entry.formats(torch, device)
    if not formats:
        return []
    dtype = chance.choices(formats, [USED.get(name, 1) for name in formats])[0]
    found = list(islice(calls(torch, device, entry, dtype, seed), chance.choice(READ)))
    return chance.sample(found, min(EACH, len(found)))


def named(torch: Any, device: str, known: Dict[str, Entry], text: str, seed: int) -> Asked:
    """The sample of a name. Raises WrongQuestion where there is none."""
    entry, dtype, number = [*text.rsplit("/", 2), "", ""][:3]
    if entry in known and number.isdigit() and dtype in known[entry].formats(torch, device):
        found = islice(calls(torch, device, known[entry], dtype, seed), int(number), None)
        for each in found:
            return each
    raise WrongQuestion(f"{text!r} names no sample of census-database")
