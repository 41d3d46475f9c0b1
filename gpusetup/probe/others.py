"""Which torch the other interpreters on PATH have: asked of their files, none is started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpusetup.model.machine import Reading
from gpusetup.probe.target import prefix_of, site_packages
from gpusetup.readings.paths import base_name, join, parent
from gpusetup.system.system import System, read_or_none

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
