#!/usr/bin/env python3
"""How many small faults in a room of the package do its tests notice?

    python scripts/mutants.py install/switching --seed 7 --tests tests/test_install_transaction.py
    python scripts/mutants.py report findings --seed 7 --tests tests/test_r*.py --tree ../older

A seed draws the faults: one comparison, sign, condition, constant, answer or call of a file is
another one or left out. Each stands alone in a copy of the tree, and the tests have `--seconds` to
fail; a fault that makes them hang is noticed too. The tests pass first without any.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OTHER: dict[type, type] = {
    one: other
    for pair in (
        (ast.Eq, ast.NotEq), (ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.In, ast.NotIn),
        (ast.Is, ast.IsNot), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv),
    )
    for one, other in (pair, pair[::-1])
}  # fmt: skip
"""What stands instead of an operator."""


def other(node: ast.AST) -> ast.AST | None:
    """What stands instead of a node; None where it stays."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=against) if type(op) in OTHER:
            return ast.Compare(left, [OTHER[type(op)]()], against)
        case ast.BoolOp(op=both, values=values):
            return ast.BoolOp(OTHER[type(both)](), values)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OTHER:
            return ast.BinOp(left, OTHER[type(sign)](), right)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool() as truth):
            return ast.Constant(not truth)
        case ast.Constant(value=int() as number):
            return ast.Constant(number + 1)
        case ast.Constant(value=str() as text) if text:
            return ast.Constant(text + "?")
        case ast.If(test=test, body=body, orelse=orelse):
            return ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Return(value=ast.AST()):
            return ast.Return()
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
    return None


class Fault(ast.NodeTransformer):
    """Puts another node in the place of one; -1: in no place, and notes all of them."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.places: list[str] = []

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return node  # a docstring
        if isinstance(node, ast.arg) or (new := other(node)) is None:
            return node if isinstance(node, ast.arg) else self.generic_visit(node)
        was, now = (ast.unparse(ast.fix_missing_locations(one)) for one in (node, new))
        line = getattr(node, "lineno", 0)
        self.places.append(f"{line}: {was.splitlines()[0]} -> {now.splitlines()[0]}")
        return new if len(self.places) - 1 == self.place else self.generic_visit(node)


def faulty(source: str, place: int) -> tuple[str, list[str]]:
    fault = Fault(place)
    tree = fault.visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n", fault.places


def copied(tree: Path, folder: Path) -> Path:
    """The files that git knows, as they are now."""
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=tree, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (tree / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, folder / name)
    return folder


def passes(folder: Path, tests: Sequence[str], seconds: float | None) -> bool:
    words = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests)
    child = subprocess.Popen((sys.executable, *words), cwd=folder, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    try:
        return child.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rooms", nargs="+", metavar="ROOM", help="a folder of gpusetup/")
    parser.add_argument("--tests", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100, metavar="N")
    parser.add_argument("--seconds", type=float, default=20, metavar="S")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = copied(options.tree, Path(made))
        if not passes(folder, options.tests, options.seconds):
            parser.error(f"without a fault the tests fail, or take {options.seconds:g} s")
        files = sorted(
            p for room in options.rooms for p in (folder / "gpusetup" / room).rglob("*.py")
        )
        places = [(p, n) for p in files for n in range(len(faulty(p.read_text(), -1)[1]))]
        noticed, draw = 0, random.Random(options.seed)
        drawn = draw.sample(places, min(options.count, len(places)))
        for path, place in drawn:
            source = path.read_text()
            text, told = faulty(source, place)
            path.write_text(text)
            Path(cache_from_source(str(path))).unlink(missing_ok=True)
            alive = passes(folder, options.tests, options.seconds)
            path.write_text(source)
            Path(cache_from_source(str(path))).unlink(missing_ok=True)
            noticed += not alive
            mark = "lives" if alive else "dies "
            print(mark, f"{path.relative_to(folder)}:{told[place]}", flush=True)
        print(f"noticed {noticed} of {len(drawn)}, of {len(places)} places")
    return 0


if __name__ == "__main__":
    sys.exit(main())
