"""Names of nodes as schedulers write them: Slurm's lists with ranges."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from gpusetup.errors import UsageError

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""What may stand in a command as it is: a host's name."""
MOST_NAMES = 100_000


def slurm_list(names: Iterable[str]) -> str:
    """Names as Slurm takes them after `--exclude=`, ranges in brackets.

    >>> slurm_list(["gpu09", "gpu10", "gpu11", "gpu13", "login"])
    'gpu[09-11,13],login'
    """
    groups: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    alone: list[str] = []
    for name in names:
        found = re.fullmatch(r"(.*?)(\d{1,15})(\D*)", name)
        if found:
            groups[found[1], len(found[2]), found[3]].append(int(found[2]))
        else:
            alone.append(name)
    parts = [_group(prefix, width, end, found) for (prefix, width, end), found in groups.items()]
    return ",".join((*parts, *alone))


def _group(prefix: str, width: int, end: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}d}{end}"
    inside = ",".join(_range(first, last, width) for first, last in _runs(sorted(set(numbers))))
    return f"{prefix}[{inside}]{end}"


def _range(first: int, last: int, width: int) -> str:
    return f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Numbers without a gap, as first and last.

    >>> list(_runs([1, 2, 3, 7]))
    [(1, 3), (7, 7)]
    """
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def expanded(text: str) -> tuple[str, ...]:
    """The names that such a list stands for.

    >>> expanded("gpu[09-11,13],login")
    ('gpu09', 'gpu10', 'gpu11', 'gpu13', 'login')
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text):
        names += _expanded(part.strip())
        if len(names) > MOST_NAMES:
            raise UsageError(f"{text[:80]!r} stands for more than {MOST_NAMES} nodes")
    unpaired = text.count("[") != text.count("]")
    if not names or unpaired or re.search(r"[\[\]]", "".join(names)):
        raise UsageError(f"{text[:80]!r} is no list of nodes", hint="write gpu[001-016],login1")
    return tuple(dict.fromkeys(names))


def _expanded(part: str) -> list[str]:
    found = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\](.*)", part)
    if not found:
        return [part] if part else []
    inside = [one for piece in found[2].split(",") for one in _numbers(piece.strip())]
    return [f"{found[1]}{one}{rest}" for rest in _expanded(found[3]) or [""] for one in inside]


def _numbers(piece: str) -> list[str]:
    found = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", piece)
    if not found:
        raise UsageError(f"{piece!r} is no range of nodes", hint="write gpu[001-016]")
    first, last = int(found[1]), int(found[2] or found[1])
    if not first <= last < first + MOST_NAMES:
        raise UsageError(f"{piece!r} is no range of nodes", hint="the smaller number comes first")
    return [f"{number:0{len(found[1])}d}" for number in range(first, last + 1)]
