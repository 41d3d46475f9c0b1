"""The nodes of a fleet: the contents of their records, and lists of node names in Slurm's
notation."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from gpusetup.errors import UsageError
from gpusetup.fleet.node_check import NodeFinding, Source
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen


class Rate(Frozen):
    """A speed that a check of verify measured on one device of a node."""

    check: str
    device: str
    """The device's torch name, such as `cuda:3`."""
    model: str
    """The GPU's model name. Only rates of the same model are compared."""
    value: float
    unit: str


class Drift(Frozen):
    """A difference between a node and most nodes of its kind, in one field.

    Four fields are not facts about the node: `record.taken_at` means that its record is older than
    the others, `record.future` that its record is dated in the future, `record.copied` that another
    node's record has the same GPUs, and `node.kind` that no other node has GPUs of this model.
    """

    field: str
    value: str
    majority: str
    severity: Severity
    nodes: int
    """How many nodes have the majority's value, or how many devices were compared."""
    of: int
    """The total number of nodes or devices."""


class FactSplit(Frozen):
    """A fact without a majority value among the nodes of a kind, so that it is unknown which nodes
    are right."""

    field: str
    severity: Severity
    gpus: tuple[str, ...]
    """The GPU model of that kind of node."""
    values: Mapping[str, tuple[str, ...]]
    """Maps each value to the nodes that have it."""


class Node(Frozen):
    """A node with the contents of its records, or the reason why there are none."""

    name: str = ""
    taken_at: str | None = None
    kind: tuple[str, ...] = ()
    """The model of most of the node's GPUs; empty if the node has no visible GPU."""
    facts: Mapping[str, str] = {}
    findings: tuple[NodeFinding, ...] = ()
    rates: tuple[Rate, ...] = ()
    problem: str | None = None
    """Why the record is missing or incomplete; None if it is complete."""
    snapshot_file: str | None = None
    """The file with the node's snapshot, which doctor can read again."""
    snapshot_findings: tuple[str, ...] = ()
    """The ids of doctor's findings for that file."""
    broken_file: str | None = None
    """The file of a record that could not be read."""
    sources: tuple[Source, ...] = ()
    """What the record could read, so that a fault which it does not report is gone."""
    gpu_uuids: tuple[str, ...] = ()


SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""Matches host names that need no quoting in a command."""
MOST_NAMES = 100_000
"""The maximum length of a list of names. No cluster has this many nodes, so a longer list is a
typing error that would fill the memory."""


NAME_PIECE = re.compile(r"(\D*)(\d{0,18})")
"""Matches text followed by a number of at most 18 digits, which fits into 64 bits. A longer number
is split, and still sorts well enough."""


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A sort key that orders numbers in names by value, so that node9 comes before node10.

    >>> sorted(["node10", "node9"], key=natural)
    ['node9', 'node10']
    """
    pieces = []
    for text, digits in NAME_PIECE.findall(name):
        # The last piece of a name may have no number.
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
        # Only numbers with the same number of digits form a range, because `gpu9` and `gpu09` are
        # different nodes.
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
        # The caller only compares numbers that have the same number of digits.
        return int(digits) == next_number

    def __str__(self) -> str:
        first, last = self.first, self.last
        # A range with a single number is written as that number.
        if first == last:
            return first
        return f"{first}-{last}"


def _split_at_number(name: str) -> tuple[str, str, str]:
    """A name split into prefix, last number and suffix; a name without a number is all prefix."""
    parts = re.fullmatch(r"(.*?)(\d{0,15})(\D*)", name)
    # A name with a line break, or with a number of too many digits, cannot be split.
    if parts is None:
        return name, "", ""
    prefix = parts[1]
    digits = parts[2]
    return prefix, digits, parts[3]


def expanded(text: str) -> tuple[str, ...]:
    """The names in a list of nodes in Slurm's notation, without duplicates. Raises UsageError if
    the text is not such a list, or if it names more than MOST_NAMES nodes.

    >>> expanded("gpu[09-11,13],login")
    ('gpu09', 'gpu10', 'gpu11', 'gpu13', 'login')
    """
    # A comma inside brackets separates numbers, any other comma separates names.
    parts = re.split(r",(?![^\[]*\])", text)
    names: dict[str, None] = {}
    try:
        for part in parts:
            for name in _names_of_part(part.strip()):
                names[name] = None
                if len(names) > MOST_NAMES:
                    raise UsageError(f"{text[:80]!r} names more than {MOST_NAMES:,} nodes")
    except ValueError as problem:
        raise UsageError(f"{text[:80]!r} is not a list of nodes", hint=WRITE) from problem
    # Between two consecutive commas there is an empty name.
    names.pop("", None)
    has_stray_bracket = any("[" in name or "]" in name for name in names)
    if has_stray_bracket or not names:
        raise UsageError(f"{text[:80]!r} is not a list of nodes", hint=WRITE)
    return tuple(names)


def _names_of_part(part: str) -> Iterator[str]:
    """The names in one part of a list, which is a name or has a form like `gpu[09-11]`.

    Raises ValueError if the brackets contain something other than numbers and ranges.
    """
    prefix, bracket, after_bracket = part.partition("[")
    numbers_text, _, suffix = after_bracket.partition("]")
    # Without brackets, the prefix is the whole name.
    numbers: Iterable[str] = ("",)
    if bracket and after_bracket:
        numbers = _numbers(numbers_text)
    for number in numbers:
        yield f"{prefix}{number}{suffix}"


WRITE = "write gpu[001-016],login1"


def _numbers(inside: str) -> Iterator[str]:
    """Yields the numbers in the brackets one at a time, so that the caller can stop (`08-10,7`
    contains 08, 09, 10 and 7).

    Raises ValueError for a piece that is neither a number nor an ascending range.
    """
    for piece in inside.split(","):
        first, _, last = piece.strip().partition("-")
        # All numbers in a range have as many digits as the first one.
        width = len(first)
        first_number = int(first)
        last_number = int(last or first)
        if last_number < first_number:
            raise ValueError(piece)
        for number in range(first_number, last_number + 1):
            yield f"{number:0{width}d}"
