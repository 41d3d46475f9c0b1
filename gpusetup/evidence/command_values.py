"""Checks values before they are put into a command: each must look like what it should be.

Quoting keeps a value from acting in the shell. These checks keep it from acting on the program: an
option (`--index-url=…`) is no name, a control code belongs in no path, a sentence is no version.

>>> is_a_name("flash-attn"), is_a_name("--index-url=x"), is_a_name("a b")
(True, False, False)
>>> is_a_version("2.5.1+cu124"), is_a_version("580.95.05"), is_a_version("x; rm -rf ~")
(True, True, False)
>>> is_a_kernel("6.17.0-8-generic"), is_a_kernel("6.17 $(x)")
(True, False)
>>> is_an_identifier("MIG-41b-7"), is_an_identifier("0000:01:00.0"), is_an_identifier("-i")
(True, True, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def _matcher(pattern: str, most_letters: int) -> Callable[[str], bool]:
    """A check for texts of a form and of limited length."""

    def matches(text: str) -> bool:
        # A longer text is nobody's name, and patterns take long for it.
        if len(text) > most_letters:
            return False
        return re.fullmatch(pattern, text) is not None

    return matches


is_a_name = _matcher(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", 100)
"""A distribution's name, by PEP 508."""
is_a_version = _matcher(r"[0-9][A-Za-z0-9.+!_-]*", 60)
"""A version, with its local label."""
is_a_kernel = _matcher(r"[0-9][A-Za-z0-9._+~-]*", 80)
"""What `uname -r` prints."""
is_an_identifier = _matcher(r"[A-Za-z0-9][A-Za-z0-9:._/@-]*", 120)
"""A UUID, a bus address, an interface, an image: one word."""


def is_a_path(text: str) -> bool:
    """Whether a text is a readable path: printable, not an option, without quotes, not too long.

    >>> is_a_path("/opt/my env/bin/python"), is_a_path("-c"), is_a_path("C:/a\\"b"), is_a_path("")
    (True, False, False, False)
    """
    if not 0 < len(text) <= 500:
        return False
    acting_letters = set(text) & set('"`$|<>;&*?!')
    if acting_letters or not text.isprintable():
        return False
    # An option, or a word that zsh expands.
    return not text.startswith(("-", "="))


def exactly(pairs: Iterable[tuple[str | None, str | None]]) -> tuple[str, ...]:
    """Exact requirements from those pairs that are a valid name and version.

    >>> exactly((("numpy", "2.1.0"), ("--pre", "1"), ("x", None)))
    ('numpy==2.1.0',)
    """
    requirements = []
    for name, version in pairs:
        if name and version and is_a_name(name) and is_a_version(version):
            requirements.append(f"{name}=={version}")
    return tuple(requirements)
