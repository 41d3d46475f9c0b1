"""The target interpreter's own facts, and the other interpreters on PATH."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from gpusetup.model.machine import Python, Reading, Snapshot
from gpusetup.probe.target import Target, prefix_of, site_packages
from gpusetup.readings.paths import base_name, join, parent
from gpusetup.system.system import System, is_writable, list_or_empty, read_or_none

_INTERPRETER = re.compile(r"python(?:3\.\d+t?|\.exe)")
"""Plain `python` and `python3` are links to another of their folder."""
MOST_OTHERS = 16
_SKIPPED = r"/shims/?$|^/mnt/[a-z]/"
"""pyenv's stand-ins, and under WSL the folders of Windows: slow to list, and not for Linux."""


SAME = (
    *("version", "prefix", "manager", "chosen_by", "bits", "free_threaded", "externally_managed"),
    *("has_pip", "site_packages"),
)
"""Fields of a target that are the snapshot's."""


def read_python(system: System, target: Target | None) -> Snapshot:
    """The facts of the target; without one, the interpreters on PATH only."""
    found = tuple(islice(dict.fromkeys(others(system, target)), MOST_OTHERS))
    if target is None:
        return Snapshot(python=Python(others=found))
    python = Python(
        executable=target.python,
        site_writable=is_writable(system, target.site_packages),
        others=found,
        **{name: getattr(target, name) for name in SAME},
    )
    reading = Reading(
        subject="python", source=target.chosen_by, value=target.version, problem=target.problem
    )
    return Snapshot(python=python, readings=(reading,))


def others(system: System, target: Target | None) -> Iterable[str]:
    """The interpreters on PATH that are not the target's, each once, in PATH's order."""
    mark = ";" if system.family == "windows" else ":"
    own = parent(target.python) if target else None
    for folder in dict.fromkeys(system.environ().get("PATH", "").split(mark)):
        if not folder or folder == own or re.search(_SKIPPED, folder):
            continue
        names = list_or_empty(system, folder)
        yield from (join(folder, n) for n in names if _INTERPRETER.fullmatch(n.lower()))


_VERSION = r"(?m)^__version__ = '([\w.+-]{1,60})'"


def read_other_torches(system: System, interpreters: Iterable[str]) -> Iterator[Reading]:
    """A reading for each interpreter in whose own folders a torch lies."""
    for path in interpreters:
        texts = (
            read_or_none(system, join(one, "torch", "version.py")) for one in _sites(system, path)
        )
        if said := next((hit for text in texts if (hit := re.search(_VERSION, text or ""))), None):
            yield Reading(subject="python.others", source=path, value=f"torch {said[1]}")


def _sites(system: System, interpreter: str) -> Iterator[str]:
    """Its folders of packages, and those that Debian has below `local` or beside."""
    prefix = prefix_of(interpreter)
    for root in (prefix, join(prefix, "local")):
        if site := site_packages(system, root, base_name(interpreter)):
            yield from (site, join(parent(site), "dist-packages"))
