"""What lies where in a target: its folders, its distributions and their files.

Reads names only; nothing is imported and nothing is changed here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from packaging.utils import canonicalize_name

from gpusetup.model.frozen import Frozen

LIBRARIES = ("site-packages", "dist-packages")
"""Folders that stay if they are empty."""


def real_below(prefix: str, folder: str) -> str:
    """A folder below the prefix by its real name, where a link in the environment leads to it:
    Fedora's and RHEL's Python says `lib64` where compiled packages go, which is a link to `lib`."""
    real, root = os.path.realpath(folder), os.path.realpath(prefix)
    return prefix + real[len(root) :] if real.startswith(root + os.sep) else folder


class Layout(Frozen):
    """The folders that an interpreter installs to, absolute."""

    python: str
    """The interpreter's path, as it is called."""
    version: str
    """`3.11.7`."""
    prefix: str
    purelib: str
    platlib: str
    scripts: str
    data: str
    implementation: str = "cpython"
    free_threaded: bool = False
    externally_managed: str | None = None
    """The marker file that says so, where the target is no environment."""
    ahead: tuple[str, ...] = ()
    """The folders that an import looks in before the libraries: PYTHONPATH's, the user's site."""

    @property
    def libraries(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.purelib, self.platlib)))

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that stay whatever is installed or removed."""
        return (*self.libraries, self.scripts, self.data)


class Distribution(Frozen):
    """An installed distribution: its name, its version and its metadata folder."""

    name: str
    version: str
    info: str


def distributions(layout: Layout) -> tuple[Distribution, ...]:
    """Everything installed in the target's own folders, by the names of the metadata folders."""
    return tuple(one for library in layout.libraries for one in distributions_in(library))


def distributions_in(library: str) -> Iterator[Distribution]:
    """What is installed in one folder."""
    for entry in sorted(_names(library)):
        if match := INFO.fullmatch(entry):
            path = os.path.join(library, entry)
            yield Distribution(name=canonicalize_name(match[1]), version=match[2], info=path)
        elif entry.endswith(".egg-link"):
            name = canonicalize_name(entry.removesuffix(".egg-link"))
            yield Distribution(name=name, version="0", info=os.path.join(library, entry))


INFO = re.compile(r"([^-]+)-(.+?)(?:-py[\d.]+.*)?\.(?:(?:dist|egg)-info|egg)")


def versions(installed: Iterable[Distribution]) -> dict[str, str]:
    """Name -> version of what is installed."""
    return {one.name: one.version for one in installed}


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
