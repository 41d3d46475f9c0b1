"""The samples of torch's database, and how each is named."""

from __future__ import annotations

import zlib
from itertools import islice
from typing import Any, Dict, Iterator, NamedTuple, Tuple

from ..values import WrongQuestion
from .calls import Call
from .entries import Entry


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


def named(torch: Any, device: str, known: Dict[str, Entry], text: str, seed: int) -> Asked:
    """The sample of a name. Raises WrongQuestion where there is none."""
    entry, dtype, number = [*text.split("/"), "", ""][:3]
    right = text.count("/") == 2 and number.isdigit() and entry in known
    if right and dtype in known[entry].formats(torch, device):
        for found in islice(calls(torch, device, known[entry], dtype, seed), int(number), None):
            return found
    raise WrongQuestion(
        f"{text!r} names no sample of census-database with this torch",
        "as ENTRY/FORMAT/NUMBER, in the words of a failure's hint",
    )
