"""A pattern that is tried only where a text has the letters that each of its matches has.

Python's `re` tries a pattern at every character, and slowly where the case does not count. Letters
are found ten times as quickly, so a pattern is compiled when its letters are there for the first
time, and tried where they stand. What is found is what `re` finds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from gpusetup.model.plans import Near, Plan, plan_of

ODD = ("\u0131", "\u017f", "\u0130")
"""Letters that `re` takes for an ASCII one where the case does not count, and `lower` does not."""
SHORT = 160
"""Up to this length `re` alone is as quick."""
_ANY_CASE = re.compile(r"\(\?[amsx]*i")
"""How a pattern begins that says itself that the case does not count."""


class Sought:
    """As a compiled pattern, but that it is always tried on a whole text.

    >>> [found.group() for found in Sought(r"Xid \\d+").finditer("Xid 79, Xid, xid 31, Xid 8")]
    ['Xid 79', 'Xid 8']
    >>> Sought("xid (?P<number>[0-9]+)", re.IGNORECASE).search("NVRM: Xid 79")["number"]
    '79'
    """

    if TYPE_CHECKING:
        sub: Callable[..., str]
        split: Callable[..., list[Any]]

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern, self.flags = pattern, flags
        self.ignores_case = bool(flags & re.IGNORECASE or _ANY_CASE.match(pattern))

    def __getattr__(self, name: str) -> Any:
        """What needs the whole pattern: kept, so that it is as quick as the pattern's own."""
        value = getattr(self.compiled, name)
        setattr(self, name, value)
        return value

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self.flags)

    @cached_property
    def plan(self) -> Plan:
        if self.flags & re.VERBOSE:
            return Plan()
        return plan_of(self.pattern, self.ignores_case)

    def match(self, text: str, *between: int) -> re.Match[str] | None:
        """At the start. Once it is compiled the pattern's own method stands in its place."""
        if not self._may_be_in(text):
            return None
        self.__dict__["match"] = self.compiled.match
        return self.match(text, *between)

    def fullmatch(self, text: str, *between: int) -> re.Match[str] | None:
        if not self._may_be_in(text):
            return None
        self.__dict__["fullmatch"] = self.compiled.fullmatch
        return self.fullmatch(text, *between)

    def search(self, text: str, low: str | None = None) -> re.Match[str] | None:
        """The first match. `low`: the text in lower case, character by character, where known."""
        if "compiled" in self.__dict__ and (len(text) <= SHORT or len(self.plan.near) > 1):
            return None if self._lacks(text, low) else self.compiled.search(text)
        for found in self.finditer(text, low):
            return found
        return None

    def _lacks(self, text: str, low: str | None) -> bool:
        """Whether a long text has not the letters of each match, where that is told at once."""
        if len(text) <= SHORT:
            return False
        known = text if not self.ignores_case else low if text.isascii() else None
        return known is not None and not _are_in(known, *self.plan[:2])

    def _may_be_in(self, text: str) -> bool:
        every, some, _, _ = self.plan
        if self.ignores_case:
            odd = not text.isascii() and any(letter in text for letter in ODD)
            return odd or _are_in(text.lower(), every, some)
        return _are_in(text, every, some)

    def findall(self, text: str, low: str | None = None) -> list[Any]:
        found = list(self.finditer(text, low))
        if found and self.compiled.groups > 1:
            return [one.groups("") for one in found]
        return [one.group(self.compiled.groups) or "" for one in found]

    def finditer(self, text: str, low: str | None = None) -> Iterable[re.Match[str]]:
        every, some, near, beside = self.plan
        if not self.ignores_case:
            low = text
        elif not text.isascii() and any(letter in text for letter in ODD):
            return self.compiled.finditer(text)
        elif low is None:
            low = lowered(text)
        if not _are_in(low, every, some):
            return ()
        if not near:
            return self.compiled.finditer(text)
        if beside and "compiled" not in self.__dict__ and not _may_match(low, near, beside):
            return ()
        return _matches(self.compiled, text, _starts(low, near))


def _are_in(low: str, every: tuple[str, ...], some: tuple[tuple[str, ...], ...]) -> bool:
    for letters in every:
        if letters not in low:
            return False
    for several in some:
        for letters in several:
            if letters in low:
                break
        else:
            return False
    return True


def _may_match(low: str, near: Near, beside: tuple[Near, ...]) -> bool:
    """Whether at some place of `near` all letters beside it stand where a match has them: to look
    for them is quicker than to compile a pattern."""
    return any(all(_stands(low, start, need) for need in beside) for start in _starts(low, near))


def _stands(low: str, start: int, need: Near) -> bool:
    for letters, least, most in need:
        if low.find(letters, start + least, start + most + len(letters)) >= 0:
            return True
    return False


def lowered(text: str) -> str:
    """In lower case, character by character, so that places stay what they are."""
    low = text.lower()
    return low if len(low) == len(text) else "".join([_lower(char) for char in text])


def _lower(char: str) -> str:
    small = char.lower()
    return small if len(small) == 1 else char


def _starts(low: str, near: Near) -> Iterable[int]:
    """Where a match may begin, in order."""
    if len(near) == 1 and near[0][1] == near[0][2]:
        return _places(low, *near[0][:2])
    starts: set[int] = set()
    for letters, least, most in near:
        at = low.find(letters)
        while at >= 0:
            starts.update(range(max(at - most, 0), at - least + 1))
            at = low.find(letters, at + 1)
    return sorted(starts)


def _places(low: str, letters: str, behind: int) -> Iterator[int]:
    """So many characters before each place of some letters."""
    at = low.find(letters, behind)
    while at >= 0:
        yield at - behind
        at = low.find(letters, at + 1)


def _matches(
    compiled: re.Pattern[str], text: str, starts: Iterable[int]
) -> Iterator[re.Match[str]]:
    end = 0
    match = compiled.match
    for start in starts:
        if start >= end and (found := match(text, start)):
            yield found
            end = found.end()


@cache
def in_any_case(pattern: str) -> Sought:
    """The pattern whose letters' case does not count, made once."""
    return Sought(pattern, re.IGNORECASE)
