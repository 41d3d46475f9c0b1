"""A long list of patterns; only those whose letters occur in a text are tried.

One pattern of a hundred alternatives tries each of them at each letter of a text. Most forms have
letters that most texts lack: these forms are left out for the whole text at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from gpusetup.messages.row import letters_of
from gpusetup.model.patterns import in_any_case, lowered

SHORTEST = 2
"""Letters that a form must have for the text to be asked for them: one Latin letter is everywhere."""


class Alternatives:
    """The alternatives of a pattern, ignoring case, each with letters that a match must contain.

    >>> forms = Alternatives(r"\\bhangs?\\b|\\bcrash\\w*|(?<!\\d)0 ?%")
    >>> [form.pattern for form in forms.possible_in("it crashed")]
    ['\\\\bcrash\\\\w*', '(?<!\\\\d)0 ?%']
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @cached_property
    def forms(self) -> tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]:
        """Letters, of which a text with the form has one, and the form; no letters: always tried."""
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
        """The forms that a text may have, by its letters (in lower case)."""
        return tuple(
            form
            for letters, form in self.forms
            if not letters or any(needed in low for needed in letters)
        )

    def last_in(self, text: str) -> re.Match[str] | None:
        """The match that begins last in a text."""
        last: re.Match[str] | None = None
        for form in self.possible_in(lowered(text)):
            for match in form.finditer(text):
                if last is None or match.start() > last.start():
                    last = match
        return last

    def search(self, line: str) -> re.Match[str] | None:
        """The first of the forms, in their order, that a line has."""
        for form in self.possible_in(lowered(line)):
            match = form.search(line)
            if match:
                return match
        return None


def letters_needed_by(form: str) -> tuple[str, ...]:
    """Letters of which each text with the form has one; none if the form has no telling ones.

    >>> letters_needed_by(r"\\bit (?:drops?|falls?)\\b"), letters_needed_by(r"\\d ?%")
    (('drop', 'fall'), ())
    """
    possible: list[tuple[str, ...]] = []
    outside = letters_of(form)
    if all(map(_tells, outside)):
        possible.append(outside)
    # Of a group that must be there, one alternative is there.
    for group in groups_that_must_be(form):
        of_each = [letters_needed_by(inner) for inner in alternatives_of(group)]
        if all(of_each):
            possible.append(tuple(letters for inner in of_each for letters in inner))
    # The longer the letters, the fewer texts have them.
    return max(possible, key=lambda letters: min(map(len, letters)), default=())


def groups_that_must_be(form: str) -> Iterator[str]:
    r"""The insides of the outermost groups of a form, without optional ones and looks around.

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
    """Whether these letters are rare enough to select texts; in Chinese, Japanese and Korean a
    single one is."""
    bare = letters.strip()
    return len(bare) >= SHORTEST or (bool(bare) and not bare.isascii())


def has_any(forms: Iterable[re.Pattern[str]], line: str) -> bool:
    """Whether a line has one of the forms."""
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
"""What counts when a pattern is divided: an escaped sign and a class of letters are passed over."""
