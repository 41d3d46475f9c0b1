"""The variants of a project's newest version that a page of an index lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.channel import tags_of
from gpusetup.install.fetching.choose import Page
from gpusetup.install.fetching.page import ACCEPT, file_row, rows_of
from gpusetup.install.fetching.variants import (
    Judged,
    Variants,
    judged,
    parse_variants,
    variant_of,
)
from gpusetup.install.fetching.wheels import Wheel, best, parsed_name
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed

JSON = "application/json"


def offered(page: Page, index: str, name: str, machine: Snapshot) -> tuple[str, tuple[Judged, ...]]:
    """The newest version that has variants for this system and Python, and how each is judged;
    ("", ()) where the index has none. Blocked where what came is no page."""
    url = f"{index.rstrip('/')}/{name}/"
    answer = page(url, ACCEPT)
    if answer is None:
        return "", ()
    try:
        files = [row for one in rows_of(*answer) if (row := file_row(answer[0], one))]
    except ValueError as problem:
        raise Blocked(
            f"{without_credentials(url)}: what came is no index page: {problem}",
            hint="nothing was changed",
        ) from problem
    tags = tags_of(machine)
    wheels = [wheel for row in files if (wheel := _variant(row)) and _has_a_tag(wheel, tags)]
    newest = max((parsed(one.version) for one in wheels), default=None)
    if newest is None:
        return "", ()
    found = [one for one in wheels if parsed(one.version) == newest]
    return found[0].version, judged(found, _said(page, files, found[0]), machine)


def _variant(row: Mapping[str, Any]) -> Wheel | None:
    named = variant_of(row["filename"])
    if named is None:
        return None
    project = parsed_name(named[0])
    assert project is not None, "its name was parsed before"
    return Wheel(name=project[0], version=project[1], **row)


def _has_a_tag(wheel: Wheel, tags: Sequence[str]) -> bool:
    named = variant_of(wheel.filename)
    return named is not None and best((replace(wheel, filename=named[0]),), None, tags) is not None


def _said(page: Page, files: Sequence[Mapping[str, Any]], wheel: Wheel) -> Variants | None:
    """The file of a version; None where there is none that can be read."""
    wanted = f"{wheel.name.replace('-', '_')}-{wheel.version}-variants.json"
    url = next((row["url"] for row in files if row["filename"] == wanted), None)
    answer = page(url, JSON) if url else None
    if answer is None:
        return None
    try:
        return parse_variants(answer[2])
    except ValueError:
        return None
