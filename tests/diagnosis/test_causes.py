"""Records of causes: every file of them is read, and every check finds one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from source_trees import parsed

from gpusetup.causes.record import Cause
from gpusetup.causes.table import CAUSES, FILES

PACKAGE = Path(__file__).resolve().parents[2] / "gpusetup"
IDS = {cause.id for cause in CAUSES}
FINDS = ("finding", "from_message", "seen")


def test_every_file_of_records_is_in_the_table() -> None:
    with_records = {
        path.stem
        for path in (PACKAGE / "causes").glob("*.py")
        if any(True for _ in _records(parsed(path)))
    }
    assert with_records == set(FILES)


def test_what_a_check_finds_has_a_record() -> None:
    named = {
        node.args[1].value
        for path in (PACKAGE / "findings").glob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in FINDS
        if isinstance(node.args[1], ast.Constant)
    }
    assert named and named <= IDS


def _records(tree: ast.AST) -> Iterator[ast.Call]:
    """The records that a file writes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == Cause.__name__:
            yield node
