"""Reads the metadata of a project: pyproject.toml (PEP 621, dependency groups, uv's tables and
Poetry's), setup.cfg and setup.py, and the locks uv.lock, poetry.lock and pylock.toml.

The file may come from a stranger, so it is read up to a size limit, and only valid names pass. A
setup.py is parsed and never run.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.builds import FAMILY
from gpusetup.project.ask import MOST_BYTES, Ask, Source, Variant, direct_reference, named_family
from gpusetup.project.requirements import add_file
from gpusetup.readings.toml import parse_toml

MOST_LOCK_BYTES = 32 << 20
"""A lock of a thousand packages with all their files has a few megabytes."""
VARIANT_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
"""The name of an extra or a group (PEP 685, PEP 735), of at most 100 characters."""


def read_toml(path: str, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The values of a TOML file. Raises BadInput if it cannot be read or is no TOML."""
    try:
        return parse_toml(named_file.read_text(path, most_bytes))
    except ValueError as problem:
        raise BadInput(f"{path} is not valid TOML: {problem}") from problem


def add_pyproject(ask: Ask) -> None:
    """Add what a pyproject.toml asks for. Raises BadInput if it is no TOML."""
    document, name = read_toml(ask.path), Path(ask.path).name
    project, tool = table(document, "project"), table(document, "tool")
    uv, poetry = table(tool, "uv"), table(tool, "poetry")
    ask.python = text_in(project, "requires-python")
    ask.has_project = bool(project)
    # With `[project] dependencies`, Poetry 2 reads those, and uv can edit the file.
    ask.is_poetry = bool(poetry) and "dependencies" not in project
    # A file that only has `[[tool.uv.index]]` and `[tool.uv.sources]` contains no `[tool.uv]`.
    has_uv_settings = bool(uv.keys() - {"index", "sources"})
    ask.tables += ["[tool.uv]"] if has_uv_settings else []
    ask.tables += ["[tool.uv.sources]"] if "sources" in uv else []
    add_list(ask, project.get("dependencies"), f"{name}, [project] dependencies")
    extras = table(project, "optional-dependencies")
    groups = table(document, "dependency-groups")
    for kind, lists in (("extra", extras), ("group", groups)):
        for variant, requirements in lists.items():
            # A name becomes part of commands that are shown, and a stranger may have chosen it.
            if re.fullmatch(VARIANT_NAME, variant):
                # uv installs the group `dev` with the project itself.
                chosen_by = None if (kind, variant) == ("group", "dev") else variant
                count_before = len(ask.requests)
                add_list(ask, requirements, f"{name}, {kind} {variant}", chosen_by)
                family = named_family(one.name for one in ask.requests[count_before:])
                if family and chosen_by:
                    ask.variants.append(Variant(name=variant, kind=kind, family=family))  # type: ignore[arg-type]
    add_list(ask, uv.get("dev-dependencies"), f"{name}, [tool.uv] dev-dependencies")
    for limit in list_in(uv, "constraint-dependencies"):
        ask.add(str(limit), f"{name}, [tool.uv]", is_limit=True)
    # setuptools may read the list from requirements files.
    dynamic = table(table(table(tool, "setuptools"), "dynamic"), "dependencies")
    one_file = text_in(dynamic, "file")
    for file in [one_file] if one_file else list_in(dynamic, "file"):
        add_file(ask, Path(ask.path).parent / str(file), name)
    add_poetry(ask, poetry)
    # Last, because it removes requests for which uv has another source.
    add_uv(ask, uv)


def add_list(ask: Ask, requirements: object, place: str, variant: str | None = None) -> None:
    """Add a list of requirements. An item that is no text, with which a group includes another one,
    is skipped, because each group is read by itself."""
    for item in requirements if isinstance(requirements, list) else ():
        if isinstance(item, str):
            ask.add(item, place, variant)


