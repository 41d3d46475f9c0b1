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
    found = ((path, torch_of(system, path)) for path in interpreters)
    return tuple(
        Reading(subject="python.others", source=path, value=f"torch {version}")
        for path, version in found
        if version
    )


def torch_of(system: System, interpreter: str) -> str | None:
    """The version of the torch in an interpreter's site-packages; None where there is none."""
    for folder in _site_folders(system, interpreter):
        text = read_or_none(system, join(folder, "torch", "version.py"))
        if text and (said := _VERSION.search(text)):
            return said.group(1)
    return None


def _site_folders(system: System, interpreter: str) -> Iterator[str]:
    home = parent(interpreter)
    if system.family == "windows":
        prefix = parent(home) if base_name(home).lower() == "scripts" else home
        yield join(prefix, "Lib", "site-packages")
        return
    prefix = parent(home)
    named = base_name(interpreter)
    for root in (prefix, f"{prefix}/local") if prefix == "/usr" else (prefix,):
        folders = [n for n in list_or_empty(system, join(root, "lib")) if _FOLDER.fullmatch(n)]
        # `python3` alone does not say which of several it is.
        mine = [n for n in folders if n == named] or (folders if len(folders) == 1 else [])
        for folder in mine:
            yield join(root, "lib", folder, "site-packages")
            yield join(root, "lib", folder, "dist-packages")
