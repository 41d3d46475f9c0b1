"""What may stand in a command: a value that was read is used only if it looks like what it is.

Quoting keeps a value from acting in the shell; here it is kept from acting on the program: no
option (`--index-url=…`) for a name, no control code in a path, no sentence for a version.

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


def _like(pattern: str, most: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= most and bool(re.fullmatch(pattern, text))


is_a_name = _like(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", 100)
"""A distribution's name, by PEP 508."""
is_a_version = _like(r"[0-9][A-Za-z0-9.+!_-]*", 60)
"""A version, with its local label."""
is_a_kernel = _like(r"[0-9][A-Za-z0-9._+~-]*", 80)
"""What `uname -r` prints."""
is_an_identifier = _like(r"[A-Za-z0-9][A-Za-z0-9:._/@-]*", 120)
"""A UUID, a bus address, an interface, an image: one word."""


def is_a_path(text: str) -> bool:
    """A path that can be read aloud: printable, no option, no quote, of a sensible length.

    >>> is_a_path("/opt/my env/bin/python"), is_a_path("-c"), is_a_path("C:/a\\"b"), is_a_path("")
    (True, False, False, False)
    """
    plain = text.isprintable() and not set(text) & set('"`$|<>;&*?!')
    return 0 < len(text) <= 500 and plain and text[0] not in "-="


def exactly(pairs: Iterable[tuple[str | None, str | None]]) -> tuple[str, ...]:
    """Exact requirements of what is a name and a version.

    >>> exactly((("numpy", "2.1.0"), ("--pre", "1"), ("x", None)))
    ('numpy==2.1.0',)
    """
    return tuple(
        f"{name}=={version}"
        for name, version in pairs
        if name and version and is_a_name(name) and is_a_version(version)
    )
