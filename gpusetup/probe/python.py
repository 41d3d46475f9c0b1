"""The target interpreter's own facts, and the other interpreters on PATH."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from gpusetup.model.machine import Python, Reading
from gpusetup.probe.target import Target
from gpusetup.readings.paths import base_name, join, parent
from gpusetup.system.system import System, exists, list_or_empty

_INTERPRETER = re.compile(r"python(3(\.\d+)?t?)?(\.exe)?")
MOST_OTHERS = 16
_SKIPPED = re.compile(r"/shims/?$|^/mnt/[a-z]/")
"""pyenv's stand-ins, and under WSL the folders of Windows: slow to list, and not for Linux."""


def read_python(system: System, target: Target | None) -> tuple[Python, tuple[Reading, ...]]:
    """The facts of the target; without one, the interpreters on PATH only."""
    if target is None:
        found = _first_others(system, None)
        return Python(others=found), ()
    found = _first_others(system, target)
    python = Python(
        version=target.version,
        executable=target.python,
        prefix=target.prefix,
        manager=target.manager,
        chosen_by=target.chosen_by,
        bits=target.bits,
        free_threaded=target.free_threaded,
        externally_managed=externally_managed(system, target),
        has_pip=has_pip(system, target),
        site_packages=target.site_packages,
        site_writable=_writable(system, target.site_packages),
        others=found,
    )
    reading = Reading(
        subject="python", source=target.chosen_by, value=target.version, problem=target.problem
    )
    return python, (reading,)


def externally_managed(system: System, target: Target) -> bool | None:
    """Whether the interpreter forbids installing into it (PEP 668); never so in an environment."""
    if target.prefix != (target.base_prefix or target.prefix):
        return False
    if target.stdlib is None:
        return None
    return exists(system, join(target.stdlib, "EXTERNALLY-MANAGED"))


def has_pip(system: System, target: Target) -> bool | None:
    if not target.path:
        return None
    return any("pip" in list_or_empty(system, folder) for folder in target.path)


def _writable(system: System, folder: str | None) -> bool | None:
    try:
        return system.stat(folder).writable if folder else None
    except OSError:
        return None


def _first_others(system: System, target: Target | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(islice(others(system, target), MOST_OTHERS)))


def others(system: System, target: Target | None) -> Iterable[str]:
    """The interpreters on PATH that are not the target's, each once, in PATH's order."""
    mark = ";" if system.family == "windows" else ":"
    own = parent(target.python) if target else None
    for folder in dict.fromkeys(system.environ().get("PATH", "").split(mark)):
        if folder and folder != own and not _SKIPPED.search(folder):
            yield from _interpreters(system, folder)


def _interpreters(system: System, folder: str) -> Iterable[str]:
    """The interpreters of a folder, without the names that are links to another of them."""
    names = [n for n in list_or_empty(system, folder) if _INTERPRETER.fullmatch(n.lower())]
    return (join(folder, name) for name in names if _link(system, join(folder, name)) not in names)


def _link(system: System, path: str) -> str | None:
    try:
        return base_name(system.link(path))
    except OSError:
        return None
