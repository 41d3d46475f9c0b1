#!/usr/bin/env python3
"""How much there is to read, against limits that only ever go down: `scripts/mass.json`.

    python scripts/mass.py            exit 1 where a total is above its limit
    python scripts/mass.py --write    lower each limit to what there is now; none is raised

Nodes are syntax nodes without docstrings; data are other files and strings of more than 120
characters.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).with_suffix(".json")
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
        if path == LIMITS or not path.is_file() or "__pycache__" in path.parts:
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


def main() -> int:
    now, limits = mass(), json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    if sys.argv[1:] == ["--write"]:
        limits = {name: min(count, limits.get(name, count)) for name, count in now.items()}
        LIMITS.write_text(json.dumps(limits, indent=1, sort_keys=True) + "\n")
    above = [name for name, count in now.items() if count > limits.get(name, 0)]
    for name, count in sorted(now.items()):
        mark = "  TOO MUCH" if name in above else ""
        print(f"{name:22} {count:>10,} of {limits.get(name, 0):>10,}{mark}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
