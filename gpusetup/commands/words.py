"""Reads words of the command line that are not package names: scripts, and the index."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.errors import UsageError
from gpusetup.model.logins import without_logins
from gpusetup.model.shell import own_word

# --- scripts --------------------------------------------------------------------------------------

SUFFIXES = (".py", ".pyw")


def is_script(word: str) -> bool:
    """Whether a word is an existing Python script, and not a package such as `discord.py`."""
    return word.lower().endswith(SUFFIXES) and Path(word).is_file()


def refuse_scripts(words: Iterable[str]) -> None:
    """Raise UsageError for an existing script, because an index may have a package of that name."""
    for word in filter(is_script, words):
        raise UsageError(
            f"{word!r} is a script in this folder, not a package",
            hint=f"`gpusetup install --project {own_word(word)}` prints the command that adds "
            "torch to it",
        )


# --- the index ------------------------------------------------------------------------------------

URL = re.compile(r"https?://([^/@\s]*@)?(\[[\da-fA-F:.]+\]|[^\[\]/\s]+)(/\S*)?")
"""A URL, perhaps with a login, an IPv6 address or a port: `https://me:pw@[::1]:8080/whl`."""


def index_root_of(named: str | None) -> str:
    """The root URL of torch's indexes, from `--index`, GPUSETUP_INDEX or the default, in this
    order. Raises UsageError if it is not such a URL.

    >>> index_root_of("https://mirror.example/whl/")
    'https://mirror.example/whl'
    """
    root = named or os.environ.get("GPUSETUP_INDEX") or INDEX_ROOT
    # A password must not appear in an error message.
    public = without_logins(root)
    if not URL.fullmatch(root):
        raise UsageError(
            f"`--index {public}` is not an http or https URL",
            hint="use the part before the backend, e.g. `https://download.pytorch.org/whl`",
        )
    # `https://download.pytorch.org/whl/cu124`, with or without `/torch`.
    if with_backend := re.fullmatch(rf"(.+?)/({LABEL})(/torch\w*)?/*", public, re.IGNORECASE):
        index, backend = with_backend[1], with_backend[2].lower()
        raise UsageError(
            f"`--index {public}` must not include the backend",
            hint=f"did you mean `--index {index} --backend {backend}`?",
        )
    return root.rstrip("/")
