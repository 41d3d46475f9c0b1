#!/usr/bin/env python3
"""How much there is to read, by folder. It tells; it never fails a change.

    python scripts/mass.py

Nodes are syntax nodes without docstrings; data are other files and strings of more than 120
characters.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("gpusetup", "tests", "scripts", "docs")
LONG = 120


def docstrings(tree: ast.Module) -> Iterator[int]:
    """Ids of strings that open a body, or stand below a value."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for before, one in pairwise([None, *body]) if isinstance(body, list) else ():
            match one:
                case ast.Expr(value=ast.Constant(value=str()) as text):
                    if before is None or isinstance(before, (ast.Assign, ast.AnnAssign)):
                        yield from (id(one), id(text))


def mass() -> Counter[str]:
    total: Counter[str] = Counter()
    for path in (path for top in TOPS for path in sorted((ROOT / top).rglob("*"))):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        top = path.relative_to(ROOT).parts[0]
        if path.suffix == ".py":
            tree = ast.parse(path.read_bytes())
            free = set(docstrings(tree))
            read = [one for one in ast.walk(tree) if id(one) not in free]
            texts = [one.value for one in read if isinstance(one, ast.Constant)]
            long = [len(t) for t in texts if isinstance(t, (str, bytes)) and len(t) > LONG]
            total[f"{top}, nodes"] += len(read)
            total[f"{top}, data bytes"] += sum(long)
        elif top == "docs":
            total["docs, words"] += len(path.read_bytes().split()) if path.suffix == ".md" else 0
        else:
            total[f"{top}, data bytes"] += path.stat().st_size
    return total


def main() -> None:
    for name, count in sorted(mass().items()):
        print(f"{name:22} {count:>10,}")


if __name__ == "__main__":
    main()
