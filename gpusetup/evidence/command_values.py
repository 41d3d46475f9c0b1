"""Checks values before they are put into a command: each must look like the kind of value that it
should be.

Quoting protects the shell from a value. These checks protect the program that is called: an option
(`--index-url=…`) is not a name, a control code does not belong in a path, and a sentence is not a
version.

>>> is_a_version("2.5.1+cu124"), is_a_version("580.95.05"), is_a_version("x; rm -rf ~")
(True, True, False)
>>> is_an_identifier("MIG-41b-7"), is_an_identifier("0000:01:00.0"), is_an_identifier("-i")
(True, True, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable


def _matcher(pattern: str, most_letters: int) -> Callable[[str], bool]:
    """A function that checks a text's length and form. The length comes first, because matching a
    long text would take time."""
    return lambda text: len(text) <= most_letters and re.fullmatch(pattern, text) is not None


is_a_version = _matcher(r"[0-9][A-Za-z0-9.+!_-]*", 60)
"""Whether a text is a version, with or without a local label."""
is_an_identifier = _matcher(r"[A-Za-z0-9][A-Za-z0-9:._/@-]*", 120)
"""Whether a text may be a UUID, a bus address, or the name of a network interface or image."""


def is_a_path(text: str) -> bool:
    """Whether a text is a plausible path: printable, not an option, without quotes, and at most 500
    characters long.

    >>> is_a_path("/opt/my env/bin/python"), is_a_path("-c"), is_a_path("C:/a\\"b"), is_a_path("")
    (True, False, False, False)
    """
    # `-` begins an option, and zsh expands a word that begins with `=`. The other signs mean
    # something to one of the shells, and real paths hardly ever have them.
    if not 0 < len(text) <= 500 or text.startswith(("-", "=")):
        return False
    return text.isprintable() and not set(text) & set('"`$|<>;&*?!')
