#!/usr/bin/env python3
"""How the code reads, room by room: figures that find the places a reader would stumble over.

    python scripts/readability.py                 a line a room, and what misses the aims
    python scripts/readability.py --room verify   the places that make the figures of a room
    python scripts/readability.py --check         fails if a room reads worse than readability.json
    python scripts/readability.py --write         keeps today's figures in readability.json

The aims stand beside the figures of four projects whose code is a pleasure to read (pypa/installer,
pypa/packaging, nox, nvitop: density 6.6 to 7.5, comments 4 to 10):

    density   syntax nodes a line in the body of a function, the median of all functions (8.5)
    dense     the percentage of functions above 14 (5)
    filler    the percentage of bound names that say nothing of their value: `found`, `said` (2)
    comments  lines of comments in 100 lines of code (4)
    knots     nested conditionals, booleans as numbers, long parameter lists and the like, in 10,000
              lines (40)

A figure is never the aim itself: breaking one expression over three lines lowers the density and
helps nobody. What counts is that a reader who never saw a function says what it does.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "gpusetup"
KEPT = Path(__file__).with_suffix(".json")

AIMS = {"density": 8.5, "dense": 5.0, "filler": 2.0, "comments": 4.0, "knots": 40.0}
DENSE = 14.0
"""Nodes a line from which a function has to be read twice."""
MAY_WORSEN = 0.3
"""How much denser a change may make a room. One function more moves the median of a small room."""
MOST_PARAMETERS, MOST_LINES = 4, 40

FILLER_WORDS = """
one ones said says told tells there asked asks held found shown come came comes own ours theirs
known each wanted given gives beside what else other others rest more less thing things it its
such same way ways place places meant means done does kept took taken left right here now then seen
"""
FILLER = frozenset(FILLER_WORDS.split())
"""Names that could stand for any value."""

COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Spot(NamedTuple):
    """A place that a reader stumbles over."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


class Room:
    """The figures of one folder of the package."""

    def __init__(self) -> None:
        self.densities: list[float] = []
        self.dense_functions: list[Spot] = []
        self.knots: list[Spot] = []
        self.bound_names: Counter[str] = Counter()
        self.code_lines = 0
        self.comment_lines = 0

    def figures(self) -> dict[str, float]:
        functions = max(1, len(self.densities))
        names = max(1, self.bound_names.total())
        lines = max(1, self.code_lines)
        filler = sum(count for name, count in self.bound_names.items() if name in FILLER)
        return {
            "density": round(statistics.median(self.densities or [0.0]), 1),
            "dense": round(100 * len(self.dense_functions) / functions, 1),
            "filler": round(100 * filler / names, 1),
            "comments": round(100 * self.comment_lines / lines, 1),
            "knots": round(10_000 * len(self.knots) / lines, 0),
        }


def rooms_of(package: Path) -> dict[str, Room]:
    """The rooms of a package by name; files at its top are the room `(top)`."""
    rooms: dict[str, Room] = defaultdict(Room)
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        room_name = parts[0] if len(parts) > 1 else "(top)"
        read_file(rooms[room_name], path, "/".join(parts))
    return dict(sorted(rooms.items()))


def read_file(room: Room, path: Path, name: str) -> None:
    """Adds one file to the figures of its room."""
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.strip():
            room.code_lines += 1
        if line.lstrip().startswith("#"):
            room.comment_lines += 1
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            room.bound_names[node.id] += 1
        elif isinstance(node, ast.arg):
            room.bound_names[node.arg] += 1
        elif isinstance(node, Function):
            read_function(room, node, name)
        for what in knots_of(node):
            room.knots.append(Spot(name, getattr(node, "lineno", 0), what))


def read_function(room: Room, function: Function, file: str) -> None:
    body = body_of(function)
    if not body:
        return
    nodes = sum(count_nodes(statement) for statement in body)
    density = nodes / line_count(body)
    room.densities.append(density)
    # A function of one short line is dense by its form, and easy to read all the same.
    if density > DENSE and count_nodes(function) > 30:
        room.dense_functions.append(
            Spot(file, function.lineno, f"{function.name}: {density:.0f} nodes a line")
        )


