"""The guard of a uv project: the pins as `constraint-dependencies` of its `pyproject.toml`, or of
a `uv.toml`.

Pure: text in, text out. uv reads no setting of an environment. Those of a project it always reads:
of `pyproject.toml` for `uv lock`, `uv sync` and `uv add`, and for `uv pip` in its folders; of a
`uv.toml`, which counts more there, for `uv pip` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit

from gpusetup.errors import BadInput, Unsatisfiable
from gpusetup.install.project import parse, parse_any, table_in, versions_named, written
from gpusetup.install.project_extras import name_in
from gpusetup.model.versions import allows

CONSTRAINTS, OVERRIDES = "constraint-dependencies", "override-dependencies"


def constrained(text: str, pins: Mapping[str, str], *, own: bool = False) -> str:
    """The project file with the pins among uv's constraints; the same text where they are there.

    Lines about other packages stay. A version is written without its label (`torch==2.13.0`): which
    build of it comes is said by `tool.uv.sources`, and a constraint without a label takes any. In
    a `uv.toml` (`own`) it has its label: no lock is made from it. Raises BadInput for what is no
    project file, Unsatisfiable where the project asks for another version itself.
    """
    document = parse_any(text) if own else parse(text)
    uv: Any = document
    if not own:
        uv = table_in(table_in(document, "tool", headless=True), "uv")
    rows = uv.get(CONSTRAINTS)
    if rows is None:
        rows = uv[CONSTRAINTS] = tomlkit.array()
        rows.multiline(True)
    if not isinstance(rows, list):
        raise BadInput(f"[tool.uv] {CONSTRAINTS} is no list")
    versions = {name: v if own else v.partition("+")[0] for name, v in pins.items()}
    wanted = {name: f"{name}=={version}" for name, version in versions.items()}
    for name, said in () if own else versions_named(document, wanted).items():
        if not allows(said.partition("+")[0], versions[name]):
            raise Unsatisfiable(
                f"The project asks for {name}{said}, the environment has {wanted[name]}: uv could "
                "lock neither beside a constraint",
                hint="nothing was changed; change that line, or install what it asks for",
            )
    for place in reversed(range(len(rows))):
        if name_in(rows[place]) in wanted and str(rows[place]) not in wanted.values():
            del rows[place]
    there = {str(row) for row in rows}
    for row in wanted.values():
        if row not in there:
            rows.append(row)
    return written(document, text)


def stronger(text: str, pins: Mapping[str, str], *, own: bool = False) -> Iterator[str]:
    """What the project says of a guarded package that counts more than a constraint."""
    uv: Any = parse_any(text) if own else parse(text).get("tool", {}).get("uv", {})
    rows = uv.get(OVERRIDES, []) if isinstance(uv, dict) else []
    for row in rows if isinstance(rows, list) else []:
        if name_in(row) in pins:
            place = "" if own else "[tool.uv] "
            yield f"{place}{OVERRIDES} {row} counts more than the constraint: take it out"
    if own:
        return
    sources = uv.get("sources", {}) if isinstance(uv, dict) else {}
    label = pins.get("torch", "").partition("+")[2]
    if label and "torch" not in (sources if isinstance(sources, dict) else {}):
        yield (
            f"[tool.uv.sources] names no index for torch: `gpusetup install --project --backend "
            f"{label}` writes it, or uv takes another build of the same version"
        )
