"""Records of causes: every file of them is read, and every check finds one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from source_trees import parsed

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.record import Cause
from gpusetup.causes.table import CAUSES, FILES
from gpusetup.diagnosis.diagnose import build_case
from gpusetup.findings.message_rules import finding
from gpusetup.model.finding import Fix
from gpusetup.model.machine import Event, Snapshot

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


def test_no_title_shows_the_place_of_a_value() -> None:
    """An event may lack each value that a record, or a case of it, names in its title."""
    context = build_case(Snapshot(origin="report"), load_catalog(), None)[0]
    way = Fix(text="a way")
    for record in CAUSES:
        for message in (None, *record.cases):
            having = dict.fromkeys(message.having, "1") if message else {}
            for values in ({}, having):
                event = Event(kind=record.id, text="a line", values=values)
                answer = finding(context, record.id, (event,), message=message, fix=way)
                assert not re.search(r"\{\w+\}", answer.title), (record.id, answer.title)
