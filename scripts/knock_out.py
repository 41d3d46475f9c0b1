#!/usr/bin/env python3
"""Which retold texts go wrong without one of the mechanisms that keep answers to their evidence.

    scripts/knock_out.py CHECK

CHECK is the program that judges the retold texts (it needs `entries`, `answered`, `judged` and
`right`). Each mechanism is taken out in this process, all texts are answered again, and the texts
that were right with it and are wrong without it are listed. Exit 1 if a mechanism matters to fewer
than three.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis import diagnose as diagnosing
from gpusetup.diagnosis import refute
from gpusetup.fixes import needs
from gpusetup.model.codec import to_json
from gpusetup.render.doctor import doctor_screen
from gpusetup.report import files, read

LEAST = 3
"""How many texts each mechanism must matter to."""
CATALOG = load_catalog()


def loaded(path: str) -> ModuleType:
    """The checking program as a module, whose answers are made in this process."""
    loader = importlib.machinery.SourceFileLoader("retold_texts", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    check = importlib.util.module_from_spec(spec)
    loader.exec_module(check)
    check.run = answer  # type: ignore[attr-defined]
    return check


def answer(
    _: list[str], options: list[str], text: str, __: float, *, with_exit: bool = False
) -> str | tuple[str, int]:
    """What `gpusetup doctor --report -` prints, without a process for each text; also its exit code
    if the check asks for it."""
    snapshot = read.read_report(text)
    shown = diagnosing.diagnose(snapshot, CATALOG)
    printed = to_json(shown) if options else doctor_screen(shown).shown(width=100, colour=False)
    return (printed, 0 if shown.cause == diagnosing.OK else 1) if with_exit else printed


@contextmanager
def replaced(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Some attributes of modules with other values, for a while."""
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def nothing_refutes(*_: object) -> tuple[None, str]:
    return None, ""


def no_file_is_read(*_: object) -> tuple[()]:
    return ()


def every_fix_is_shown(_: object, fix: Any) -> Any:
    return fix


def nothing_is_unread(*_: object) -> tuple[()]:
    return ()


def without_files() -> tuple[Any, ...]:
    return tuple(no_file_is_read if reader is files.files else reader for reader in read.READERS)


MECHANISMS: dict[str, Callable[[], Any]] = {
    "1 refutation": lambda: replaced((refute, "refutation_of", nothing_refutes)),
    "2 owner of the failing file": lambda: replaced((read, "READERS", without_files())),
    "3 needs of a change": lambda: replaced(
        (needs, "judge", every_fix_is_shown),
        (needs, "unread", nothing_is_unread),
    ),
}
"""Mechanism -> how it is taken out."""


def right_ones(check: ModuleType) -> set[str]:
    """The names of the texts that are answered rightly."""
    right = set()
    for name, _, text, expected in check.entries(None):
        given = check.answered([], text, 0)
        if check.right(check.judged(given, expected), given, expected):
            right.add(name)
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("check", help="the program that judges the retold texts")
    check = loaded(parser.parse_args().check)
    whole = right_ones(check)
    print(f"with every mechanism: {len(whole)} of {len(check.entries(None))} right")
    weak = 0
    for name, taken_out in MECHANISMS.items():
        with taken_out():
            wrong = sorted(whole - right_ones(check))
        weak += len(wrong) < LEAST
        print(f"without {name}: {len(wrong)} go wrong: {', '.join(wrong) or 'none'}")
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main())
