"""Who may know whom: the rooms of the package and the arrows between them, read from the imports.

A room is a folder of `gpusetup/`, or a file beside them. An import counts wherever it stands, in a
function too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from source_trees import parsed, statements

PACKAGE = Path(__file__).resolve().parents[2] / "gpusetup"

FLOORS: tuple[tuple[str, ...], ...] = (
    ("verify", "child_scripts"),
    ("errors",),
    ("named_file",),
    ("model",),
    ("accelerators",),
    ("catalog", "messages", "system"),
    ("readings", "configs"),
    ("choose",),
    ("probe", "evidence"),
    ("fixes",),
    ("causes",),
    ("report", "findings", "redaction"),
    ("diagnosis",),
    ("plan",),
    ("uv",),
    ("project",),
    ("tune", "monitor", "install", "fleet"),
    ("render",),
    ("commands",),
    ("api",),
    ("assistants",),
    ("cli",),
    ("__main__",),
)
"""From below: a room may know those of the floors under its own, and none beside it.

So there is no circle, `probe` and `report` meet only in `readings`, `messages` and `model`, and
nothing below `render` prints.
"""

ALONE = ("verify", "child_scripts")
"""What runs under the target's interpreter, without our package."""

PURE = (
    *("model", "catalog", "messages", "readings", "redaction", "choose"),
    *(
        "accelerators",
        "report",
        "evidence",
        "fixes",
        "causes",
        "findings",
        "diagnosis",
        "plan",
        "configs",
    ),
)
"""What decides, and asks nobody: neither this machine, nor a network, nor a disk."""
ASKS = ("system", "probe", "uv", "install")


# --- what is imported ---------------------------------------------------------------------------


@cache
def modules() -> dict[str, Path]:
    """Every module by its name below `gpusetup`; the package itself is the empty name."""
    return {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree(module: str) -> ast.Module:
    return parsed(modules()[module])


@cache
def known(module: str, *, types: bool = True) -> tuple[str, ...]:
    """The modules of ours that a module imports; `types`: also those that only mypy reads."""
    only_types = set() if types else set(_for_types(tree(module)))
    return tuple(
        _nearest(name)
        for node in statements(tree(module))
        if node not in only_types and isinstance(node, (ast.Import, ast.ImportFrom))
        for name in _ours(node, module)
    )


def _for_types(source: ast.Module) -> Iterator[ast.AST]:
    for node in statements(source):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from (inner for line in node.body for inner in statements(line))


def _ours(node: ast.Import | ast.ImportFrom, module: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        base = node.module or ""
        if node.level:
            folder = ["gpusetup", *module.split(".")]
            if modules()[module].name != "__init__.py":
                folder.pop()
            folder = folder[: len(folder) - node.level + 1]
            base = ".".join((*folder, *filter(None, (node.module,))))
        names = [f"{base}.{alias.name}" for alias in node.names]
    ours = (name for name in names if name.partition(".")[0] == "gpusetup")
    yield from (name.partition(".")[2] for name in ours)


def _nearest(name: str) -> str:
    """The module that has this name, or in which it is one."""
    while name not in modules():
        name = name.rpartition(".")[0]
    return name


def room(module: str) -> str:
    return module.partition(".")[0]


FLOOR = {each: number for number, floor in enumerate(FLOORS) for each in floor}


def arrows() -> Iterator[tuple[str, str]]:
    """A module, and another room that it knows; the version in `gpusetup/__init__` is for all."""
    for module in modules():
        for other in sorted({room(each) for each in known(module)} - {"", room(module)}):
            yield module, other


# --- the rooms ----------------------------------------------------------------------------------


def test_every_room_has_a_floor() -> None:
    assert {room(module) for module in modules()} - {"", "data"} == set(FLOOR)


def test_the_page_about_the_house_names_every_room_and_no_other() -> None:
    page = (PACKAGE.parent / "docs" / "contributing" / "architecture.md").read_text(
        encoding="utf-8"
    )
    table = page.partition("## Rooms")[2].partition("\n## ")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert {name for cell in first for name in re.findall(r"`(\w+)`", cell)} == folders


def test_a_room_knows_only_rooms_below_it() -> None:
    wrong = {
        (module, other) for module, other in arrows() if FLOOR[other] >= FLOOR.get(room(module), 99)
    }
    assert sorted(wrong) == []


def test_what_decides_asks_nobody() -> None:
    asking = {(m, other) for m, other in arrows() if room(m) in PURE and other in ASKS}
    assert sorted(asking) == []


@pytest.mark.parametrize("alone", ALONE)
def test_what_runs_in_the_target_knows_nothing_of_ours(alone: str) -> None:
    mine = [module for module in modules() if room(module) == alone]
    assert mine
    assert [(m, each) for m in mine for each in known(m) if room(each) != alone] == []


def test_no_modules_know_each_other_in_a_circle() -> None:
    graph = {m: set(known(m, types=False)) - {m, ""} for m in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        pytest.fail(f"they know each other: {' → '.join(problem.args[1])}")
