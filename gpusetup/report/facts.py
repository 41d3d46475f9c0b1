"""What a reader of a text gives: one claim about one field, or a whole value of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gpusetup.messages.search import Text
from gpusetup.model.finding import Failing
from gpusetup.model.machine import DeviceNode, Disk, Event, Gpu, Package, PciDevice
from gpusetup.model.patterns import in_any_case
from gpusetup.report.elsewhere import NAMED_BY_A_SENTENCE, is_in_passing

GUESS, HINT, USUAL, SURE = range(4)
"""How far a source is trusted about a field: a path's name, a remark, a program's word, and the
word of the program that is asked for exactly that."""


class Claim(NamedTuple):
    """A field of the snapshot, `torch.version`, and what one place of the text says of it."""

    subject: str
    value: str | bool | int
    source: str
    trust: int = USUAL


class Gpus(NamedTuple):
    """One list of GPUs."""

    gpus: tuple[Gpu, ...]
    source: str
    trust: int = USUAL


Fact = Claim | Gpus | Package | PciDevice | DeviceNode | Disk | Event | Failing
Facts = Iterator[Fact]
Reader = Callable[[Text], Facts]


class Saying(NamedTuple):
    """A pattern whose first group is the value of a field, where certain letters are."""

    subject: str
    needle: str | tuple[str, ...]
    """Lower case; of several, every form has one."""
    pattern: str
    trust: int = USUAL
    value: str | bool | int | None = None
    """What is claimed where the pattern has no group."""

    @property
    def needles(self) -> tuple[str, ...]:
        return (self.needle,) if isinstance(self.needle, str) else self.needle


CLAIMS_A_ROW = 4


def claims(text: Text, sayings: Iterable[Saying]) -> Iterator[Claim]:
    """What the text says by these patterns; each different value of a row once.

    >>> from gpusetup.report.cleaning.clean import text_of
    >>> rows = [Saying("python.version", "python ", r"Python (\\d\\.\\d+\\.\\d+)")]
    >>> next(claims(text_of("Python 3.13.5"), rows)).value
    '3.13.5'
    """
    for saying in sayings:
        if not any(needle in text.low for needle in saying.needles):
            continue
        subject, _, pattern, trust, fixed = saying
        spoken = trust <= NAMED_BY_A_SENTENCE.get(subject, -1)
        seen: set[str | bool | int] = {""}
        for start, window in text.near(*saying.needles):
            for found in in_any_case(pattern).finditer(window):
                value = (found[1] or "").strip() if fixed is None else fixed
                if value in seen or len(seen) > CLAIMS_A_ROW:
                    continue
                at, end = (start + place for place in found.span())
                if spoken and is_in_passing(subject, text.flat, at, end):
                    continue
                seen.add(value)
                told = start + found.start(int(fixed is None))
                yield Claim(subject, value, text.source(told), trust)
