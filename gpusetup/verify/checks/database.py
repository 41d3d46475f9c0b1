"""torch's own database of operators as a check: `census` takes all."""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterator, List

from ..database.calls import exact_products
from ..database.comparing import NotAsked, compared
from ..database.entries import Entry, entries
from ..database.loading import NoDatabase, load
from ..database.rules import SINCE
from ..database.sampling import Asked, every, named
from ..device.importing import first_line
from ..judging.refusals import refuses
from ..judging.tolerance import Part, holds, judged
from ..operators.releases import release
from ..values import SKIPPED, Outcome, asked, sticky, working_on
from .census import ENOUGH, kept, not_in_this_torch

NAME = "census-database"


def database(device: str) -> Outcome:
    """Each chosen sample of each entry agrees with float64 on the CPU."""
    import torch

    if release(torch) < SINCE:
        return Outcome(SKIPPED, "the database of this torch has samples that it gives wrong itself")
    try:
        known = known_to(torch)
    except NoDatabase as problem:
        return Outcome(SKIPPED, f"torch's own database of operators cannot be loaded: {problem}")
    found = Found()
    with exact_products(torch):
        for sample, call in chosen(torch, device, known, found):
            working_on(sample.name)
            found.ask(torch, device, known[sample.entry], (sample, call))
            if found.bad >= ENOUGH:
                break
    return found.told(device)


def counted(number: int, one: str, many: str = "") -> str:
    """
    >>> counted(1, "sample"), counted(0, "sample"), counted(2, "entry", "entries")
    ('1 sample', '0 samples', '2 entries')
    """
    return f"{number} {one if number == 1 else many or one + 's'}"


def parts_of(torch: Any, device: str, entry: Entry, given: Asked) -> List[Part]:
    """What is compared of one sample. Raises NotAsked, and what the operator raises."""
    sample, call = given
    words = f"{asked().seed}:{sample.name}"
    return compared(torch, device, entry, call, sample.dtype, words)


@functools.lru_cache(maxsize=None)
def known_to(torch: Any) -> Dict[str, Entry]:
    """The entries of this torch, read once a process. Raises NoDatabase."""
    return entries(load(torch))


class Found:
    """What the samples gave so far."""

    def __init__(self, check: str = NAME) -> None:
        self.check = check
        self.parts: List[Part] = []
        self.names: Dict[str, int] = {}
        self.bad = self.tried = self.not_asked = 0
        self.unread: List[str] = []
        """Entries whose samples this torch cannot make here."""

    def ask(self, torch: Any, device: str, entry: Entry, given: Asked) -> None:
        """Compares one sample."""
        try:
            parts = parts_of(torch, device, entry, given)
        except Exception as problem:  # whatever an operator raises is its answer
            parts = self.raised(problem)
        self.take(entry.name, given[0].name, parts)

    def raised(self, problem: Exception) -> List[Part]:
        """What an error says of the device; nothing where torch only lacks this."""
        if sticky(problem):
            raise problem
        if isinstance(problem, NotAsked) or refuses(problem) or not_in_this_torch(problem):
            self.not_asked += 1
            return []
        return [holds("", False, first_line(problem))]

    def take(self, entry: str, name: str, parts: List[Part]) -> None:
        self.tried += 1
        self.names[entry] = self.names.get(entry, 0) + 1
        named_parts = [part._replace(label=f"{name} {part.label}".strip()) for part in parts]
        self.parts, self.bad = kept(self.parts + named_parts)

    def told(self, device: str) -> Outcome:
        if not self.tried:
            return Outcome(SKIPPED, "this torch's database has nothing that can be asked here")
        seed, hint = asked().seed, None
        bad = [part for part in self.parts if not part.worst <= 1]
        if bad:
            hint = (
                f"again: `--level {asked().level} --device {device} --seed {seed}"
                f" --only {self.check}/{bad[0].label.split(' ')[0]}`; where it fails again, another"
                " build or card"
            )
        said = f"{counted(self.tried, 'sample')} of {counted(len(self.names), 'entry', 'entries')}"
        said += f" with seed {seed}{self._less()}"
        outcome = judged(self.parts, "float64", hint)
        if bad:
            return outcome._replace(detail=f"{outcome.detail} ({said})")
        near = [part.label for part in self.parts if part.allowed]
        worst = f", worst {near[0]}" if near else ""
        return outcome._replace(detail=f"{said}, against float64 on the CPU{worst}")

    def _less(self) -> str:
        has = "has" if self.not_asked == 1 else "have"
        said = f"; {self.not_asked} {has} no answer here" if self.not_asked else ""
        unread = counted(len(self.unread), "entry", "entries")
        return said + (f"; {unread} cannot be made" if self.unread else "")


def chosen(torch: Any, device: str, known: Dict[str, Entry], found: Found) -> Iterator[Asked]:
    """The samples that the level takes, or the one that was asked for."""
    only = dict(each.partition("/")[::2] for each in asked().only).get(NAME)
    seed = asked().seed
    if only:
        yield named(torch, device, known, only, seed)
        return
    for entry in known.values():
        try:
            yield from every(torch, device, entry, seed)
        except Exception as problem:  # the database's own code: private, and other in each torch
            if sticky(problem):
                raise
            found.unread.append(entry.name)
