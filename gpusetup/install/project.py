"""A project's `pyproject.toml` for uv: the pins, torch's explicit index, a marker per platform.

Pure: text in, text out. Comments and everything else in the file stay as they are (`tomlkit`).
torch's index is `explicit`, so that nothing else comes from it; a platform without that build (a
Mac, an aarch64 host of an old CUDA) keeps the default index.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.errors import BadInput, Unsatisfiable
from gpusetup.install.project_extras import (
    Owner,
    builds_named,
    name_in,
    requirement_lists,
    write_conflicts,
)
from gpusetup.installers.options import FAMILY, chosen_build, version_of
from gpusetup.model.resolution import Resolution, TorchBuild

OURS = "pytorch-"
"""What the names of torch's indexes begin with: `pytorch-cu124`."""

PLATFORMS = (
    ("linux", "x86_64", "sys_platform == 'linux' and platform_machine == 'x86_64'"),
    ("linux", "aarch64", "sys_platform == 'linux' and platform_machine == 'aarch64'"),
    ("windows", "x86_64", "sys_platform == 'win32'"),
)
"""Where torch's own index has builds, and the marker that tells (macOS uses the default index)."""

MARK = "\ufeff"
"""What some editors put before UTF-8 text."""
BLANK_LINE = "\n"
"""What stands before a new table's head."""

WHOLE_LINUX = "sys_platform == 'linux'"


def edited(
    text: str, resolution: Resolution, catalog: Catalog, *, packages: Iterable[str], root: str
) -> str:
    """The file with the resolution's pins; the same text if the error names one already.

    `packages` are family members wanted beside those that the project names. Raises BadInput for
    what is no project file, Unsatisfiable where its `requires-python` excludes the build.
    """
    document = parse(text)
    build = chosen_build(resolution)
    builds = builds_named(document, build, catalog)
    for one in (build, *builds.values()):
        python_is_served(document, one)
    named = tuple(name for name in FAMILY if name in packages or name in versions_named(document))
    wanted = tuple(name for name in named if version_of(build, name))
    _pin(document, build, builds, wanted)
    _sources(document, builds or {None: build}, catalog, wanted, root)
    return written(document, text)


def parse(text: str) -> tomlkit.TOMLDocument:
    """The document; BadInput with the place where it is no TOML or no project."""
    document = parse_any(text)
    project = document.get("project")
    if not isinstance(project, dict):
        raise BadInput(
            "the project file has no [project] table", hint="`uv init` writes one; then try again"
        )
    if not isinstance(project.get("dependencies", []), list):
        raise BadInput("[project] dependencies is no list")
    return document


def parse_any(text: str) -> tomlkit.TOMLDocument:
    """A document that need not be a project's; BadInput where it is no TOML."""
    try:
        return tomlkit.parse(_ended(text.removeprefix(MARK)))
    except TOMLKitError as problem:
        raise BadInput(f"the project file is not TOML: {problem}") from problem


def with_endings(after: str, before: str) -> str:
    """The text with the line endings of the file that it replaces.

    Lines that were there keep theirs; new ones end as most lines of the file do.

    >>> with_endings("a\\r\\nb\\nc\\r\\n", "a\\r\\nc\\r\\n")
    'a\\r\\nb\\r\\nc\\r\\n'
    """
    usual = "\r\n" if before.count("\r\n") * 2 > before.count("\n") else "\n"
    had = _ended(before.removeprefix(MARK), usual).splitlines(keepends=True)
    lines = after.splitlines(keepends=True)
    if _bare(had) == _bare(lines):
        return before
    blocks = SequenceMatcher(None, _bare(had), _bare(lines), autojunk=False).get_matching_blocks()
    kept = {one.b + i: had[one.a + i] for one in blocks for i in range(one.size)}
    made = (kept.get(place) or line.rstrip("\r\n") + usual for place, line in enumerate(lines))
    return (MARK if before.startswith(MARK) else "") + "".join(made)


