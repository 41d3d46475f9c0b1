"""The nodes of a fleet: what is kept of each, and their names as schedulers write them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from gpusetup.errors import UsageError
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen


class NodeFinding(Frozen):
    """A finding about a node."""

    id: str
    severity: Severity
    title: str = ""
    root: bool = False
    since: str | None = None
    """When a check had it for the first time, if the node keeps a history."""


class Rate(Frozen):
    """A speed that was measured on one device of a node."""

    check: str
    device: str
    """The device's own name: `cuda:3`."""
    model: str
    """The GPU's name: rates are compared among the same."""
    value: float
    unit: str


class Drift(Frozen):
    """A field in which a node is not like most nodes of its kind.

    Two fields are compared with all nodes: `record.taken_at`, if the record is older than the
    others, and `node.kind`, if no other node has such GPUs.
    """

    field: str
    value: str
    majority: str
    severity: Severity
    nodes: int
    """How many nodes have the majority's value, or how many devices were compared."""
    of: int
    """Of how many."""


class Node(Frozen):
    """One node: what its records tell, or why they tell nothing."""

    name: str = ""
    taken_at: str | None = None
    kind: tuple[str, ...] = ()
    """The models of its GPUs, each once, sorted."""
    facts: Mapping[str, str] = {}
    findings: tuple[NodeFinding, ...] = ()
    rates: tuple[Rate, ...] = ()
    problem: str | None = None
    """Why there is no record, or no whole one."""
    since: Mapping[str, str] = {}
    """By the node's history: the id of a finding -> when a check had it for the first time."""
    snapshot_file: str | None = None
    """The file of the node's snapshot, which doctor can read again."""
    has_record: bool = True
    """False for a history alone, which does not say what the node is like."""


SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""What may be in a command as it is: a host's name."""
MOST_NAMES = 100_000


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A key that puts node9 before node10.

    >>> sorted(["node10", "node9"], key=natural)
    ['node9', 'node10']
    """
    return tuple((text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d{0,18})", name))


def slurm_list(names: Iterable[str]) -> str:
    """Names as Slurm takes them after `--exclude=`, ranges in brackets.

    >>> slurm_list(["gpu09", "gpu10", "gpu11", "gpu13", "login"])
    'gpu[09-11,13],login'
    """
    groups: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for name in sorted(names, key=natural):
        found = re.fullmatch(r"(.*?)(\d{0,15})(\D*)", name)
        prefix, number, end = found.groups() if found else (name, "", "")
        runs = groups[prefix, str(len(number)), end]
        if runs and number and int(number) == int(runs[-1][-1]) + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    parts = []
    for (prefix, _, end), runs in groups.items():
        inside = ",".join(map("-".join, runs))
        parts.append(f"{prefix}{f'[{inside}]' if set(inside) & set(',-') else inside}{end}")
    return ",".join(parts)


def expanded(text: str) -> tuple[str, ...]:
    """The names in such a list.

    >>> expanded("gpu[09-11,13],login")
    ('gpu09', 'gpu10', 'gpu11', 'gpu13', 'login')
    """
    names: dict[str, None] = {}
    try:
        for part in re.split(r",(?![^\[]*\])", text):
            prefix, _, rest = part.strip().partition("[")
            inside, _, end = rest.partition("]")
            numbers = _numbers(inside) if rest else [""]
            names |= dict.fromkeys(f"{prefix}{number}{end}" for number in numbers)
    except ValueError as problem:
        raise UsageError(f"{text[:80]!r} is no list of nodes", hint=WRITE) from problem
    names.pop("", None)
    if not 0 < len(names) <= MOST_NAMES or re.search(r"[\[\]]", "".join(names)):
        raise UsageError(f"{text[:80]!r} is no list of nodes", hint=WRITE)
    return tuple(names)


WRITE = "write gpu[001-016],login1"


def _numbers(inside: str) -> list[str]:
    """Raises ValueError for what is no range, or too long a one."""
    numbers_in_text: list[str] = []
    for piece in inside.split(","):
        first, _, last = piece.strip().partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if not 0 < len(numbers) <= MOST_NAMES:
            raise ValueError(piece)
        numbers_in_text += (f"{number:0{len(first)}d}" for number in numbers)
    return numbers_in_text
