"""The Linux distribution: its name, id, version and related distributions, from os-release(5)."""

from __future__ import annotations

import shlex

from gpusetup.model.frozen import Frozen
from gpusetup.system.system import System, read_or_none

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
"""The paths of os-release, in the order of preference that os-release(5) specifies."""


class OsRelease(Frozen):
    """The distribution according to its os-release; values that the file lacks are None."""

    name: str | None = None
    """The name that the distribution gives itself, such as `Debian GNU/Linux 12 (bookworm)`."""
    id: str | None = None
    """os-release's ID in lower case, such as `ubuntu`, `ol` or `opensuse-leap`."""
    version: str | None = None
    like: tuple[str, ...] = ()
    """os-release's ID_LIKE, the closest relative first: a derived distribution can use their
    packages."""
    source: str = OS_RELEASE[0]
    problem: str | None = None
    """The reason why there is no name."""


def read_distribution(system: System) -> OsRelease:
    """The distribution according to the first os-release that exists."""
    for path in OS_RELEASE:
        text = read_or_none(system, path)
        if text:
            return _parsed(text, path)
    return OsRelease(problem="no os-release file in /etc or /usr/lib")


def _parsed(text: str, source: str) -> OsRelease:
    """The distribution described by an os-release. Its values are quoted as in a shell."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, is_set, value = line.strip().partition("=")
        if not is_set or name.startswith("#"):
            continue
        try:
            values[name] = " ".join(shlex.split(value))
        except ValueError as problem:
            return OsRelease(source=source, problem=f"{source} could not be parsed: {problem}")
    title = values.get("PRETTY_NAME") or values.get("NAME")
    return OsRelease(
        name=title or None,
        id=values.get("ID", "").lower() or None,
        version=values.get("VERSION_ID") or None,
        like=tuple(values.get("ID_LIKE", "").lower().split()),
        source=source,
        problem=None if title else f"{source} names no distribution",
    )
