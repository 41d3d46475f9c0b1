"""The nodes of a fleet: the content of their records, and lists of node names in Slurm's
notation."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from gpusetup.errors import UsageError
from gpusetup.fleet.node_finding import FindingKey, NodeFinding
from gpusetup.fleet.sight import Sight
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen


class Rate(Frozen):
    """A speed that a check of verify measured on one device of a node."""

    check: str
    device: str
    """The device's own name: `cuda:3`."""
    model: str
    """The GPU's name: rates are compared among the same."""
    value: float
    unit: str


class Drift(Frozen):
    """A difference between a node and most nodes of its kind, in one field.

    Some fields are no facts of the node: `record.taken_at`, if the record is older than the others,
    `record.future`, if it is dated in the future, and `node.kind`, if no other node has such GPUs.
    """

    field: str
    value: str
    majority: str
    severity: Severity
    nodes: int
    """How many nodes have the majority's value, or how many devices were compared."""
    of: int
    """Of how many."""


class FactSplit(Frozen):
    """A fact for which no value has a majority among the nodes of a kind, so that it is unclear
    which nodes are right."""

    field: str
    severity: Severity
    gpus: tuple[str, ...]
    """The model of the GPUs of that kind."""
    values: Mapping[str, tuple[str, ...]]
    """Each value -> the nodes that have it."""


class Node(Frozen):
    """A node with the content of its records, or the reason why there are none."""

    name: str = ""
    taken_at: str | None = None
    kind: tuple[str, ...] = ()
    """The model of most of its GPUs; () if no GPU is seen."""
    facts: Mapping[str, str] = {}
    findings: tuple[NodeFinding, ...] = ()
    rates: tuple[Rate, ...] = ()
    problem: str | None = None
    """Why there is no record, or no whole one."""
    since: Mapping[FindingKey, str] = {}
    """By the node's history: a finding -> when a check had it for the first time."""
    snapshot_file: str | None = None
    """The file of the node's snapshot, which doctor can read again."""
    snapshot_findings: tuple[str, ...] = ()
    """The ids of the findings that doctor finds in that file."""
    broken_file: str | None = None
    """The file of a record that cannot be read."""
    sight: Sight = Sight(sources=())
    """What the record could see."""
    has_record: bool = True
    """False for a history alone, which does not say what the node is like."""


SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""What may be in a command as it is: a host's name."""
MOST_NAMES = 100_000


NAME_PIECE = re.compile(r"(\D*)(\d{0,18})")
"""18 digits fit into 64 bits; longer numbers are split, which sorts them well enough."""


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A sort key that orders numbers in names by value, so that node9 comes before node10.

    >>> sorted(["node10", "node9"], key=natural)
    ['node9', 'node10']
    """
    pieces = []
    for text, digits in NAME_PIECE.findall(name):
        # The end of a name may have no number.
        number = int(digits or 0)
        pieces.append((text, number))
    return tuple(pieces)


def slurm_list(names: Iterable[str]) -> str:
    """Node names in Slurm's notation (as for `--exclude=`), with ranges in brackets.

    >>> slurm_list(["gpu09", "gpu10", "gpu11", "gpu13", "login"])
    'gpu[09-11,13],login'
    """
    families: dict[tuple[str, int, str], list[NumberRange]] = defaultdict(list)
    for name in sorted(names, key=natural):
        prefix, digits, suffix = _split_at_number(name)
        # `gpu9` and `gpu09` differ: only numbers with the same count of digits form a range.
        family = families[prefix, len(digits), suffix]
        last_range = family[-1] if family else None
        if last_range and digits and last_range.is_before(digits):
            family[-1] = NumberRange(first=last_range.first, last=digits)
        else:
            family.append(NumberRange(first=digits, last=digits))
    parts = []
    for (prefix, _, suffix), family in families.items():
        numbers = ",".join(map(str, family))
        # A single number needs no brackets.
        is_list = len(family) > 1 or "-" in numbers
        middle = f"[{numbers}]" if is_list else numbers
        parts.append(f"{prefix}{middle}{suffix}")
    return ",".join(parts)


class NumberRange(Frozen):
    """A range of consecutive numbers as text, with leading zeros."""

    first: str
    last: str

    def is_before(self, digits: str) -> bool:
        """Whether a number directly follows the last number of this range."""
        next_number = int(self.last) + 1
        # The same count of digits is a matter of the caller.
        return int(digits) == next_number

    def __str__(self) -> str:
        first, last = self.first, self.last
        # A range of one is a number.
        if first == last:
            return first
        return f"{first}-{last}"


def _split_at_number(name: str) -> tuple[str, str, str]:
    """A name split into prefix, last number and suffix; without a number, all of it is the
    prefix."""
    parts = re.fullmatch(r"(.*?)(\d{0,15})(\D*)", name)
    # A line break, or a number with too many digits.
    if parts is None:
        return name, "", ""
    prefix = parts[1]
    digits = parts[2]
    return prefix, digits, parts[3]


def expanded(text: str) -> tuple[str, ...]:
    """The individual names in a list in Slurm's notation; UsageError if the list is malformed or
    too long.

    >>> expanded("gpu[09-11,13],login")
    ('gpu09', 'gpu10', 'gpu11', 'gpu13', 'login')
    """
    # A comma inside brackets separates numbers, any other names.
    parts = re.split(r",(?![^\[]*\])", text)
    names: dict[str, None] = {}
    try:
        for part in parts:
            for name in _names_of_part(part.strip()):
                names[name] = None
    except ValueError as problem:
        raise UsageError(f"{text[:80]!r} is no list of nodes", hint=WRITE) from problem
    # Two commas in a row.
    names.pop("", None)
    has_stray_bracket = any("[" in name or "]" in name for name in names)
    is_too_long = len(names) > MOST_NAMES
    if has_stray_bracket or not names or is_too_long:
        raise UsageError(f"{text[:80]!r} is no list of nodes", hint=WRITE)
    return tuple(names)


def _names_of_part(part: str) -> list[str]:
    """The names in one part of a list: a plain name, or a range such as `gpu[09-11]`."""
    prefix, bracket, after_bracket = part.partition("[")
    numbers_text, _, suffix = after_bracket.partition("]")
    # Without brackets the prefix is the whole name.
    numbers = [""]
    if bracket and after_bracket:
        numbers = _numbers(numbers_text)
    return [f"{prefix}{number}{suffix}" for number in numbers]


WRITE = "write gpu[001-016],login1"


def _numbers(inside: str) -> list[str]:
    """The numbers that brackets contain (`1-3,7`), with leading zeros as written.

    Raises ValueError for what is no range, or too long a one.
    """
    numbers: list[str] = []
    for piece in inside.split(","):
        first, _, last = piece.strip().partition("-")
        # `09` has two digits, and so has each of its range.
        width = len(first)
        first_number = int(first)
        last_number = int(last or first)
        span = range(first_number, last_number + 1)
        # `[1-999999999]` would fill the memory.
        is_plausible = 0 < len(span) <= MOST_NAMES
        if not is_plausible:
            raise ValueError(piece)
        for number in span:
            numbers.append(f"{number:0{width}d}")
    return numbers
