#!/usr/bin/env python3
"""Writes `gpusetup/data/plans.json`: by which letters each pattern of the readers is looked for.

    python scripts/write_plans.py            write it
    python scripts/write_plans.py --check    say which patterns it lacks

A pattern that the table lacks is read anew at each start, which is slower and gives the same.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import gpusetup  # noqa: E402
from gpusetup.messages.row import Row  # noqa: E402
from gpusetup.model.codec import to_json  # noqa: E402
from gpusetup.model.frozen import Frozen  # noqa: E402
from gpusetup.model.plans import DATA, Plan, in_table, planned  # noqa: E402
from gpusetup.model.sought import Sought, in_any_case  # noqa: E402
from gpusetup.named_file import SHIPPED  # noqa: E402

ROOMS = ("messages", "readings", "report", "evidence", "findings", "diagnosis", "fixes")
"""Where patterns stand that are looked for in a text."""


def patterns() -> set[tuple[str, bool]]:
    """Every pattern of these rooms, and whether its letters' case does not count."""
    known: set[int] = set()
    found = (one for name in _modules() for one in _sought(vars(sys.modules[name]), known))
    return {(one.pattern, one.ignores_case) for one in found if not one.flags & re.VERBOSE}


def _modules() -> Iterator[str]:
    for room in ROOMS:
        path = [f"{folder}/{room}" for folder in gpusetup.__path__]
        for module in pkgutil.walk_packages(path, f"gpusetup.{room}."):
            importlib.import_module(module.name)
            yield module.name


def _sought(value: object, known: set[int]) -> Iterator[Sought]:
    """The patterns in a value, and in whatever it holds."""
    if id(value) in known:
        return
    known.add(id(value))
    if isinstance(value, Sought):
        yield value
    elif isinstance(value, Frozen):
        yield from map(in_any_case, _written_in(value))
    for part in _parts(value):
        yield from _sought(part, known)


def _written_in(row: Frozen) -> Iterator[str]:
    """The patterns that a row has as text: they are looked for without regard to case."""
    if isinstance(row, Row) and not row.pattern:
        yield re.escape(row.needle)
    for name in ("pattern", "unless"):
        pattern = getattr(row, name, None)
        if pattern and isinstance(pattern, str):
            yield pattern


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, tuple | list | set | frozenset):
        yield from value
    elif isinstance(value, Frozen):
        yield from (getattr(value, name) for name in value.__struct_fields__)  # type: ignore[attr-defined]


def lacks() -> list[str]:
    """The patterns that the table lacks."""
    return [pattern for pattern, case in sorted(patterns()) if pattern not in in_table(case)]


def text_of(kept: Iterable[tuple[str, bool]]) -> str:
    """The table: one pattern a line, so that a change of one changes one."""
    tables: tuple[dict[str, Plan], dict[str, Plan]] = ({}, {})
    for pattern, ignore_case in kept:
        tables[ignore_case][pattern] = planned(pattern, ignore_case)
    parts = (
        "{\n"
        + ",\n".join(f"{to_json(p)}:{to_json(_short(plan))}" for p, plan in rows.items())
        + "\n}"
        for rows in tables
    )
    return "[" + ",\n".join(parts) + "]\n"


def _short(plan: Plan) -> tuple[object, ...]:
    """Without the last part where it is empty, as that of most is."""
    return plan if plan.beside else plan[:-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="name what it lacks, write nothing")
    if parser.parse_args().check:
        print(*lacks(), sep="\n")
        return int(bool(lacks()))
    Path(SHIPPED, DATA).write_text(text_of(sorted(patterns())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
