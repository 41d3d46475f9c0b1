"""A project's `pyproject.toml` for uv: the pins, torch's explicit index, a marker per platform.

Text in, text out. Comments and everything else in the file stay as they are (`tomlkit`). torch's
index is `explicit`, so that nothing else comes from it; a platform without that build (a Mac, an
aarch64 host of an old CUDA) keeps the default index.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from gpusetup import named_file
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.errors import BadInput, Unsatisfiable
from gpusetup.install.switching.files import write_safely
from gpusetup.installers.options import FAMILY, chosen_build, version_of
from gpusetup.model.resolution import Resolution, TorchBuild
from gpusetup.system.refused import blocked_by_files

OURS = "pytorch-"
"""What the names of torch's indexes begin with: `pytorch-cu124`."""
PLATFORMS = (
    ("linux", "x86_64", "sys_platform == 'linux' and platform_machine == 'x86_64'"),
    ("linux", "aarch64", "sys_platform == 'linux' and platform_machine == 'aarch64'"),
    ("windows", "x86_64", "sys_platform == 'win32'"),
)
"""Where torch's own index has builds, and the marker that tells (macOS uses the default index)."""
WHOLE_LINUX = "sys_platform == 'linux'"
MARK = "\ufeff"
"""What some editors put before UTF-8 text."""


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
    text: str, resolution: Resolution, catalog: Catalog, *, packages: Iterable[str], root: str
) -> str:
    """The file with the resolution's pins; the same text if it says so already.

    `packages` are family members that are wanted besides those that the project names. Raises
    BadInput for what is no project file, Unsatisfiable if its `requires-python` excludes the build
    or if it chooses the backend by its extras.
    """
    document = parse(text)
    build = chosen_build(resolution)
    _require_python(document, build)
    _require_one_backend(parse(text), catalog)
    named = versions_named(document)
    wanted = tuple(n for n in FAMILY if (n in packages or n in named) and version_of(build, n))
    _pin(document, build, wanted)
    uv = _uv(document)
    sources = _table(uv, "sources")
    name = f"{OURS}{build.backend}"
    for package in wanted:
        source = tomlkit.inline_table()
        source["index"] = name
        source["marker"] = " or ".join(_markers(build, catalog))
        if sources.get(package) != [source]:
            sources[package] = tomlkit.array()
            sources[package].append(source)
    _index(uv, name, index_url(build.backend, root))
    return _written(document, text)


def parse(text: str) -> tomlkit.TOMLDocument:
    """The document; BadInput with the place if it is no TOML or no project."""
    plain = text.removeprefix(MARK).replace("\r\n", "\n")
    try:
        document = tomlkit.parse(plain if plain.endswith("\n") else f"{plain}\n")
    except TOMLKitError as problem:
        raise BadInput(f"the project file is not TOML: {problem}") from problem
    project = document.get("project")
    if not isinstance(project, dict):
        raise BadInput(
            "the project file has no [project] table", hint="`uv init` writes one; then try again"
        )
    if not isinstance(project.get("dependencies", []), list):
        raise BadInput("[project] dependencies is no list")
    return document


def _written(document: tomlkit.TOMLDocument, before: str) -> str:
    """The new text, with the line endings of the old one; BadInput if these are of two kinds."""
    after = tomlkit.dumps(document)
    if parse(after).unwrap() == parse(before).unwrap():
        return before
    if windows := before.count("\r\n"):
        if windows != before.count("\n"):
            raise BadInput(
                "the project file ends some lines as Windows does, and others not",
                hint="save it with one kind of line endings, then run this again",
            )
        after = after.replace("\n", "\r\n")
    return MARK + after if before.startswith(MARK) else after


def overrides(document: tomlkit.TOMLDocument) -> Iterator[str]:
    """What `override-dependencies` says of the torch family."""
    for row in _uv(document).get("override-dependencies", ()):
        if _name_in(row) in FAMILY:
            yield (
                f"[tool.uv] override-dependencies names {row}: uv takes that in place of the new "
                "pin; remove it"
            )


def _require_python(document: tomlkit.TOMLDocument, build: TorchBuild) -> None:
    """uv locks for every Python that the project allows, so the lowest must have a wheel. If the
    project does not say, uv takes the interpreter's own version."""
    said = str(document["project"].get("requires-python", ""))
    try:
        allowed = SpecifierSet(said)
    except InvalidSpecifier as problem:
        raise BadInput(f"requires-python is no specifier: {said!r}") from problem
    ordinary = [tag for tag in build.pythons if not tag.endswith("t")]
    every = (f"3.{minor}" for minor in range(7, 20))
    lowest = next((tag for tag in every if allowed.contains(tag, prereleases=True)), None)
    if said and lowest is not None and lowest not in ordinary:
        raise Unsatisfiable(
            f"torch {build.torch} has wheels for Python {ordinary[0]} to {ordinary[-1]}, "
            f"and the project allows {lowest} (requires-python = {said!r})",
            hint=f'write `requires-python = ">={ordinary[0]}"`, or ask for an older `--torch`',
        )


