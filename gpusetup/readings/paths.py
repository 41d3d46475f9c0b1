"""Functions for paths as text, in the notation of the machine that they come from, which may not be
this one.

A path with a backslash or a drive letter is a Windows path, and every other path is a POSIX path. A
path that begins with `/` is always a POSIX path, even if it contains a backslash.
"""

from __future__ import annotations

import re


def separator(path: str) -> str:
    """The character between the folders of a path.

    >>> separator("C:/env"), separator("/my\\\\env"), separator("env\\\\bin")
    ('\\\\', '/', '\\\\')
    """
    is_windows = "\\" in path or re.match(r"[A-Za-z]:", path)
    return "\\" if is_windows and not path.startswith("/") else "/"


def join(first: str, *more: str) -> str:
    """The parts joined to a path, in the notation of the first part.

    >>> join("C:\\\\env", "Lib", "site-packages"), join("/", "proc")
    ('C:\\\\env\\\\Lib\\\\site-packages', '/proc')
    """
    mark = separator(first)
    return mark.join((first.rstrip(mark), *more))


def parent(path: str) -> str:
    r"""The folder that contains a path; the root for a path directly below it, and the bare drive
    on Windows.

    >>> parent("/usr/bin/python3"), parent("/usr"), parent("C:\\env")
    ('/usr/bin', '/', 'C:')
    """
    mark = separator(path)
    return path.rstrip(mark).rpartition(mark)[0] or mark


def base_name(path: str) -> str:
    """The last part of a path."""
    mark = separator(path)
    return path.rstrip(mark).rpartition(mark)[2]


def is_below(path: str, folder: str) -> bool:
    """Whether a path is the folder or lies in it."""
    mark = separator(folder)
    return path == folder or path.startswith(folder.rstrip(mark) + mark)