def written(document: tomlkit.TOMLDocument, before: str) -> str:
    """The new text of a file; BadInput where it would not say what the document says."""
    text = with_endings(tomlkit.dumps(document), before)
    if parse_any(text).unwrap() != document.unwrap():
        raise BadInput("the project file cannot be changed without changing what it says")
    return text


def _ended(text: str, ending: str = "\n") -> str:
    """With an end of its last line, behind which more can stand."""
    return text if not text or text.endswith("\n") else text + ending


def _bare(lines: Iterable[str]) -> list[str]:
    return [line.rstrip("\r\n") for line in lines]


MEANS = {
    "constraint-dependencies": "uv reads this too: it must allow the new pin",
    "override-dependencies": "uv takes this in place of the new pin: take it out",
}
"""A setting of uv that may hold torch -> what becomes of the pin."""


def other_pins(document: tomlkit.TOMLDocument) -> Iterator[str]:
    """What uv's own settings say of the torch family, and what that means; they stay."""
    tool = document.unwrap().get("tool", {})
    uv = tool.get("uv", {}) if isinstance(tool, dict) else {}
    for key, means in MEANS.items() if isinstance(uv, dict) else ():
        rows = uv.get(key, ())
        for row in rows if isinstance(rows, list) else ():
            if name_in(row) in FAMILY:
                yield f"[tool.uv.{key}] {row} stays as it is; {means}"