def _require_one_backend(document: tomlkit.TOMLDocument, catalog: Catalog) -> None:
    """A project that has a torch for each backend in its extras chooses by itself."""
    lists = {name for name, said in _lists(document) if "torch" in map(_name_in, said)}
    said = str(_table(_uv(document), "sources").unwrap().get("torch"))
    if lists & {*catalog.backends} or "'extra'" in said or "'group'" in said:
        raise Unsatisfiable(
            f"The project chooses torch's backend by its extras: {', '.join(sorted(lists))}",
            hint="nothing was changed; pin torch there yourself: `gpusetup resolve --backend "
            "NAME` names the version and the index",
        )


def _lists(document: tomlkit.TOMLDocument) -> Iterator[tuple[str, Any]]:
    """Each list of requirements, with the name of its extra or group."""
    project: Any = document["project"]
    yield "dependencies", project.get("dependencies", [])
    yield from project.get("optional-dependencies", {}).items()
    yield from document.get("dependency-groups", {}).items()


def _name_in(requirement: Any) -> str | None:
    try:
        return Requirement(str(requirement)).name.lower()
    except InvalidRequirement:
        return None


def versions_named(document: tomlkit.TOMLDocument) -> dict[str, str]:
    """What the project requires of torch's family: name -> specifier (`""` for any)."""
    return {
        name: str(Requirement(str(said)).specifier)
        for _, requirements in _lists(document)
        for said in requirements
        if (name := _name_in(said)) in FAMILY and name is not None
    }


def _pin(document: tomlkit.TOMLDocument, build: TorchBuild, wanted: tuple[str, ...]) -> None:
    """Each wanted package at its exact public version; added if no list names it."""
    missing = [name for name in wanted if name not in versions_named(document)]
    for _, requirements in _lists(document):
        for place, said in enumerate(requirements):
            name = _name_in(said)
            if name in wanted and name is not None:
                pinned = _pinned(str(said), f"{version_of(build, name)}")
                if pinned != str(said):
                    requirements[place] = pinned
    project: Any = document["project"]
    project.setdefault("dependencies", tomlkit.array())
    project["dependencies"].extend(f"{name}=={version_of(build, name)}" for name in missing)


def _pinned(requirement: str, version: str) -> str:
    """The requirement at one version; its extras and marker stay.

    >>> _pinned("torch[opt]>=2; sys_platform == 'linux'", "2.5.1")
    'torch[opt]==2.5.1; sys_platform == "linux"'
    """
    said = Requirement(requirement)
    exact = SpecifierSet(f"=={version}")
    if said.specifier == exact and not said.url:
        return requirement
    said.specifier, said.url = exact, None
    return str(said)


def _markers(build: TorchBuild, catalog: Catalog) -> Iterator[str]:
    """The platforms on which this torch has this backend, as markers."""
    there = {
        (family, machine): marker
        for family, machine, marker in PLATFORMS
        if catalog.row_of(build.torch, build.backend, family, machine)
    }
    if {("linux", "x86_64"), ("linux", "aarch64")} <= there.keys():
        yield WHOLE_LINUX
    else:
        yield from (marker for (family, _), marker in there.items() if family == "linux")
    yield from (marker for (family, _), marker in there.items() if family != "linux")


def _index(uv: Any, name: str, url: str) -> None:
    """torch's index, explicit; one of ours that no source names any more goes."""
    indexes = uv.setdefault("index", tomlkit.aot())
    if not isinstance(indexes, AoT):
        raise BadInput("[tool.uv] index is not written as [[tool.uv.index]] tables")
    for place in reversed(range(len(indexes))):
        said = str(indexes[place].get("name", ""))
        if said.startswith(OURS) and said not in str(uv["sources"].unwrap()):
            del indexes[place]
    row: Any = next((one for one in indexes if one.get("name") == name), None)
    if row is None:
        row = tomlkit.table()
        row.trivia.indent = "\n"
        row["name"] = name
        indexes.append(row)
    for key, value in (("url", url), ("explicit", True)):
        if row.get(key) != value:
            row[key] = value


def _uv(document: tomlkit.TOMLDocument) -> Any:
    return _table(_table(document, "tool", headless=True), "uv", headless=True)


def _table(parent: Any, name: str, *, headless: bool = False) -> Any:
    """A sub-table, made if it is missing; a headless one shows only as its children's prefix."""
    if name not in parent:
        parent[name] = tomlkit.table(is_super_table=headless)
    if not isinstance(parent[name], dict):
        raise BadInput(f"`{name}` in the project file is no table")
    return parent[name]
