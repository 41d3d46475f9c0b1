"""Reads the parts of a pyproject.toml about torch: the extras and groups that contain it, and uv's
tables.

The file may come from a stranger, so it is only read up to a size limit, and only valid names of
extras are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen
from gpusetup.uv.toml import parse_toml

PROJECT_FILE = "pyproject.toml"
MOST_BYTES = 1 << 20
EXTRA_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
"""The name of an extra or a group (PEP 685, PEP 735)."""
Kind = Literal["extra", "group"]


class NamedExtra(Frozen):
    """An extra or group of a project, if it contains torch."""

    name: str
    kind: Kind = "extra"
    family: tuple[str, ...] = ("torch",)
    """Which of torch and its companions it contains."""


class ProjectFile(Frozen):
    """The parts of a project file that matter for torch."""

    extras: tuple[NamedExtra, ...] = ()
    tables: tuple[str, ...] = ()
    """uv's tables that already exist, so that new lines must be merged into them."""
    has_extras: bool = False
    """Whether the file already has a table of extras."""
    base_family: tuple[str, ...] = ()
    """Which of torch and its companions are in the project's own dependencies."""


def read_project(path: Path, talk: Callable[[str], None]) -> ProjectFile:
    """Reads the parts of a project file about torch. If there is no file or it cannot be read, the
    record is empty."""
    if not named_file.is_there(path):
        return ProjectFile()
    try:
        document = parse_toml(named_file.read_text(path, MOST_BYTES))
    except (BadInput, ValueError, RecursionError) as problem:
        talk(f"{path} was not looked at: {problem}")
        return ProjectFile()
    return project_of(document)


def project_of(document: Mapping[str, Any]) -> ProjectFile:
    """Extracts the parts about torch from the tables of a pyproject.toml.

    >>> lists = {"cpu": ["torch"], "docs": ["mkdocs"]}
    >>> [one.name for one in project_of({"project": {"optional-dependencies": lists}}).extras]
    ['cpu']
    """
    project = table(document, "project")
    extras = named_by(table(project, "optional-dependencies"), "extra")
    groups = named_by(table(document, "dependency-groups"), "group")
    return ProjectFile(
        extras=(*extras, *groups),
        tables=tables_of_uv(document),
        has_extras="optional-dependencies" in project,
        base_family=family_in(project.get("dependencies")),
    )


def tables_of_uv(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The existing uv tables into which new lines must be merged, because TOML allows each table
    only once."""
    uv = table(table(document, "tool"), "uv")
    of_its_own = [key for key in uv if key not in ("index", "sources")]
    found = {"[tool.uv]": bool(of_its_own), "[tool.uv.sources]": "sources" in uv}
    return tuple(name for name, is_there in found.items() if is_there)


def table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The table with this name in a document; empty if there is none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def named_by(lists: Mapping[str, Any], kind: Kind) -> Iterator[NamedExtra]:
    """Yields the extras or groups whose requirements contain torch or a companion."""
    for name, requirements in lists.items():
        family = family_in(requirements)
        if re.fullmatch(EXTRA_NAME, name) and family:
            yield NamedExtra(name=name, kind=kind, family=family)


def family_in(requirements: object) -> tuple[str, ...]:
    """The names of torch and its companions in a list of requirements.

    >>> family_in(["torch>=2", "numpy", {"include-group": "x"}, "torch vision"])
    ('torch',)
    """
    names = set(names_in(requirements if isinstance(requirements, list) else ()))
    return tuple(name for name in FAMILY if name in names)


def names_in(requirements: Iterable[object]) -> Iterator[str]:
    for requirement in requirements:
        try:
            yield canonicalize_name(Requirement(str(requirement)).name)
        except InvalidRequirement:
            continue
