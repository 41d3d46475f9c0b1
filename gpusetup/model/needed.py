"""What every match of a pattern holds, read from the pattern itself without compiling it.

Of a pattern's parts the plain letters are kept, with how far from the start of a match they stand.
Of a pattern in a form that is not known here (conditions, flags inside) nothing is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

ENDLESS = 1 << 20
"""A distance that has no bound."""
LONG = 10
"""Letters beyond these make a pattern hardly rarer."""
NARROW = 8
"""Letters are at a known place where it is known to fewer characters than these."""
COMMON = frozenset(
    {"torch", "pytorch", "cuda", "nvidia", "driver", "python", "version", "error", "gpu", "gpus"}
    | {"device", "available", "install", "installed", "not", "the", "is", "with", "for", "failed"}
)
"""Words that most texts about GPUs have."""


class Place(NamedTuple):
    """Letters, and how far behind the start of a match they stand."""

    letters: str
    least: int
    most: int


Need = tuple[Place, ...]
"""Every match has the letters of one of these."""
Part = tuple[int, int, tuple[Need, ...]]
"""Least and most characters of a part of a pattern, and what all its matches have."""


def needs_of(pattern: str, *, ignore_case: bool) -> tuple[Need, ...]:
    """The rarest first; () where nothing is known. In lower case where the case does not count.

    >>> found = needs_of("a{2}(?:Xid|NVRM) x?", ignore_case=True)
    >>> [[place.letters for place in need] for need in found]
    [['xid', 'nvrm'], ['a'], [' ']]
    >>> needs_of(r"\\bno (?=x)kernel", ignore_case=False)[0]
    (Place(letters='no kernel', least=0, most=0),)
    """
    inside = flags_in(pattern)
    body = pattern[len(f"(?{inside})") :] if inside else pattern
    if "x" in inside and "#" in body:
        return ()
    try:
        tokens = iter([*_tokens(body, verbose="x" in inside, lower=ignore_case or "i" in inside)])
        needs = _alternatives(tokens)[2]
    except _NotKnown:
        return ()
    return () if next(tokens, None) else tuple(sorted(needs, key=_worth, reverse=True))


def flags_in(pattern: str) -> str:
    """The letters of the flags that a pattern begins with.

    >>> flags_in("(?si)xid"), flags_in("(?:xid)")
    ('si', '')
    """
    found = _FLAGS.match(pattern)
    return found.group(1) if found else ""


def _worth(need: Need) -> float:
    """How much a need leaves out: long and rare letters, few of them, at a known place."""
    worth = LONG - 0.7 * (len(need) - 1)
    for letters, _, _ in need:
        worth = min(worth, len(letters) * (0.3 if letters.strip(" :.=_-()") in COMMON else 1))
    spread = _spread(need)
    return worth - (0 if spread < NARROW else 1 if spread < 100 else 3)


# --- the signs of a pattern -----------------------------------------------------------------------


class _NotKnown(Exception):
    """A pattern of a form that is not read here."""


_FLAGS = re.compile(r"\(\?([aimsx]+)\)")
_SIGN = re.compile(
    r"([^\\\[\](){}.*+?|^$]+)"
    r"|\\([^\w]|[ntrfva])"
    r"|((?:[*+?]|\{(?:\d+(?:,\d*)?|,\d*)\})\??)"
    r"|(\[\^?\]?[^\]\\]*(?:\\.[^\]\\]*)*\]|\.|\\[dDwWsS]|\\x..|\\u.{4}|\\U.{8})"
    r"|(\\[bBAZ]|[\^$])"
    r"|(\(\?(?:<?[=!]))"
    r"|(\((?:\?(?:P<\w+>|:)|(?!\?)))"
    r"|(\|)|(\))|(\(\?P=\w+\)|\\[1-9](?!\d))|([\]{}])",
    re.DOTALL,
)
_RUN, _ESCAPED, _COUNT, _ONE, _NOWHERE, _LOOK, _OPEN, _OR, _CLOSE, _AGAIN, _BRACE = range(1, 12)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_PASSED_OVER = re.compile(r"[ \t\n\r\v\f]+")
"""Of all white space these alone are nothing in a verbose pattern."""
Token = tuple[int, str]


def _tokens(pattern: str, *, verbose: bool, lower: bool) -> Iterator[Token]:
    at = 0
    for found in _SIGN.finditer(pattern):
        if found.start() != at:
            raise _NotKnown
        at = found.end()
        kind = found.lastindex or 0
        text = found.group(kind)
        if kind == _ESCAPED:
            kind, text = _RUN, _CONTROLS.get(text, text)
        elif kind == _BRACE:
            kind = _RUN
        elif kind == _RUN and verbose:
            text = _PASSED_OVER.sub("", text)
        if text and kind == _RUN:
            yield _RUN, _lowered(text) if lower else text
        elif text:
            yield kind, text
    if at != len(pattern):
        raise _NotKnown


def _lowered(text: str) -> str:
    low = text.lower()
    if len(low) != len(text):
        raise _NotKnown
    return low


def _often(count: str) -> tuple[int, int]:
    """
    >>> _often("{2,}?"), _often("?"), _often("+?"), _often("{3}"), _often("{,4}"), _often("{,}")
    ((2, 1048576), (0, 1), (1, 1048576), (3, 3), (0, 4), (0, 1048576))
    """
    if count[0] != "{":
        return {"*": (0, ENDLESS), "+": (1, ENDLESS), "?": (0, 1)}[count[0]]
    least, comma, most = count[1 : count.index("}")].partition(",")
    return int(least or 0), int(most or ENDLESS) if comma else int(least)


# --- what they come to ----------------------------------------------------------------------------


def _alternatives(tokens: Iterator[Token]) -> Part:
    """Up to the bracket that ends them."""
    parts = [_Sequence()]
    for kind, text in tokens:
        if kind == _CLOSE:
            break
        if kind == _OR:
            parts.append(_Sequence())
        elif kind in (_LOOK, _OPEN):
            part = _alternatives(tokens)
            parts[-1].add_part(part if kind == _OPEN else (0, 0, ()))
        else:
            parts[-1].add(kind, text)
    wholes = [part.whole() for part in parts]
    return wholes[0] if len(wholes) == 1 else _either(wholes)


def _either(parts: list[Part]) -> Part:
    """What one of several has: the rarest letters of each, and the rarest at a known place.

    >>> needs = needs_of(r"up.*compiled|torch.*overwritten", ignore_case=True)
    >>> [[place.letters for place in need] for need in needs]
    [['compiled', 'overwritten'], ['up', 'torch']]
    """
    needs = [part[2] for part in parts]
    placed = [tuple([need for need in each if _spread(need) < NARROW]) for each in needs]
    wholes = [_of_each(several) for several in (needs, placed) if all(several)]
    best = tuple(dict.fromkeys(wholes))
    return min([part[0] for part in parts]), max([part[1] for part in parts]), best


def _of_each(parts: list[tuple[Need, ...]]) -> Need:
    best = [max(needs, key=_worth) for needs in parts]
    return tuple(dict.fromkeys([place for need in best for place in need]))


def _spread(need: Need) -> int:
    """To how many characters it is known where its letters stand."""
    return max([most - least for _, least, most in need])


class _Sequence:
    """Parts that stand behind one another. The last one waits for its count."""

    def __init__(self) -> None:
        self.least = self.most = 0
        self.needs: list[Need] = []
        self.run, self.run_least, self.run_most = "", 0, 0
        self.last: Part | None = None
        self.countable = False

    def add(self, kind: int, text: str) -> None:
        if kind == _RUN:
            self.settle()
            if not self.run:
                self.run_least, self.run_most = self.least, self.most
            self.run += text
            self.countable = True
            self.widen(len(text), len(text))
        elif kind == _COUNT:
            self.count(*_often(text))
        elif kind == _NOWHERE:
            self.add_part((0, 0, ()))
        else:
            self.add_part((1, 1, ()) if kind == _ONE else (0, ENDLESS, ()))

    def add_part(self, part: Part) -> None:
        """What only looks around leaves the letters before and behind it together."""
        self.settle()
        self.countable = part[1] > 0
        if self.countable:
            self.close()
            self.last = part

    def count(self, least: int, most: int) -> None:
        if not self.countable:
            raise _NotKnown
        self.countable = False
        if self.last is not None:
            self.settle(least, most)
            return
        letter, self.run = self.run[-1], self.run[:-1]
        self.widen(-1, -1)
        self.close()
        if letter.isascii() and least:
            self.needs.append((Place(letter, self.least, self.most),))
        self.widen(least, most)

    def settle(self, least: int = 1, most: int = 1) -> None:
        """The last part stands so often."""
        if self.last is None:
            return
        (shortest, longest, needs), self.last = self.last, None
        if least:
            self.needs += [tuple([self.moved(one) for one in need]) for need in needs]
        self.widen(shortest * least, min(longest * most, ENDLESS))

    def moved(self, place: Place) -> Place:
        most = min(self.most + place.most, ENDLESS)
        return Place(place.letters, self.least + place.least, most)

    def widen(self, least: int, most: int) -> None:
        self.least += least
        self.most = min(self.most + most, ENDLESS)

    def close(self) -> None:
        """The letters so far are what they are."""
        if not self.run:
            return
        at = 0
        for piece in _NOT_ASCII.split(self.run):
            if piece:
                least, most = self.run_least + at, min(self.run_most + at, ENDLESS)
                self.needs.append((Place(piece, least, most),))
            at += len(piece) + 1
        self.run = ""

    def whole(self) -> Part:
        self.settle()
        self.close()
        return self.least, self.most, tuple(self.needs)


_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
"""Letters whose case is not a simple matter."""
