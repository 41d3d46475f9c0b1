"""Which extras and groups of a project name a backend: `cpu = ["torch"]`, `cu130 = ["torch"]`.

uv takes torch of such an extra from an index of its own, and must be told that two exclude each
other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tomlkit

from gpusetup.catalog.builds import Catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import parsed

Owner = tuple[str, str]
"""Whose requirements: `("extra", "cu130")`, `("group", "dev")`."""


def requirement_lists(document: tomlkit.TOMLDocument) -> Iterator[tuple[Owner, Any]]:
    project: Any = document["project"]
    yield ("project", "dependencies"), project.get("dependencies", [])
    for name, said in project.get("optional-dependencies", {}).items():
        yield ("extra", name), said
    for name, said in document.get("dependency-groups", {}).items():
        yield ("group", name), said


def name_in(requirement: Any) -> str | None:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(str(requirement)).name.lower()
    except InvalidRequirement:
        return None


def builds_named(
    document: tomlkit.TOMLDocument, build: TorchBuild, catalog: Catalog
) -> dict[Owner, TorchBuild]:
    """The build of each extra or group that holds torch and is named for a backend."""
    known, found = {row.backend for row in catalog.builds}, {}
    for owner, said in requirement_lists(document):
        words = known.intersection(re.split(r"[-_.]", owner[1]))
        if words and "torch" in map(name_in, said):
            found[owner] = _build_of(words.pop(), build, catalog)
    return found


def _build_of(backend: str, build: TorchBuild, catalog: Catalog) -> TorchBuild:
    """The chosen torch on another backend; where that has no such torch, its newest before it."""
    limit, place = parsed(build.torch), (build.channel, build.os, build.machine)
    rows = [row for row in catalog.builds if row.backend == backend and parsed(row.torch) <= limit]
    if not rows:
        raise Unsatisfiable(
            f"The project names {backend}, which has no torch as old as {build.torch}",
            hint=f"`gpusetup resolve --backend {backend}` names the torch that it has",
        )
    return max(rows, key=lambda r: (parsed(r.torch), (r.channel, r.os, r.machine) == place))


def write_conflicts(uv: Any, owners: Iterable[Owner]) -> None:
    """That these exclude each other, where the file does not say so."""
    rows = [{kind: name} for kind, name in owners]
    if rows[1:] and not any(all(row in one for row in rows) for one in uv.get("conflicts", ())):
        said = ", ".join(f'{{{kind} = "{name}"}}' for row in rows for kind, name in row.items())
        uv.setdefault("conflicts", tomlkit.array()).append(tomlkit.value(f"[{said}]"))
