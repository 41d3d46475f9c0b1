"""A project's `pyproject.toml` for uv: the pins, torch's explicit index, a marker per platform.

Text in, text out. Comments and everything else in the file stay as they are (`tomlkit`). torch's
index is `explicit`, so that nothing else comes from it; a platform without that build (a Mac, an
aarch64 host of an old CUDA) keeps the default index.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from tomlkit.exceptions import TOMLKitError

from gpusetup import named_file
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.errors import BadInput, Unsatisfiable
from gpusetup.install.switching.files import write_safely
from gpusetup.installers.options import FAMILY, chosen_build, family_of
from gpusetup.model.resolution import Resolution, TorchBuild
from gpusetup.system.refused import blocked_by_files

PLATFORMS = {
    "sys_platform == 'linux' and platform_machine == 'x86_64'": ("linux", "x86_64"),
    "sys_platform == 'linux' and platform_machine == 'aarch64'": ("linux", "aarch64"),
    "sys_platform == 'win32'": ("windows", "x86_64"),
}
"""The marker of each platform for which torch's own index has builds (macOS uses the default
index)."""


def read_project(path: Path) -> str:
    try:
        return named_file.read(path).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise BadInput(f"{path} is not UTF-8 text") from problem
    except OSError as problem:
        raise BadInput(
            f"{path} cannot be read: {problem.strerror}",
            hint="name the project's file: `--project path/to/pyproject.toml`",
        ) from problem


def write_project(path: Path, text: str) -> None:
    """The whole file or nothing; a symbolic link stays one."""
    with blocked_by_files(f"{path} cannot be written"):
        write_safely(Path(os.path.realpath(path)), text)


def edited(
    text: str, resolution: Resolution, catalog: Catalog, *, packages: tuple[str, ...], root: str
) -> str:
    """The file with the resolution's pins.

    `packages` are family members that are wanted besides those that the project names. Raises
    BadInput for what is no project file, Unsatisfiable if it chooses the backend by its extras.
    """
    document, build = parse(text), chosen_build(resolution)
    named = versions_named(document)
    extras = document["project"].get("optional-dependencies", ())
    if {*extras, *document.get("dependency-groups", ())} & {*catalog.backends}:
        raise Unsatisfiable(
            "The project chooses torch's backend by its extras",
            hint="nothing was changed; pin torch there yourself: `gpusetup resolve --backend "
            "NAME` names the version and the index",
        )
    pins = family_of(build, {*packages, *named})
    _pin(document, pins, [name for name in pins if name not in named])
    uv = document.setdefault("tool", tomlkit.table(True)).setdefault("uv", tomlkit.table(True))
    name = f"pytorch-{build.backend}"
    sources = uv.setdefault("sources", tomlkit.table())
    source = {"index": name, "marker": " or ".join(_markers(build, catalog))}
    for package in pins:
        if sources.get(package) != [source]:
            row = tomlkit.inline_table()
            row.update(source)
            sources[package] = tomlkit.array()
            sources[package].append(row)
    _index(uv, name, index_url(build.backend, root))
    return tomlkit.dumps(document)


def parse(text: str) -> Any:
    """The document; BadInput with the place if it is no TOML or no project."""
    try:
        document: Any = tomlkit.parse(text if text.endswith("\n") else f"{text}\n")
    except TOMLKitError as problem:
        raise BadInput(f"the project file is not TOML: {problem}") from problem
    project, tool = document.get("project"), document.get("tool", {})
    if not isinstance(project, dict):
        raise BadInput(
            "the project file has no [project] table", hint="`uv init` writes one; then try again"
        )
    uv = tool.get("uv", {}) if isinstance(tool, dict) else None
    lists = isinstance(project.get("dependencies", []), list)
    if not (lists and isinstance(uv, dict) and isinstance(uv.get("index", []), list)):
        raise BadInput("`dependencies` or `tool.uv` in the project file has another form")
    return document


def _lists(document: Any) -> Iterator[Any]:
    """Each list of requirements."""
    project = document["project"]
    yield project.get("dependencies", [])
    yield from project.get("optional-dependencies", {}).values()
    yield from document.get("dependency-groups", {}).values()


def _family_in(requirements: Any) -> Iterator[tuple[int, Requirement]]:
    """What a list says of torch's family, each with its place."""
    for place, said in enumerate(requirements):
        try:
            asked = Requirement(str(said))
        except InvalidRequirement:
            continue
        if asked.name.lower() in FAMILY:
            yield place, asked


def versions_named(document: Any) -> dict[str, str]:
    """What the project requires of torch's family: name -> specifier (`""` for any)."""
    every = (asked for said in _lists(document) for _, asked in _family_in(said))
    return {asked.name.lower(): str(asked.specifier) for asked in every}


def _pin(document: Any, pins: dict[str, str], missing: list[str]) -> None:
    """Each wanted package at its exact public version, its extras and marker as they are; added if
    no list names it."""
    for requirements in _lists(document):
        for place, asked in _family_in(requirements):
            if version := pins.get(asked.name.lower()):
                exact = SpecifierSet(f"=={version}")
                if asked.specifier != exact or asked.url:
                    asked.specifier, asked.url = exact, None
                    requirements[place] = str(asked)
    there = document["project"].setdefault("dependencies", tomlkit.array())
    there.extend(f"{name}=={pins[name]}" for name in missing)


def _markers(build: TorchBuild, catalog: Catalog) -> list[str]:
    """The platforms on which this torch has this backend, as markers."""
    rows = ((m, catalog.row_of(build.torch, build.backend, *on)) for m, on in PLATFORMS.items())
    found = [marker for marker, row in rows if row]
    linux = [marker for marker in found if "linux" in marker]
    return found if len(linux) < 2 else ["sys_platform == 'linux'", *found[2:]]


def _index(uv: Any, name: str, url: str) -> None:
    """torch's index, explicit; one of ours that no source names any more goes."""
    indexes = uv.setdefault("index", tomlkit.aot())
    for place in reversed(range(len(indexes))):
        said = str(indexes[place].get("name", ""))
        if said.startswith("pytorch-") and said not in str(uv["sources"].unwrap()):
            del indexes[place]
    row: Any = next((one for one in indexes if one.get("name") == name), None)
    if row is None:
        row = tomlkit.table()
        row.trivia.indent = "\n"
        row["name"] = name
        indexes.append(row)
    row.update({"url": url, "explicit": True})
