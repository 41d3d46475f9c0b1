"""Records of causes: each id is written in its record, and where an event of its name is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from source_trees import parsed

from gpusetup.causes.record import Cause
from gpusetup.causes.table import CAUSES, FILES

PACKAGE = Path(__file__).resolve().parent.parent / "gpusetup"
BELOW = ("probe", "evidence", "fixes", "verify")
"""Rooms below the records. What the machine itself shows is an event of a cause's name, and some
ways out ask for one; `verify` knows nothing of ours."""
SHARED = {
    "messages/kernel": "the kernel's log is read on the machine itself, by `probe`",
    "messages/programs": "a program's way out by who made the GPU",
    "messages/row": "the kind of every row that is a failure of a program's own",
}

IDS = {cause.id for cause in CAUSES}


def test_every_file_of_records_is_in_the_table() -> None:
    with_records = {
        path.stem
        for path in (PACKAGE / "causes").glob("*.py")
        if any(True for _ in _records(parsed(path)))
    }
    assert with_records == set(FILES)


def test_an_id_is_written_in_its_record_and_in_others_that_it_explains_or_is_like() -> None:
    """A check names a record that it returns (`OUT_OF_MEMORY`); what else was said it may ask."""
    wrong = [
        f"{path.relative_to(PACKAGE)}: {id}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for id in _written(path)
    ]
    assert wrong == []


def _written(path: Path) -> Iterator[str]:
    """The ids that a file may not write. A record, or a group that several share, names others."""
    name = path.relative_to(PACKAGE).with_suffix("")
    if name.parts[0] in (*BELOW, "causes") or name.as_posix() in SHARED:
        return
    words = (node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant))
    found = {word for word in words if isinstance(word, str)} & IDS
    if name.parts[0] == "findings":
        here = vars(import_module(f"gpusetup.findings.{name.stem}")).values()
        found &= {one.id for one in here if isinstance(one, Cause)}
    yield from sorted(found)


def _records(tree: ast.AST) -> Iterator[ast.Call]:
    """The records that a file writes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == Cause.__name__:
            yield node
