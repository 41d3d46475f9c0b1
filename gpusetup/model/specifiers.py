"""Which versions a text allows, as `packaging` judges it.

Nearly all that is asked is plain (`==2.5.*`, `>=2.6,<2.9`, a release without pre, post or local
part): that is judged here, because to import packaging's parser takes a quarter of a doctor.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpusetup.model.versions import Version, parsed

CLAUSE = r"\s*(==|!=|>=|<=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*"
Clause = tuple[str, tuple[int, ...], bool]


class Versions:
    """The versions that a specifier allows; ValueError where the text is none.

    >>> Versions(">=2.6,<2.9").contains(Version("2.8.0")), str(Versions(">=2.6,<2.9"))
    (True, '<2.9,>=2.6')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._clauses = plain_clauses(text)
        if self._clauses is None:
            self._in_full()

    def contains(self, version: Version) -> bool:
        if self._clauses is None or not version.is_plain:
            return bool(self._in_full().contains(version.in_full))  # type: ignore[attr-defined]
        return all(holds(clause, version.release) for clause in self._clauses)

    def allows(self, text: str) -> bool:
        """The same of a version as it is written.

        >>> Versions(">=2.11.0").allows("2.15.0"), Versions("==2.5.*").allows("2.6.0.dev1")
        (True, False)
        """
        return self.contains(parsed(text))

    def _in_full(self) -> object:
        from packaging.specifiers import SpecifierSet

        return SpecifierSet(self.text)

    def __str__(self) -> str:
        return str(self._in_full())


@lru_cache(maxsize=1024)
def plain_clauses(text: str) -> tuple[Clause, ...] | None:
    """
    >>> plain_clauses("==2.5.*"), plain_clauses("~=2.5")
    ((('==', (2, 5), True),), None)
    """
    found = [re.fullmatch(CLAUSE, part) for part in text.split(",")]
    clauses = tuple((one[1], numbers(one[2]), bool(one[3])) for one in found if one)
    ordered = any(clause[2] and clause[0] not in ("==", "!=") for clause in clauses)
    return None if len(clauses) != len(found) or ordered else clauses


def numbers(text: str) -> tuple[int, ...]:
    """
    >>> numbers("2.10.0")
    (2, 10, 0)
    """
    return tuple(int(part) for part in text.split("."))


def holds(clause: Clause, release: tuple[int, ...]) -> bool:
    """
    >>> holds(("==", (2, 5), True), (2, 5, 1)), holds((">", (2, 5), False), (2, 5, 0))
    (True, False)
    """
    sign, wanted, prefix = clause
    if prefix:
        padded = (*release, *(0,) * (len(wanted) - len(release)))
        return (padded[: len(wanted)] == wanted) is (sign == "==")
    size = max(len(wanted), len(release))
    here, there = ((*one, *(0,) * (size - len(one))) for one in (release, wanted))
    answers = {
        "==": here == there,
        "!=": here != there,
        ">=": here >= there,
        "<=": here <= there,
        "<": here < there,
        ">": here > there,
    }
    return answers[sign]
