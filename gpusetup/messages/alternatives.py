"""Long patterns with many alternatives, of which only those that can match a text are tried.

A pattern with a hundred alternatives tries each of them at every position of a text. Most
alternatives need strings that most texts do not contain, so they are ruled out for the whole text
at once. In this module, a form is one of the alternatives, and its letters are strings of which
every match contains one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from gpusetup.messages.row import letters_of
from gpusetup.model.patterns import in_any_case, lowered

SHORTEST = 2
"""Strings shorter than this are not used to rule out a form, because a single Latin letter occurs
in nearly every text."""


class Alternatives:
    """The alternatives of a pattern, ignoring case, each with strings of which a match must contain
    one.

    >>> forms = Alternatives(r"\\bhangs?\\b|\\bcrash\\w*|(?<!\\d)0 ?%")
    >>> [form.pattern for form in forms.possible_in("it crashed")]
    ['\\\\bcrash\\\\w*', '(?<!\\\\d)0 ?%']
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @cached_property
    def forms(self) -> tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]:
        """Each form with its strings. A form is tried only if the text contains one of its strings,
        or if it has none."""
        with_letters = []
        always: list[str] = []
        for form in alternatives_of(self.pattern):
            letters = letters_needed_by(form)
            if letters:
                with_letters.append((letters, in_any_case(form)))
            else:
                always.append(form)
        rest = ((), in_any_case("|".join(always)))
        return (*with_letters, rest) if always else tuple(with_letters)

    def possible_in(self, low: str) -> tuple[re.Pattern[str], ...]:
        """The forms that may match a text, given the text in lower case."""
        return tuple(
            form
            for letters, form in self.forms
            if not letters or any(needed in low for needed in letters)
        )

    def last_in(self, text: str) -> re.Match[str] | None:
        """The match that begins last in a text; None if no form matches."""
        last: re.Match[str] | None = None
        for form in self.possible_in(lowered(text)):
            for match in form.finditer(text):
                if last is None or match.start() > last.start():
                    last = match
        return last

    def search(self, line: str) -> re.Match[str] | None:
        """The match of the first form that matches a line; None if no form matches."""
        for form in self.possible_in(lowered(line)):
            match = form.search(line)
            if match:
                return match
        return None


def letters_needed_by(form: str) -> tuple[str, ...]:
    """Strings of which every match of the form contains one; () if none of its strings is rare
    enough to be useful.

    >>> letters_needed_by(r"\\bit (?:drops?|falls?)\\b"), letters_needed_by(r"\\d ?%")
    (('drop', 'fall'), ())
    """
    possible: list[tuple[str, ...]] = []
    outside = letters_of(form)
    if all(map(_tells, outside)):
        possible.append(outside)
    # If a group is not optional, every match contains one of its alternatives.
    for group in groups_that_must_be(form):
        of_each = [letters_needed_by(inner) for inner in alternatives_of(group)]
        if all(of_each):
            possible.append(tuple(letters for inner in of_each for letters in inner))
    # Longer strings occur in fewer texts, so they rule out more.
    return max(possible, key=lambda letters: min(map(len, letters)), default=())


def groups_that_must_be(form: str) -> Iterator[str]:
    r"""The contents of a form's outermost groups, except optional groups and lookarounds.

    >>> list(groups_that_must_be(r"(?:a|b)(?: (?:c|d))?(?<!e)(?:f(?:g|h)){2}"))
    ['a|b', 'f(?:g|h)']
    """
    depth, begin = 0, 0
    for sign in SIGNS.finditer(form):
        if sign[0] == "(":
            begin = sign.end() if depth == 0 else begin
            depth += 1
        elif sign[0] == ")":
            depth -= 1
            inside = form[begin : sign.start()]
            follows = form[sign.end() : sign.end() + 2]
            is_optional = follows.startswith(("?", "*")) or follows in ("{0", "{,")
            if depth == 0 and inside.startswith("?:") and not is_optional:
                yield inside.removeprefix("?:")


def _tells(letters: str) -> bool:
    """Whether a string is rare enough to rule out texts. A single Chinese, Japanese or Korean
    letter is."""
    bare = letters.strip()
    return len(bare) >= SHORTEST or (bool(bare) and not bare.isascii())


def has_any(forms: Iterable[re.Pattern[str]], line: str) -> bool:
    """Whether one of the forms matches a line."""
    return any(form.search(line) for form in forms)


def alternatives_of(pattern: str) -> Iterator[str]:
    r"""The alternatives on the outermost level of a pattern.

    >>> list(alternatives_of(r"a(?:b|c)|[|]d|\|e"))
    ['a(?:b|c)', '[|]d', '\\|e']
    """
    depth, begin = 0, 0
    for sign in SIGNS.finditer(pattern):
        if sign[0] == "(":
            depth += 1
        elif sign[0] == ")":
            depth -= 1
        elif sign[0] == "|" and depth == 0:
            yield pattern[begin : sign.start()]
            begin = sign.end()
    yield pattern[begin:]


SIGNS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]")
"""The parts of a pattern that matter when it is split: brackets and bars. Escaped characters and
character classes are matched as a whole, so that brackets inside them do not count."""
