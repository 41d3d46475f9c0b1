"""The Linux distribution: its name, id, version and related distributions. The only module that
imports `distro`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import distro

from gpusetup.model.frozen import Frozen
from gpusetup.system.system import System, read_or_none

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
"""The paths of os-release, in the order of preference that os-release(5) specifies."""

OLDER_FILES = (
    *("/etc/redhat-release", "/etc/centos-release", "/etc/SuSE-release"),
    *("/etc/debian_version", "/etc/alpine-release", "/etc/gentoo-release", "/etc/arch-release"),
)
"""The release files of systems older than os-release (such as CentOS 6), and Debian's exact point
release, which os-release does not contain."""


class OsRelease(Frozen):
    """The distribution according to its release files; values that they lack are None."""

    name: str | None = None
    """The name that the distribution gives itself, such as `Debian GNU/Linux 12 (bookworm)`."""
    id: str | None = None
    """os-release's ID in lower case, such as `ubuntu`, `ol` or `opensuse-leap`."""
    version: str | None = None
    like: tuple[str, ...] = ()
    """os-release's ID_LIKE, the closest relative first: a derived distribution can use their
    packages."""
    source: str = OS_RELEASE[0]
    """The first release file that exists."""
    problem: str | None = None
    """The reason why there is no name."""


def read_distribution(system: System) -> OsRelease:
    """The distribution according to its release files, which `distro` parses.

    `distro` only reads files below a root folder. The machine may be a recording, so the files are
    read through `system` and written below a temporary folder, which then is that root.
    """
    release_files: dict[str, str] = {}
    for path in (*OS_RELEASE, *OLDER_FILES):
        text = read_or_none(system, path)
        if text:
            release_files[path] = text
    if not release_files:
        return OsRelease(problem="no os-release file in /etc or /usr/lib")
    source = next(iter(release_files))
    try:
        with tempfile.TemporaryDirectory(prefix="gpusetup-") as root:
            write_below(Path(root), release_files)
            return parse_below(root, source)
    # OSError: the system is read-only and has no temporary folder. ValueError: a quote is never
    # closed.
    except (OSError, ValueError) as problem:
        return OsRelease(source=source, problem=f"{source} could not be parsed: {problem}")


def write_below(root: Path, files: dict[str, str]) -> None:
    """Write files, given by absolute paths, below another root folder."""
    for path, text in files.items():
        copy = root / path.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8", errors="replace")


def parse_below(root: str, source: str) -> OsRelease:
    """The distribution described by the release files below a root; `source` is the first of these
    files."""
    linux = distro.LinuxDistribution(
        include_lsb=False, include_uname=False, include_oslevel=False, root_dir=root
    )
    # Use the id as it is in the file, like our tables: `distro.id()` would turn `ol` into `oracle`.
    distribution_id = linux.os_release_attr("id") or linux.id()
    name = linux.name(pretty=True).strip()
    return OsRelease(
        name=name or None,
        id=distribution_id.lower() or None,
        version=linux.version() or None,
        like=tuple(linux.like().lower().split()),
        source=source,
        problem=None if name else f"{source} names no distribution",
    )