def add_uv(ask: Ask, uv: Mapping[str, Any]) -> None:
    """Add uv's indexes and sources. A package with its own address (a git repository, a URL, a
    folder) is not asked from an index, unless it is torch or a companion."""
    place = f"{Path(ask.path).name}, [tool.uv]"
    for row in list_in(uv, "index"):
        if isinstance(row, dict) and isinstance(row.get("url"), str):
            ask.add_index(row["url"], place, text_in(row, "name"))
    for url in list_in(uv, "extra-index-url"):
        ask.add_index(str(url), place)
    elsewhere: set[str] = set()
    for key, value in table(uv, "sources").items():
        package = canonicalize_name(key)
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                continue
            index, address = text_in(row, "index"), address_in(row)
            marker = text_in(row, "marker") or ""
            variant = text_in(row, "extra") or text_in(row, "group")
            if index:
                ask.sources.append(
                    Source(package=package, index=index, variant=variant, marker=marker)
                )
            if address:
                reference = direct_reference(
                    f"{package} @ {address}", f"{place} sources", variant, marker
                )
                # A stranger's key may be no package name, which gives None.
                ask.direct += [reference] if reference else []
                elsewhere.add(package)
    ask.requests = [one for one in ask.requests if one.name not in elsewhere or one.name in FAMILY]


def add_poetry(ask: Ask, poetry: Mapping[str, Any]) -> None:
    """Add Poetry's dependencies, groups and sources.

    https://python-poetry.org/docs/dependency-specification/
    """
    name = Path(ask.path).name
    tables: list[tuple[str | None, Mapping[str, Any]]] = [(None, table(poetry, "dependencies"))]
    for group, values in table(poetry, "group").items():
        if isinstance(values, dict) and re.fullmatch(VARIANT_NAME, group):
            tables.append((group, table(values, "dependencies")))
    for variant, dependencies in tables:
        for package, value in dependencies.items():
            if package == "python":
                ask.python = ask.python or specifier_of_poetry(str(value))
                continue
            # One row for each platform, if they differ; a row is often only a version.
            for row in value if isinstance(value, list) else [value]:
                spec = row if isinstance(row, dict) else {"version": row}
                address, markers = address_in(spec), text_in(spec, "markers")
                extras = ",".join(str(extra) for extra in list_in(spec, "extras"))
                line = f"{package}{f'[{extras}]' if extras else ''}"
                version = specifier_of_poetry(str(spec.get("version", "*")))
                # The space ends the address, which may contain a `;` itself.
                line += f" @ {address} " if address else version
                line += f"; {markers}" if markers else ""
                ask.add(line, f"{name}, {package}", variant)
    for row in list_in(poetry, "source"):
        if isinstance(row, dict):
            ask.add_index(str(row.get("url", "")), f"{name}, source", text_in(row, "name"))


def specifier_of_poetry(text: str) -> str:
    """A version of Poetry as a specifier of Python's packaging; "" for any version.

    `^` allows all versions in which the first number that is not 0 stays the same, and `~` those
    in which the second one does, or the only one.

    >>> [specifier_of_poetry(text) for text in ("^2.4", "~2.6.0", "2.5.1", ">=3.9,<3.13", "*")]
    ['>=2.4,<3', '>=2.6.0,<2.7', '==2.5.1', '>=3.9,<3.13', '']
    """
    parts = []
    # Of alternatives (`^2.4 || ^3.0`), which a specifier cannot express, only the first is read.
    for part in filter(None, (piece.strip() for piece in text.split("||")[0].split(","))):
        caret_or_tilde = re.fullmatch(r"([\^~])(\d{1,6}(?:\.\d{1,6}){0,2})\S*", part)
        if caret_or_tilde:
            numbers = [int(number) for number in caret_or_tilde[2].split(".")]
            last = len(numbers) - 1
            # The position of the last number that stays the same.
            fixed = min(1, last)
            if caret_or_tilde[1] == "^":
                fixed = next((position for position, one in enumerate(numbers) if one), last)
            end = [*numbers[:fixed], numbers[fixed] + 1]
            parts.append(f">={part[1:]},<{'.'.join(map(str, end))}")
        elif part != "*":
            parts.append(f"=={part}" if part[0].isdigit() else part)
    return ",".join(parts)


