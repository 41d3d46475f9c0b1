"""Names of nodes: lists of them in Slurm's notation, and their natural order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from gpusetup.errors import UsageError

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""Matches host names that need no quoting in a command."""
MOST_NAMES = 100_000
"""The maximum length of a list of names. No cluster has this many nodes, so a longer list is a
typing error that would fill the memory."""
NAME_PIECE = re.compile(r"(\D*)(\d{0,18})")
"""Matches text followed by a number of at most 18 digits, which fits into 64 bits. A longer number
is split, and still sorts well enough."""
LAST_NUMBER = re.compile(r"((?:.*\D)?)(\d{1,18})(\D*)")
"""Splits a name into the text before its last number, the number and the text behind: `gpu09-ib`
into `gpu`, `09` and `-ib`."""


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A sort key that orders numbers in names by value, so that node9 comes before node10.

    >>> sorted(["node10", "node9"], key=natural)
    ['node9', 'node10']
    """
    return tuple((text, int(digits or 0)) for text, digits in NAME_PIECE.findall(name))


def on_one_line(name: str) -> str:
    """A name in which `?` replaces line breaks, control characters and other unprintable
    characters.

    >>> on_one_line("gpu1\\ngpu2: passed")
    'gpu1?gpu2: passed'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def slurm_list(names: Iterable[str]) -> str:
    """Node names in Slurm's notation (as for `--exclude=`), with ranges in brackets.

    >>> slurm_list(["gpu09", "gpu10", "gpu11", "gpu13", "login"])
    'gpu[09-11,13],login'
    """
    families: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for name in sorted(set(names), key=natural):
        split = LAST_NUMBER.fullmatch(name)
        # Only numbers with the same number of digits form a range, because `gpu9` and `gpu09` are
        # different nodes.
        if split:
            families[split[1], len(split[2]), split[3]].append(int(split[2]))
        else:
            # A name without a number, or with a line break, is listed by itself.
            families[name, 0, ""] = []
    parts = []
    for (prefix, width, suffix), numbers in families.items():
        ranges: list[tuple[int, int]] = []
        for number in numbers:
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1] = (ranges[-1][0], number)
            else:
                ranges.append((number, number))
        pieces = []
        for first, last in ranges:
            piece = f"{first:0{width}d}"
            pieces.append(piece if first == last else f"{piece}-{last:0{width}d}")
        inside = ",".join(pieces)
        if len(numbers) > 1:
            inside = f"[{inside}]"
        parts.append(f"{prefix}{inside}{suffix}")
    return ",".join(parts)


PART = re.compile(r"([^\[\],]*)(?:\[([\d,\s-]+)\]([^\[\],]*))?")
"""Matches one part of a list of nodes: a name, or ranges such as `gpu[09-11,13]`."""


def expanded(text: str) -> tuple[str, ...]:
    """The names in a list of nodes in Slurm's notation, without duplicates. Raises UsageError if
    the text is not such a list, or if it names more than MOST_NAMES nodes.

    >>> expanded("gpu[09-11,13],login")
    ('gpu09', 'gpu10', 'gpu11', 'gpu13', 'login')
    """
    names: dict[str, None] = {}  # keeps the order of the names
    start = text[:80]  # enough to recognise the list
    refusal = UsageError(f"{start!r} is not a list of nodes", hint="e.g. gpu[001-016],login1")
    # A comma inside brackets separates numbers, any other comma separates names.
    for part in re.split(r",(?![^\[]*\])", text):
        match = PART.fullmatch(part.strip())
        if match is None:
            raise refusal
        before, numbers_inside, after = match.groups(default="")
        if not numbers_inside:
            names[before] = None
            continue
        for piece in numbers_inside.split(","):
            first, _, last = piece.strip().partition("-")
            try:
                numbers = range(int(first), int(last or first) + 1)
            except ValueError as problem:
                raise refusal from problem
            if not numbers:  # such as 9-3
                raise refusal
            # All numbers in a range have as many digits as the first one.
            for number in numbers:
                names[f"{before}{number:0{len(first)}d}{after}"] = None
                if len(names) > MOST_NAMES:
                    raise UsageError(f"{start!r} lists more than {MOST_NAMES:,} nodes")
    # Between two consecutive commas there is an empty name.
    names.pop("", None)
    if not names:
        raise refusal
    return tuple(names)
