"""A project's `pyproject.toml` for uv: the pins, torch's explicit index, a marker per platform.

Text in, text out. Comments and everything else in the file stay as they are (`tomlkit`). torch's
index is `explicit`, so that nothing else comes from it (`uv add --index` writes one that is not); a
platform without that build (a Mac, an aarch64 host of an old CUDA) keeps the default index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from tomlkit.exceptions import TOMLKitError

from gpusetup.catalog.builds import Catalog
from gpusetup.errors import BadInput, Unsatisfiable
from gpusetup.model.resolution import FAMILY, TorchBuild

PLATFORMS = {
    "sys_platform == 'linux' and platform_machine == 'x86_64'": ("linux", "x86_64"),
    "sys_platform == 'linux' and platform_machine == 'aarch64'": ("linux", "aarch64"),
    "sys_platform == 'win32'": ("windows", "x86_64"),
}
"""The marker of each platform for which torch's own index has builds (macOS uses the default
index)."""
INDEX = "pytorch"
"""How the project calls torch's index."""


def parsed_project(text: str) -> Any:
    """The document; BadInput if it is no project, Unsatisfiable if torch is in an extra or group.

    `uv lock` refuses one package with a pin here and another pin in an extra."""
    try:
        document: Any = tomlkit.parse(text if text.endswith("\n") else f"{text}\n")
        project = document["project"]
        project.setdefault("dependencies", tomlkit.array()).extend(())
        tool = document.setdefault("tool", tomlkit.table(True))
        uv = tool.setdefault("uv", tomlkit.table(True))
        uv.setdefault("sources", tomlkit.table()).items()
        [one.items() for one in uv.setdefault("index", tomlkit.aot())]
        lists = (*project.get("optional-dependencies", {}).values(),)
        lists += (*document.get("dependency-groups", {}).values(),)
        elsewhere = [*(found for said in lists for found in family_in(said))]
        [*family_in(project["dependencies"])]
    except (TOMLKitError, KeyError, AttributeError, TypeError) as problem:
        said = f"the project file cannot be edited: {problem}"
        raise BadInput(said, hint="`uv init` writes one; then try again") from problem
    if elsewhere:
        raise Unsatisfiable(
            "The project names torch in its extras or groups",
            hint="nothing was changed; pin torch there yourself: `gpusetup resolve --backend "
            "NAME` names the version and the index",
        )
    return document


def family_in(requirements: Any) -> Iterator[tuple[int, Requirement]]:
    """What a list says of torch's family, each with its place."""
    for place, said in enumerate(requirements):
        with suppress(InvalidRequirement):
            asked = Requirement(str(said))
            if asked.name.lower() in FAMILY:
                yield place, asked


def versions_named(document: Any) -> dict[str, str]:
    """What the project requires of torch's family: name -> specifier (`""` for any)."""
    named = family_in(document["project"]["dependencies"])
    return {asked.name.lower(): str(asked.specifier) for _, asked in named}


def pin(document: Any, pins: Mapping[str, str], url: str, markers: str) -> None:
    """Each package at its exact public version, its extras and marker as they are, on the platforms
    of these markers from torch's index; added if the project does not name it."""
    there = document["project"]["dependencies"]
    missing = pins.keys() - versions_named(document)
    for place, asked in family_in(there):
        if version := pins.get(asked.name.lower()):
            exact = SpecifierSet(f"=={version}")
            if asked.specifier != exact or asked.url:
                asked.specifier, asked.url = exact, None
                there[place] = str(asked)
    there.extend(f"{name}=={pins[name]}" for name in sorted(missing))
    uv = document["tool"]["uv"]
    for name in pins:
        source = tomlkit.inline_table()
        source.update({"index": INDEX, "marker": markers})
        uv["sources"][name] = tomlkit.array()
        uv["sources"][name].append(source)
    row: Any = next((one for one in uv["index"] if one.get("name") == INDEX), None)
    if row is None:
        row = tomlkit.table()
        row.trivia.indent = "\n"
        row["name"] = INDEX
        uv["index"].append(row)
    row.update({"url": url, "explicit": True})


def markers_of(build: TorchBuild, catalog: Catalog) -> str:
    """The platforms on which this torch has this backend."""
    rows = ((m, catalog.row_of(build.torch, build.backend, *on)) for m, on in PLATFORMS.items())
    return " or ".join(marker for marker, row in rows if row)