# --- setup.cfg and setup.py -----------------------------------------------------------------------


def add_setup_cfg(ask: Ask) -> None:
    """Add what a setup.cfg asks for. Raises configparser.Error if it is none."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(named_file.read_text(ask.path, MOST_BYTES))
    options = parser["options"] if parser.has_section("options") else {}
    ask.python = options.get("python_requires")
    for line in filter(str.strip, options.get("install_requires", "").splitlines()):
        ask.add(line, f"{Path(ask.path).name}, install_requires")


def add_setup_py(ask: Ask) -> None:
    """Add what the call of `setup()` in a setup.py asks for, as far as it is written out there.
    Raises SyntaxError, ValueError, RecursionError or MemoryError if it is no Python."""
    tree = ast.parse(named_file.read_text(ask.path, MOST_BYTES))
    # A list is often bound to a name first: `requirements = ["torch>=2"]`.
    variables: dict[str, ast.expr] = {}
    arguments: dict[str | None, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names = [name.id for name in node.targets if isinstance(name, ast.Name)]
            variables |= dict.fromkeys(names, node.value)
        elif isinstance(node, ast.Call):
            # `setup(...)`, whose name is an `id`, or `setuptools.setup(...)`.
            called = (getattr(node.func, "id", None), getattr(node.func, "attr", None))
            if "setup" in called:
                arguments |= {keyword.arg: keyword.value for keyword in node.keywords}
    values = {
        word: variables.get(value.id, value) if isinstance(value, ast.Name) else value
        for word, value in arguments.items()
    }
    ask.python = _text(values.get("python_requires"))
    needed, place = values.get("install_requires"), f"{Path(ask.path).name}, install_requires"
    if isinstance(needed, (ast.List, ast.Tuple)):
        for line in filter(None, map(_text, needed.elts)):
            ask.add(line, place)
    elif needed is not None:
        # A list that is computed is nearly always read from the requirements.txt next to it.
        requirements = Path(ask.path).with_name("requirements.txt")
        if requirements.is_file():
            add_file(ask, requirements, place)
        else:
            ask.unread.append(f"{place}: it is computed when setup.py runs")


def _text(value: ast.expr | None) -> str | None:
    """The text of a literal; None for anything else."""
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return value.value if is_text else None  # type: ignore[union-attr]


def add_lock(ask: Ask) -> None:
    """Add what a lock pins. Raises BadInput if it is no TOML."""
    document, name = read_toml(ask.path, MOST_LOCK_BYTES), Path(ask.path).name
    ask.python = text_in(document, "requires-python")
    # uv and Poetry call their list `package`, PEP 751 calls it `packages`.
    for row in (*list_in(document, "package"), *list_in(document, "packages")):
        if not isinstance(row, dict):
            continue
        package, version = str(row.get("name")), text_in(row, "version")
        source = table(row, "source")
        # The lock also lists the project itself and its workspace.
        if version is None or "editable" in source or "virtual" in source:
            continue
        ask.add(f"{package}=={version}", f"{name}, {package}")
        url = text_in(source, "registry") or text_in(row, "index")
        # Only the index of torch's family shows a backend.
        if url and package in FAMILY and url not in [one.url for one in ask.indexes]:
            ask.add_index(url, name)


# --- values of a stranger's file ------------------------------------------------------------------


def table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The table with this name in a document; empty if there is none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def list_in(document: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yields the items of a list in a document; nothing if there is no such list."""
    value = document.get(name)
    yield from value if isinstance(value, list) else ()


def text_in(document: Mapping[str, Any], name: str) -> str | None:
    """The text with this name in a document; None if there is none."""
    value = document.get(name)
    return value if isinstance(value, str) else None


def address_in(row: Mapping[str, Any]) -> str | None:
    """Where uv or Poetry takes a package from: a repository, a URL or a path; None for an index."""
    git = text_in(row, "git")
    return f"git+{git}" if git else text_in(row, "url") or text_in(row, "path")
