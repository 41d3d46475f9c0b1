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
from .forms import drawn as form_drawn
from .forms import known as known_part

READ = (8, 24, 24, 72, 216)
"""So many samples of an entry are read before those of a draw are chosen; some have a thousand."""
EACH = 2
"""How many samples of each entry `standard` draws."""
FORMS, FORMED = 8, 72
"""At `census`: how many forms of an entry in each format, and of how many of its samples."""
PLAIN = 0.25
"""How often a share of the census asks a sample as it is."""


class Sample(NamedTuple):
    """One call of the database; its name and a seed give the same numbers with this torch."""

    entry: str
    dtype: str
    number: int
    form: str = ""
    """Empty: as torch made it; else what of it is other, in the words of `forms.py`."""

    @property
    def plain_name(self) -> str:
        return f"{self.entry}/{self.dtype}/{self.number}"

    @property
    def name(self) -> str:
        return f"{self.plain_name}/{self.form}" if self.form else self.plain_name


Asked = Tuple[Sample, Call]


def calls(torch: Any, device: str, entry: Entry, dtype: str, seed: int) -> Iterator[Asked]:
    """All samples of an entry in a format."""
    number = zlib.crc32(f"{seed}:{entry.name}:{dtype}".encode())
    for place, call in enumerate(entry.calls(torch, device, dtype, number)):
        yield Sample(entry.name, dtype, place), call


def every(torch: Any, device: str, entry: Entry, seed: int) -> Iterator[Asked]:
    """All samples of an entry as torch made them, and some of each format in a form."""
    for dtype in entry.formats(torch, device):
        chance = random.Random(f"{seed}:{entry.name}:{dtype}:forms")
        first: List[Asked] = []
        for asked in calls(torch, device, entry, dtype, seed):
            yield asked
            first += [asked] * (len(first) < FORMED)
        for turn in range(min(FORMS, 2 * len(first))):
            sample, call = chance.choice(first)
            words = f"{seed}:{turn}:{sample.name}"
            yield in_a_form(torch, (sample, call), words), call


def in_a_form(torch: Any, asked: Asked, words: str) -> Sample:
    """The sample in a form that `words` draw."""
    sample, call = asked
    return sample._replace(form=form_drawn(torch, sample.entry, sample.dtype, call, words))


def one(torch: Any, device: str, entry: Entry, seed: int, turn: int) -> List[Asked]:
    """One sample of an entry, as it is or in a form; none where it has none."""
    chance = random.Random(f"{seed}:{turn}:{entry.name}:one")
    formats = entry.formats(torch, device)
    if not formats:
        return []
    dtype = chance.choices(formats, [USED.get(name, 1) for name in formats])[0]
    found = list(islice(calls(torch, device, entry, dtype, seed), chance.choice(READ)))
    if not found:
        return []
    sample, call = chance.choice(found)
    if chance.random() >= PLAIN:
        sample = in_a_form(torch, (sample, call), f"{seed}:{turn}:{sample.name}")
    return [(sample, call)]


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
    entry, dtype, number, form = [*text.split("/", 3), "", "", ""][:4]
    right = not form or all(known_part(part) for part in form.split("+"))
    right = right and not text.endswith("/") and number.isdigit() and entry in known
    if right and dtype in known[entry].formats(torch, device):
        found = islice(calls(torch, device, known[entry], dtype, seed), int(number), None)
        for sample, call in found:
            return sample._replace(form=form), call
    raise WrongQuestion(
        f"{text!r} names no sample of census-database with this torch",
        "as ENTRY/FORMAT/NUMBER or ENTRY/FORMAT/NUMBER/FORM, in the words of a failure's hint",
    )
