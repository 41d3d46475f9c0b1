"""An argument list as one types it: quoted for the shell of the system it is meant for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

NEEDS_QUOTES = frozenset(' \t&|<>^"')
"""What cmd and PowerShell would not take as part of a word."""


def shell_line(argv: Sequence[str], family: str | None) -> str:
    """A command as the system's own shell takes it.

    >>> shell_line(("C:/my py/python.exe", "-m", "pip"), "windows")
    '"C:/my py/python.exe" -m pip'
    >>> shell_line(("/my py/python", "-m", "pip"), "linux")
    "'/my py/python' -m pip"
    """
    if family == "windows":
        return " ".join(_for_windows(word) for word in argv)
    return " ".join(_for_posix(word) for word in argv)


ACTS_IN_DOUBLE_QUOTES = frozenset('"$`\\!')


def _for_posix(word: str) -> str:
    """
    >>> print(_for_posix("print('a')"))
    "print('a')"
    """
    if "'" in word and not ACTS_IN_DOUBLE_QUOTES & set(word):
        return f'"{word}"'
    return shlex.quote(word)


def _for_windows(word: str) -> str:
    """
    >>> _for_windows('torch>=2.6')
    '"torch>=2.6"'
    """
    return word if word and not NEEDS_QUOTES & set(word) else '"' + word.replace('"', '\\"') + '"'
