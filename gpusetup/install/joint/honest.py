"""Whether a wheel of a folder holds what its name says. uv believes the name of a file there; of an
index it refuses METADATA of another name itself."""

from __future__ import annotations

from collections.abc import Container, Iterable

from packaging.utils import canonicalize_name

from gpusetup.errors import Unreached
from gpusetup.model.versions import parsed


def require_honest(wheels: Iterable[tuple[str, str, str]], believed: Container[str]) -> None:
    """Unreached where the METADATA in a wheel has another name or version. `wheels`: name, version
    and address (`file:`) of each; `believed`: files that are ours."""
    for name, version, url in wheels:
        file = url.rpartition("/")[2]
        if file not in believed:
            _require(name, version, url, file)


def _require(name: str, version: str, url: str, file: str) -> None:
    from gpusetup.install.complaints import BROKEN_HINT
    from gpusetup.install.fetching.file_url import local_path
    from gpusetup.install.fetching.ranged import UNREADABLE, metadata_in

    try:
        said = what_is_said(metadata_in(local_path(url)))
    except UNREADABLE:
        return  # uv has read it, and installing it reads it again
    for what, own, other in (("name", name, said[0]), ("version", version, said[1])):
        if not _same(what, own, other):
            raise Unreached(f"{file}: its METADATA has the {what} {other}", hint=BROKEN_HINT)


def _same(what: str, own: str, other: str) -> bool:
    """Whether the two are one; METADATA may add a label to a version, as uv has it too.

    >>> _same("name", "a-b", "A_B"), _same("version", "1.0", "1.0.0+cpu")
    (True, True)
    >>> _same("version", "1.0", "2.0"), _same("version", "1.0+cpu", "1.0")
    (False, False)
    """
    if what == "name":
        return canonicalize_name(own) == canonicalize_name(other)
    return parsed(own) in (parsed(other), parsed(other.partition("+")[0]))


def what_is_said(metadata: str) -> tuple[str, str]:
    """Name and version.

    >>> what_is_said("Metadata-Version: 2.1\\nName: a\\nVersion: 1.0\\n\\nName: b\\n")
    ('a', '1.0')
    """
    from email.parser import HeaderParser

    heads = HeaderParser().parsestr(metadata)
    return str(heads.get("Name", "")), str(heads.get("Version", ""))