def body_of(function: Function) -> list[ast.stmt]:
    """The statements of a function without its docstring."""
    has_docstring = ast.get_docstring(function) is not None
    return function.body[1:] if has_docstring else function.body


def line_count(body: list[ast.stmt]) -> int:
    last = body[-1].end_lineno or body[-1].lineno
    return last - body[0].lineno + 1


def count_nodes(tree: ast.AST) -> int:
    return sum(1 for _ in ast.walk(tree))


# --- knots ----------------------------------------------------------------------------------------


def knots_of(node: ast.AST) -> Iterator[str]:
    """What makes this one node hard to read."""
    if isinstance(node, ast.IfExp):
        if isinstance(node.body, ast.IfExp) or isinstance(node.orelse, ast.IfExp):
            yield "a conditional inside a conditional"
    elif isinstance(node, ast.BinOp):
        is_arithmetic = isinstance(node.op, (ast.Mult, ast.Add, ast.Sub))
        if is_arithmetic and (is_truth(node.left) or is_truth(node.right)):
            yield "a truth value in arithmetic"
    elif isinstance(node, COMPREHENSIONS):
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        if any(isinstance(inner, COMPREHENSIONS) for inner in ast.walk(element)):
            yield "a comprehension inside a comprehension"
    elif isinstance(node, ast.BoolOp):
        if condition_parts(node) > MOST_PARAMETERS:
            yield "a condition of many parts"
    elif isinstance(node, Function):
        yield from knots_of_function(node)


def knots_of_function(function: Function) -> Iterator[str]:
    arguments = function.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parameters = [name for name in names if name.arg not in ("self", "cls")]
    if len(parameters) > MOST_PARAMETERS:
        yield f"{len(parameters)} parameters"
    body = body_of(function)
    if body and line_count(body) > MOST_LINES:
        yield f"{line_count(body)} lines"


def is_truth(node: ast.expr) -> bool:
    """Whether an expression is a condition, so that it is True or False."""
    is_negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return is_negation or isinstance(node, (ast.Compare, ast.BoolOp))


def condition_parts(condition: ast.BoolOp) -> int:
    parts = 0
    for value in condition.values:
        parts += len(value.values) if isinstance(value, ast.BoolOp) else 1
    return parts


# --- the report -----------------------------------------------------------------------------------


def print_table(rooms: dict[str, Room]) -> None:
    heading = "".join(f"{name:>10}" for name in AIMS)
    print(f"{'room':<16}{heading}")
    for name, room in rooms.items():
        figures = room.figures()
        print(f"{name:<16}" + "".join(f"{figures[figure]:>10.1f}" for figure in AIMS))
    print(f"{'aim':<16}" + "".join(f"{aim:>10.1f}" for aim in AIMS.values()))


def print_places(room: Room) -> None:
    for spot in (*room.dense_functions, *room.knots):
        print(spot)
    fillers = [(name, count) for name, count in room.bound_names.most_common() if name in FILLER]
    print("filler:", ", ".join(f"{name} {count}" for name, count in fillers) or "none")


def worse_rooms(rooms: dict[str, Room]) -> list[str]:
    """The rooms that are denser than `readability.json` says, by more than a change may cost."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    worse = []
    for name, room in rooms.items():
        before = kept.get(name, {}).get("density", AIMS["density"])
        now = room.figures()["density"]
        if now > max(before, AIMS["density"]) + MAY_WORSEN:
            worse.append(f"{name}: density {before} before, {now} now")
    return worse


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--room", help="list the places that make the figures of a room")
    parser.add_argument("--check", action="store_true", help="fail if a room reads worse")
    parser.add_argument("--write", action="store_true", help="keep today's figures")
    options = parser.parse_args()
    rooms = rooms_of(PACKAGE)
    if options.room:
        print_places(rooms[options.room])
        return 0
    if options.write:
        figures = {name: room.figures() for name, room in rooms.items()}
        KEPT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print_table(rooms)
    worse = worse_rooms(rooms) if options.check else []
    for line in worse:
        print(f"reads worse: {line}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
