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
    for name in sorted(names, key=natural):
        # The last number of the name. One with a line break or too many digits stands by itself.
        split = re.fullmatch(r"((?:.*\D)?)(\d{1,15})(\D*)", name)
        # Only numbers with the same number of digits form a range, because `gpu9` and `gpu09` are
        # different nodes.
        if split:
            families[split[1], len(split[2]), split[3]].append(int(split[2]))
        else:
            families[name, 0, ""] = []
    parts = []
    for (prefix, width, suffix), repeated in families.items():
        ranges: list[tuple[int, int]] = []
        numbers = sorted(set(repeated))
        for number in numbers:
            continues = ranges and ranges[-1][1] == number - 1
            first = ranges.pop()[0] if continues else number
            ranges.append((first, number))
        inside = ",".join(
            f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
            for first, last in ranges
        )
        parts.append(f"{prefix}{f'[{inside}]' if len(numbers) > 1 else inside}{suffix}")
    return ",".join(parts)


PART = re.compile(r"([^\[\],]*)(?:\[([\d,\s-]+)\]([^\[\],]*))?")
"""Matches one part of a list of nodes: a name, or ranges such as `gpu[09-11,13]`."""


def expanded(text: str) -> tuple[str, ...]:
    """The names in a list of nodes in Slurm's notation, without duplicates. Raises UsageError if
    the text is not such a list, or if it names more than MOST_NAMES nodes.

    >>> expanded("gpu[09-11,13],login")
    ('gpu09', 'gpu10', 'gpu11', 'gpu13', 'login')
    """
    names: dict[str, None] = {}
    refusal = UsageError(f"{text[:80]!r} is not a list of nodes", hint="write gpu[001-016],login1")
    # A comma inside brackets separates numbers, any other comma separates names.
    for part in re.split(r",(?![^\[]*\])", text):
        nodes = PART.fullmatch(part.strip())
        if nodes is None:
            raise refusal
        before, inside, after = nodes.groups(default="")
        if not inside:
            names[before] = None
        for piece in inside.split(",") if inside else ():
            first, _, last = piece.strip().partition("-")
            try:
                numbers = range(int(first), int(last or first) + 1)
            except ValueError as problem:
                raise refusal from problem
            if not numbers:
                raise refusal
            # All numbers in a range have as many digits as the first one.
            for number in numbers:
                names[f"{before}{number:0{len(first)}d}{after}"] = None
                if len(names) > MOST_NAMES:
                    raise UsageError(f"{text[:80]!r} names more than {MOST_NAMES:,} nodes")
    # Between two consecutive commas there is an empty name.
    names.pop("", None)
    if not names:
        raise refusal
    return tuple(names)
