"""The syntax of our own modules, read once in a run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, also those in functions and blocks; what it computes is not looked at.

    >>> kinds = statements(ast.parse("def f():\\n  try:\\n    pass\\n  finally:\\n    import a"))
    >>> sorted(type(each).__name__ for each in kinds)
    ['FunctionDef', 'Import', 'Module', 'Pass', 'Try']
    """
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for block in BLOCKS:
            waiting.extend(getattr(node, block, ()))
