"""Which torch the other interpreters on PATH have: asked of their files, none is started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpusetup.model.machine import Reading
from gpusetup.readings.paths import base_name, join, parent
from gpusetup.system.system import System, list_or_empty, read_or_none

_VERSION = re.compile(r"^__version__ = '([\w.+-]{1,60})'", re.M)
_FOLDER = re.compile(r"python3\.\d+t?")


def read_other_torches(system: System, interpreters: Iterable[str]) -> tuple[Reading, ...]:
    """A reading for each interpreter in whose own folders a torch lies."""
    found = []
    for path in interpreters:
        texts = (
            read_or_none(system, join(one, "torch", "version.py")) for one in _sites(system, path)
        )
        said = next((hit for text in texts if (hit := _VERSION.search(text or ""))), None)
        if said:
            value = f"torch {said[1]}"
            found.append(Reading(subject="python.others", source=path, value=value))
    return tuple(found)


def _sites(system: System, interpreter: str) -> Iterator[str]:
    home, named = parent(interpreter), base_name(interpreter)
    if system.family == "windows":
        prefix = parent(home) if base_name(home).lower() == "scripts" else home
        yield join(prefix, "Lib", "site-packages")
        return
    prefix = parent(home)
    for root in (join(prefix, "lib"), join(prefix, "local", "lib")):
        folders = [n for n in list_or_empty(system, root) if _FOLDER.fullmatch(n)]
        # `python3` alone does not say which of several it is.
        for folder in folders:
            if folder == named or (named not in folders and len(folders) == 1):
                yield join(root, folder, "site-packages")
                yield join(root, folder, "dist-packages")
