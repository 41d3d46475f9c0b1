"""`gpusetup resolve --variants`: the wheel variants that an index offers, beside the build."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.install.variant import SHELF
from gpusetup.model.documents import OfferedVariant
from gpusetup.render.language import plain

if TYPE_CHECKING:
    from gpusetup.model.machine import Snapshot
    from gpusetup.render.console import Console


def offered_variants(
    root: str, names: Sequence[str], snapshot: Snapshot, out: Console
) -> tuple[OfferedVariant, ...]:
    """Of each project the variants of its newest version that has some: those that fit first."""
    from gpusetup.install.credentials import without_credentials
    from gpusetup.install.fetching.fetch import Fetcher
    from gpusetup.install.fetching.variant_pages import offered
    from gpusetup.install.joint.places import users_places
    from gpusetup.install.settings.environment import logins

    places = (f"{root.rstrip('/')}/{SHELF}", *users_places(os.environ, Path.home()).indexes)
    fetcher = Fetcher(lambda _: None, logins(os.environ, Path.home()))
    found: list[OfferedVariant] = []
    for index in dict.fromkeys(places):
        shown = without_credentials(index)
        out.talk(f"asked for wheel variants: {shown}")
        for name in names:
            version, rows = offered(fetcher.text, index, name, snapshot)
            found += [
                OfferedVariant(
                    name=name,
                    version=version,
                    label=row.label,
                    index_url=shown,
                    file=row.filename,
                    url=without_credentials(row.url),
                    sha256=row.sha256,
                    properties=row.properties,
                    reason=row.reason,
                )
                for row in rows
            ]
    return tuple(found)


def variants_text(rows: Sequence[OfferedVariant]) -> str:
    """What is appended to the answer, a line for each."""
    return plain("\n".join(_lines(rows)) + "\n")


def _lines(rows: Sequence[OfferedVariant]) -> Iterator[str]:
    yield ""
    if not rows:
        yield "Wheel variants: none is offered by the indexes that were asked"
        return
    yield "Wheel variants (unproven; the build above is what `gpusetup install` takes):"
    for row in rows:
        said = "fits" if row.reason is None else f"no: {row.reason}"
        yield f"  {row.name} {row.version} {row.label}: {said}"
        if row.reason is None:
            yield f"    {row.url}"
    yield "  `gpusetup install --variant LABEL` takes one; released pip and uv pass over such files"
