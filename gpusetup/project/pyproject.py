"""Reads a pyproject.toml: PEP 621, dependency groups (PEP 735), uv's tables, and Poetry's.

The file may come from a stranger, so it is read up to a size limit, and only valid names pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.project.ask import Ask, Source, Variant, named_family
from gpusetup.project.requirements import later_of, read_requirements, with_request
from gpusetup.project.words import named_index, requested
from gpusetup.uv.toml import parse_toml

MOST_BYTES = 1 << 20
VARIANT_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
"""The name of an extra or a group (PEP 685, PEP 735)."""


def read_pyproject(path: str) -> Ask:
    """What a pyproject.toml asks for. Raises BadInput if it cannot be read or is no TOML."""
    text = named_file.read_text_once(path, MOST_BYTES)
    try:
        document = parse_toml(text)
    except ValueError as problem:
        raise BadInput(f"{path} is not valid TOML: {problem}") from problem
    return ask_of(document, path)


def ask_of(document: Mapping[str, Any], path: str) -> Ask:
    """What the tables of a pyproject.toml ask for.

    >>> lists = {"dependencies": ["numpy"], "optional-dependencies": {"cpu": ["torch>=2.5"]}}
    >>> ask = ask_of({"project": lists}, "pyproject.toml")
    >>> [one.text for one in ask.requests], [one.words for one in ask.variants]
    (['numpy', 'torch>=2.5'], [('--extra', 'cpu')])
    """
    project, uv = table(document, "project"), table(table(document, "tool"), "uv")
    poetry = table(table(document, "tool"), "poetry")
    ask = Ask(
        path=path,
        kind="pyproject",
        python=text_in(project, "requires-python"),
        has_project=bool(project),
        is_poetry=bool(poetry) and "dependencies" not in project,
        tables=tuple(
            name
            for name, is_there in (
                ("[tool.uv]", any(key not in ("index", "sources") for key in uv)),
                ("[tool.uv.sources]", "sources" in uv),
            )
            if is_there
        ),
    )
    name = Path(path).name
    ask = with_list(ask, project.get("dependencies"), f"{name}, [project] dependencies")
    extras = table(project, "optional-dependencies")
    groups = table(document, "dependency-groups")
    for kind, lists in (("extra", extras), ("group", groups)):
        for variant, requirements in lists.items():
            # uv installs the group `dev` with the project itself.
            own = None if (kind, variant) == ("group", "dev") else variant
            place = f"{name}, {kind} {variant}"
            if re.fullmatch(VARIANT_NAME, variant):
                ask = with_list(ask, requirements, place, own)
    variants = []
    for kind, lists in (("extra", extras), ("group", groups)):
        for variant in lists:
            family = named_family(one.name for one in ask.requests if one.variant == variant)
            if family:
                variants.append(Variant(name=variant, kind=kind, family=family))  # type: ignore[arg-type]
    ask = replace(ask, variants=tuple(variants))
    ask = with_list(ask, uv.get("dev-dependencies"), f"{name}, [tool.uv] dev-dependencies")
    limits = [
        requested(str(one), f"{name}, [tool.uv]") for one in list_in(uv, "constraint-dependencies")
    ]
    ask = replace(ask, constraints=(*ask.constraints, *filter(None, limits)))
    ask = with_dynamic(ask, document)
    if poetry:
        ask = with_poetry(ask, poetry)
    return with_uv(ask, uv)


def with_list(ask: Ask, requirements: object, place: str, variant: str | None = None) -> Ask:
    """What is asked for with one list of requirements."""
    for item in requirements if isinstance(requirements, list) else ():
        # A group may include another one: `{include-group = "test"}`.
        if not isinstance(item, str):
            continue
        request = requested(item, place, variant)
        if request is not None:
            ask = with_request(ask, request)
        elif later := later_of(item, place, variant):
            ask = replace(ask, later=(*ask.later, later))
        else:
            ask = replace(ask, unread=(*ask.unread, f"{place}: {item[:80]}"))
    return ask


def with_dynamic(ask: Ask, document: Mapping[str, Any]) -> Ask:
    """What is asked for with the requirements files that setuptools reads for this project."""
    dynamic = table(table(table(document, "tool"), "setuptools"), "dynamic")
    named = table(dynamic, "dependencies").get("file")
    for file in (
        [named] if isinstance(named, str) else list_in(table(dynamic, "dependencies"), "file")
    ):
        try:
            other = read_requirements(str(Path(ask.path).parent / str(file)))
        except BadInput as problem:
            ask = replace(ask, unread=(*ask.unread, problem.message))
            continue
        ask = joined(ask, other)
    return ask


def joined(ask: Ask, other: Ask) -> Ask:
    """What two files of one project ask for together."""
    return replace(
        ask,
        requests=(*ask.requests, *other.requests),
        constraints=(*ask.constraints, *other.constraints),
        python=ask.python or other.python,
        indexes=(*ask.indexes, *other.indexes),
        backend=ask.backend or other.backend,
        left_out=(*ask.left_out, *other.left_out),
        later=(*ask.later, *other.later),
        unread=(*ask.unread, *other.unread),
    )


# --- uv's tables ----------------------------------------------------------------------------------


def with_uv(ask: Ask, uv: Mapping[str, Any]) -> Ask:
    """What is asked for with uv's indexes and sources. A package with a source of its own (a git
    repository, a URL, a folder) is not asked from an index."""
    place = f"{Path(ask.path).name}, [tool.uv]"
    indexes = [*ask.indexes]
    for row in list_in(uv, "index"):
        if isinstance(row, dict) and isinstance(row.get("url"), str):
            indexes.append(named_index(row["url"], place, text_in(row, "name")))
    for url in list_in(uv, "extra-index-url"):
        indexes.append(named_index(str(url), place))
    sources, later = [], [*ask.later]
    elsewhere: set[str] = set()
    for package, value in table(uv, "sources").items():
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                continue
            marker = text_in(row, "marker") or ""
            variant = text_in(row, "extra") or text_in(row, "group")
            if isinstance(row.get("index"), str):
                sources.append(
                    Source(package=package, index=row["index"], variant=variant, marker=marker)
                )
            for key in ("git", "url", "path"):
                if isinstance(row.get(key), str):
                    address = f"git+{row[key]}" if key == "git" else row[key]
                    found = later_of(f"{package} @ {address}", f"{place} sources", variant)
                    if found:
                        later.append(replace(found, marker=marker))
                        elsewhere.add(package)
    return replace(
        ask,
        requests=tuple(one for one in ask.requests if one.name not in elsewhere or one.is_family),
        indexes=tuple(indexes),
        sources=tuple(sources),
        later=tuple(later),
    )


# --- Poetry's tables ------------------------------------------------------------------------------


def with_poetry(ask: Ask, poetry: Mapping[str, Any]) -> Ask:
    """What is asked for with Poetry's dependencies, groups and sources.

    https://python-poetry.org/docs/dependency-specification/
    """
    name = Path(ask.path).name
    tables: list[tuple[str | None, Mapping[str, Any]]] = [(None, table(poetry, "dependencies"))]
    for group, values in table(poetry, "group").items():
        if isinstance(values, dict) and re.fullmatch(VARIANT_NAME, group):
            tables.append((group, table(values, "dependencies")))
    requests, later = [*ask.requests], [*ask.later]
    for variant, dependencies in tables:
        for package, value in dependencies.items():
            place = f"{name}, {package}"
            if package == "python":
                ask = replace(ask, python=ask.python or specifier_of_poetry(str(value)))
                continue
            for row in value if isinstance(value, list) else [value]:
                spec = row if isinstance(row, dict) else {"version": row}
                address = text_in(spec, "url") or text_in(spec, "path")
                if text_in(spec, "git"):
                    address = f"git+{spec['git']}"
                if address:
                    found = later_of(f"{package} @ {address}", place)
                    later += [found] if found else []
                    continue
                extras = ",".join(str(extra) for extra in list_in(spec, "extras"))
                text = f"{package}{f'[{extras}]' if extras else ''}"
                text += specifier_of_poetry(str(spec.get("version", "*")))
                if text_in(spec, "markers"):
                    text += f"; {spec['markers']}"
                request = requested(text, place, variant)
                requests += [request] if request else []
    ask = replace(ask, requests=tuple(requests), later=tuple(later))
    rows = [row for row in list_in(poetry, "source") if isinstance(row, dict)]
    named = [
        named_index(str(row.get("url", "")), f"{name}, source", text_in(row, "name"))
        for row in rows
    ]
    return replace(ask, indexes=(*ask.indexes, *named))


def specifier_of_poetry(text: str) -> str:
    """A version of Poetry as a specifier of Python's packaging; "" for any version.

    >>> [specifier_of_poetry(text) for text in ("^2.4", "~2.6.0", "2.5.1", ">=3.9,<3.13", "*")]
    ['>=2.4,<3', '>=2.6.0,<2.7', '==2.5.1', '>=3.9,<3.13', '']
    """
    parts = []
    for part in filter(None, (piece.strip() for piece in text.split("||")[0].split(","))):
        found = re.fullmatch(r"(\^|~)(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?\S*", part)
        if part == "*":
            continue
        if not found:
            parts.append(f"=={part}" if part[0].isdigit() else part)
            continue
        numbers = [int(number) for number in found.groups()[1:] if number is not None]
        # `^0.4` ends at 0.5, and `~2` at 3.
        keep = 1 if found[1] == "^" else min(2, len(numbers))
        while found[1] == "^" and keep < len(numbers) and numbers[keep - 1] == 0:
            keep += 1
        end = [*numbers[: keep - 1], numbers[keep - 1] + 1]
        parts.append(f">={part[1:]},<{'.'.join(map(str, end))}")
    return ",".join(parts)


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
