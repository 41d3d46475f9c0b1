"""Machines that a sentence names beside the one that failed.

"My laptop is a MacBook, I run this on Colab", "it works on the Jetson, on the desktop it fails": the
name of a machine proves nothing where the failure is told of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gpusetup.messages.search import Text
from gpusetup.model.finding import Failing
from gpusetup.model.machine import DeviceNode, Disk, Event, Gpu, Package, PciDevice
from gpusetup.model.patterns import in_any_case, lazy

BEFORE, BEHIND = 90, 70
NAMED_BY_A_SENTENCE = {"os.family": 0, "os.jetson": 1, "os.wsl": 2}
"""The fields that a person's own words may claim, and how far such a claim is trusted at most
(`GUESS`, `HINT`, `USUAL`)."""
RUNS = r"(?<!not )(?<!n't )(?<!to )(?<!never )(?<!I )(?<!we )(?:works?|worked|working|runs?|ran|fine|well|succeeds?|succeeded|no (?:problem|issue)s?)"
REACHES_FROM = lazy(
    rf"(?i)(?:\b{RUNS}(?: \w+){{0,3}} (?:on|for|with|in|under|inside)(?: \w+(?:'s)?){{0,2}}"
    r"|\b(?:from|via|through|unlike|besides)(?: (?:my|an?|the|our))?(?: \w+)?|(?<!I am )(?<!I'm )(?<!are )\busing(?: (?:my|an?|the|our))?(?: \w+)?"
    r"|\b(?:ssh|connect\w*|develop\w*|log(?:ged|ging)? in|remote\w*|prototyp\w+)\b[^.\n]{0,40}"
    r"|\b(?:support|available(?! for execution)|compatible|planned)\w*\b[^.\n]{0,30}) ?$"
)
"""What stands before the name of a machine from which another is reached, or that has no fault."""
HAS_NO_FAULT = lazy(
    rf"(?i)[^.,;\n]{{0,24}}?,? (?:(?:it|this|that|everything|all|which|the same(?: \w+)?|and) )?(?:\w+ly |just |all )?"
    rf"(?:{RUNS}\b(?! out of)|is (?:ok(?:ay)?|(?:too |very |so )?slow)\b)(?! (?:on|only|but|in) (?:the )?(?:cpu|mps))"
)
ALL_RUNS = lazy(
    rf"(?i)(?: too| as well| also)?(?:,? and| there)?,? (?:there )?(?:it|this|that|everything|all|the same \w+)(?: all| just)? {RUNS}\b(?! out of)"
)
"""What stands behind a WSL in which all works: that one program there runs says less."""
ANOTHER = lazy(
    r"(?i)\bon (?:the|an?|my|our|that|this|its|his|her)(?: [\w'-]+){0,3} (?:servers?|vm|cluster|workstation|node|instance|desktop(?! app)|pc|pod|remote|linux (?:box|machine|host))\b"
    r"|\bon (?:the|a|our) (?:dgx|hpc|gpu)\b|\bssh(?:-?ing|ed)? (?:in)?to\b|\bssh from\b|\bremote (?:linux |gpu )?(?:server|machine|host|desktop|box)\b"
    r"|\b(?:colab|kaggle|runpod|vast\.ai|lambda labs|paperspace|ec2|sagemaker)\b|\b[gp]\d(?:dn|de|d|e|en)?\.\d*x?large\b"
    r"|\bto (?:the|an?|my|our)(?: [\w'-]+){0,2} (?:server|workstation|cluster|vm|instance)\b"
    r"|\bthis is (?:an?|my|our|the) (?:[\w'-]+ ){0,2}(?:server|workstation|desktop(?! app)|pc|vm)\b"
)
"""Another machine, on which the failure may be told to be."""
READ = 20_000


def is_in_passing(subject: str, flat: str, first: int, last: int) -> bool:
    """Whether the machine that is named from `first` to `last` is not shown to be the one that failed.

    >>> said = "On a Mac it works fine, here it fails"
    >>> is_in_passing("os.family", said, 0, 8)
    True
    >>> is_in_passing("os.family", "On a Mac it fails", 0, 8)
    False
    """
    behind = flat[last : last + BEHIND]
    if subject == "os.wsl":
        return ALL_RUNS.match(behind) is not None
    if REACHES_FROM.search(flat, max(first - BEFORE, 0), first) or HAS_NO_FAULT.match(behind):
        return True
    return any(
        not WORKS.search(flat, max(one.start() - BEFORE, 0), one.start())
        and not HAS_NO_FAULT.match(flat[one.end() : one.end() + BEHIND])
        for one in ANOTHER.finditer(flat, 0, READ)
    )


WORKS = lazy(rf"(?i)\b{RUNS}(?: \w+){{0,2}}(?: (?:on|in|with|for))? ?$")


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

    >>> from gpusetup.report.cleaning import text_of
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
