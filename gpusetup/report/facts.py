"""What a reader of a text gives: one claim about one field, or a whole value of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.model.failing import Failing
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import DeviceNode, Disk, Event, Gpu, Package, PciDevice
from gpusetup.model.patterns import in_any_case
from gpusetup.report.elsewhere import NAMED_BY_A_SENTENCE, is_in_passing
from gpusetup.report.text import Text

GUESS, HINT, USUAL, SURE = range(4)
"""How far a source is trusted about a field: a path's name, a remark, a program's word, and the
word of the program that is asked for exactly that."""


class Claim(Frozen):
    """A field of the snapshot, `torch.version`, and what one place of the text says of it."""

    subject: str
    value: str | bool | int
    source: str
    trust: int = USUAL


class Gpus(Frozen):
    """One list of GPUs."""

    gpus: tuple[Gpu, ...]
    source: str
    trust: int = USUAL


Fact = Claim | Gpus | Package | PciDevice | DeviceNode | Disk | Event | Failing
Reader = Callable[[Text], Iterator[Fact]]


class Saying(Frozen):
    """A pattern whose first group is the value of a field."""

    subject: str
    needle: str
    pattern: str
    trust: int = USUAL
    value: str | bool | None = None
    """What is claimed where the pattern has no group."""


def saying(
    subject: str,
    needle: str,
    pattern: str,
    trust: int = USUAL,
    value: str | bool | None = None,
) -> Saying:
    return Saying(subject=subject, needle=needle, pattern=pattern, trust=trust, value=value)


CLAIMS_A_ROW = 4


def claims(text: Text, sayings: tuple[Saying, ...]) -> Iterator[Claim]:
    """What the text says by these patterns; each different value once.

    >>> from gpusetup.report.text import text_of
    >>> rows = (saying("python.version", "python ", r"Python (\\d\\.\\d+\\.\\d+)"),)
    >>> next(claims(text_of("Python 3.13.5"), rows)).value
    '3.13.5'
    """
    for row in sayings:
        yield from _claimed(text, row)


def _is_another_machine(text: Text, row: Saying, first: int, last: int) -> bool:
    sentence = row.trust <= NAMED_BY_A_SENTENCE.get(row.subject, -1)
    return sentence and is_in_passing(row.subject, text.flat, first, last)


def _claimed(text: Text, row: Saying) -> Iterator[Claim]:
    pattern, seen = in_any_case(row.pattern), set[str | bool]()
    for start, window in text.near(row.needle):
        for found in pattern.finditer(window):
            value = row.value if row.value is not None else (found.group(1) or "").strip()
            if value == "" or value in seen or len(seen) >= CLAIMS_A_ROW:
                continue
            if _is_another_machine(text, row, start + found.start(), start + found.end()):
                continue
            seen.add(value)
            told = start + found.start(int(row.value is None))
            yield Claim(subject=row.subject, value=value, source=text.source(told), trust=row.trust)
