"""What the user's index lists of one package: its releases, when they came, and as what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion

from gpusetup.errors import GpuSetupError
from gpusetup.install.fetching.wheels import file_name, parsed_name
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import parsed

Fetcher = Callable[[str], list[dict[str, Any]]]
"""Reads a page of an index."""


class Release(Frozen):
    """One version of a package on an index."""

    version: str
    published: str | None = None
    """`2026-11-02`; None where the index does not tell."""
    has_wheel: bool = False


class Listed(Frozen):
    """A package's page; without releases where no index has it."""

    name: str
    index: str | None = None
    releases: tuple[Release, ...] = ()
    problem: str | None = None
    """What an index answered that is no index page: a log-in, a web page."""

    @property
    def newest(self) -> Release | None:
        """The newest final release; of a package that has none, the newest of all."""
        final = [one for one in self.releases if not parsed(one.version).is_prerelease]
        return max(final or self.releases, key=lambda one: parsed(one.version), default=None)

    def newer_than(self, version: str) -> tuple[str, ...]:
        """The releases after one, as an installer takes them: no trial of a release."""
        own = _base(version)
        later = (one.version for one in self.releases if _base(one.version) > own)
        return tuple(one for one in later if not parsed(one).is_prerelease)

    def published(self, version: str) -> str:
        """When a version came; "an unknown day" where the index gives no dates."""
        own = next((one for one in self.releases if _same(one.version, version)), None)
        return (own.published if own else None) or "an unknown day"

    def days_behind(self, version: str) -> int:
        """How many days before the newest a version came; 0 where it is the newest release (a
        post-release is the same one packed anew), 1 where the index gives no dates."""
        newest = self.newest
        if newest is None or _base(newest.version) <= _base(version):
            return 0
        own = next((one for one in self.releases if _same(one.version, version)), None)
        if own is None or not (own.published and newest.published):
            return 1
        return max(1, (date.fromisoformat(newest.published) - _day(own.published)).days)


def _base(version: str) -> Any:
    return parsed(parsed(version.partition("+")[0]).base_version)


def _same(one: str, other: str) -> bool:
    return parsed(one) == parsed(other.partition("+")[0])


def _day(text: str) -> date:
    return date.fromisoformat(text)


def listed(fetcher: Fetcher, indexes: Iterable[str], name: str) -> Listed:
    """What the first index that has the package lists; nothing where none does.

    An index that does not answer is passed over: uv has its own word on that.
    """
    found = Listed(name=name)
    for index in indexes:
        try:
            rows = fetcher(f"{index.rstrip('/')}/{name}/")
        except GpuSetupError:
            continue
        except ValueError as problem:
            found = Listed(name=name, index=index, problem=str(problem))
            continue
        if rows:
            return Listed(name=name, index=index, releases=_releases(name, rows))
    return found


def is_listed(fetcher: Fetcher, indexes: Iterable[str], name: str) -> bool:
    """Whether an index names a wheel of a package: its page is long, and only looked through."""
    wheel = re.compile(rf"\b{re.escape(name)}-\d[^\s\"<>]{{0,200}}\.whl", re.IGNORECASE)
    for index in indexes:
        try:
            rows = fetcher(f"{index.rstrip('/')}/{name}/")
        except (GpuSetupError, ValueError):
            continue
        if any(wheel.search(str(row.get("url"))) for row in rows):
            return True
    return False


def _releases(name: str, rows: Iterable[Mapping[str, Any]]) -> tuple[Release, ...]:
    found: dict[str, Release] = {}
    for row in rows:
        given = row.get("filename")
        file = given if isinstance(given, str) and given else file_name(str(row.get("url", "")))
        version, is_wheel = version_of(name, file)
        if version is None or row.get("yanked"):
            continue
        before = found.get(version)
        found[version] = Release(
            version=version,
            published=(before.published if before else None) or _published(row),
            has_wheel=is_wheel or bool(before and before.has_wheel),
        )
    return tuple(found.values())


def version_of(name: str, file: str) -> tuple[str | None, bool]:
    """The version that a file is of, and whether it is a wheel.

    >>> version_of("vllm", "vllm-0.33.0.tar.gz"), version_of("vllm", "other-1.0.tar.gz")
    (('0.33.0', False), (None, False))
    """
    if (wheel := parsed_name(file)) is not None:
        return (wheel[1], True) if wheel[0] == canonicalize_name(name) else (None, True)
    try:
        own, version = parse_sdist_filename(file)
    except (InvalidSdistFilename, InvalidVersion, ValueError):
        return None, False
    return (str(version), False) if own == canonicalize_name(name) else (None, False)


def _published(row: Mapping[str, Any]) -> str | None:
    said = row.get("upload-time") or row.get("data-upload-time")
    found = re.match(r"(20\d\d-[01]\d-[0-3]\d)", said) if isinstance(said, str) else None
    try:
        return date.fromisoformat(found[1]).isoformat() if found else None
    except ValueError:
        return None