def python_is_served(document: tomlkit.TOMLDocument, build: TorchBuild) -> None:
    """uv locks for every Python that the project allows, so the lowest must have a wheel.

    Where the project does not say, uv takes the interpreter's own version.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    said = str(document["project"].get("requires-python", ""))
    try:
        allowed = SpecifierSet(said)
    except InvalidSpecifier as problem:
        raise BadInput(f"requires-python is no specifier: {said!r}") from problem
    if not said:
        return
    ordinary = [tag for tag in build.pythons if not tag.endswith("t")]
    every = (f"3.{minor}" for minor in range(7, 20))
    lowest = next((tag for tag in every if allowed.contains(tag, prereleases=True)), None)
    if lowest is not None and lowest not in ordinary:
        raise Unsatisfiable(
            f"torch {build.torch} has wheels for Python {ordinary[0]} to {ordinary[-1]}, "
            f"and the project allows {lowest} (requires-python = {said!r})",
            hint=f'write `requires-python = ">={ordinary[0]}"`, or ask for an older `--torch`',
        )


def versions_named(
    document: tomlkit.TOMLDocument, names: Container[str | None] = FAMILY
) -> dict[str, str]:
    """What the project requires of these packages: name -> specifier (`""` for any)."""
    from packaging.requirements import Requirement

    return {
        name: str(Requirement(str(said)).specifier)
        for _, requirements in requirement_lists(document)
        for said in requirements
        if (name := name_in(said)) in names and name is not None
    }


def _pin(
    document: tomlkit.TOMLDocument,
    build: TorchBuild,
    builds: Mapping[Owner, TorchBuild],
    wanted: tuple[str, ...],
) -> None:
    """Each wanted package at its exact public version; added where it stands nowhere.

    Of a project whose extras name their backends, theirs only.
    """
    project: Any = document["project"]
    if "dependencies" not in project:
        project["dependencies"] = tomlkit.array()
    missing = [name for name in wanted if name not in versions_named(document)]
    lists = dict(requirement_lists(document))
    for owner, one in (builds or dict.fromkeys(lists, build)).items():
        for place, said in enumerate(lists[owner]):
            name = name_in(said)
            if name in wanted and (version := version_of(one, name)):
                pinned = _pinned(str(said), version)
                if pinned != str(said):
                    lists[owner][place] = pinned
    for owner, one in (builds or {next(iter(lists)): build}).items():
        lists[owner].extend(f"{name}=={version_of(one, name)}" for name in missing)


def _pinned(requirement: str, version: str) -> str:
    """The requirement at one version; its extras and marker stay.

    >>> _pinned("torch[opt]>=2; sys_platform == 'linux'", "2.5.1")
    'torch[opt]==2.5.1; sys_platform == "linux"'
    """
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    said = Requirement(requirement)
    exact = SpecifierSet(f"=={version}")
    if said.specifier == exact and not said.url:
        return requirement
    said.specifier, said.url = exact, None
    return str(said)


# --- where it comes from --------------------------------------------------------------------------


def _sources(
    document: tomlkit.TOMLDocument,
    builds: Mapping[Owner, TorchBuild] | dict[None, TorchBuild],
    catalog: Catalog,
    wanted: tuple[str, ...],
    root: str,
) -> None:
    fresh = "uv" not in document.get("tool", {})
    uv = table_in(table_in(document, "tool", headless=True), "uv", headless=True)
    owners = tuple(filter(None, builds))
    write_conflicts(uv, owners)
    sources = table_in(uv, "sources", apart=not fresh)
    lists = dict(requirement_lists(document))
    for package in wanted:
        rows, said = tomlkit.array(), sources.get(package, [])
        for owner, build in builds.items():
            if owner is None or package in map(name_in, lists[owner]):
                rows.append(_source(owner, build, catalog))
        for row in said if owners and isinstance(said, list) else ():
            if {"extra", "group"} & row.keys() and not row.items() & owners:
                rows.append(row)  # of an extra whose backend the catalog does not know
        if rows and said != rows:
            sources[package] = rows
    for build in builds.values():
        _index(uv, f"{OURS}{build.backend}", index_url(build.backend, root), _used(sources))


def _source(owner: Owner | None, build: TorchBuild, catalog: Catalog) -> Any:
    """The index of one build, on the platforms that it has, for one extra or for all."""
    entry = tomlkit.inline_table()
    entry["index"] = f"{OURS}{build.backend}"
    if owner:
        entry[owner[0]] = owner[1]
    entry["marker"] = " or ".join(markers(build, catalog))
    return entry


def markers(build: TorchBuild, catalog: Catalog) -> Iterator[str]:
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


def _used(sources: Any) -> frozenset[str]:
    """The indexes that any package's source names."""
    said = (one if isinstance(one, list) else [one] for one in sources.values())
    rows = (row for several in said for row in several)
    return frozenset(str(row["index"]) for row in rows if isinstance(row, dict) and "index" in row)


def _index(uv: Any, name: str, url: str, used: frozenset[str]) -> None:
    """torch's index, explicit; one of ours that no source names any more goes."""
    indexes = uv.get("index")
    if not isinstance(indexes, AoT):
        if indexes is not None:
            raise BadInput("[tool.uv] index is not written as [[tool.uv.index]] tables")
        indexes = tomlkit.aot()
        uv.append("index", indexes)
    for place in reversed(range(len(indexes))):
        said = str(indexes[place].get("name", ""))
        if said.startswith(OURS) and said not in used:
            del indexes[place]
    row: Any = next((one for one in indexes if one.get("name") == name), None)
    if row is None:
        row = tomlkit.table()
        row.trivia.indent = BLANK_LINE
        row["name"] = name
        indexes.append(row)
    for key, value in (("url", url), ("explicit", True)):
        if row.get(key) != value:
            row[key] = value


def table_in(parent: Any, name: str, *, headless: bool = False, apart: bool = False) -> Any:
    """A sub-table, made where it is missing; a headless one shows only as its children's prefix."""
    if name not in parent:
        parent[name] = tomlkit.table(is_super_table=headless)
        if apart:
            parent[name].trivia.indent = BLANK_LINE
    if not isinstance(parent[name], dict):
        raise BadInput(f"`{name}` in the project file is no table")
    return parent[name]
