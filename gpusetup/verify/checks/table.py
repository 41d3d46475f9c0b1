"""The table of checks: what each level runs, where, and after what. Rows, in running order."""

from __future__ import annotations

import importlib
from typing import Callable, Dict, Iterator, Tuple

from ..companions import COMPANIONS
from ..values import HOST, Check, Outcome, WrongQuestion, kind
from .known.rows import KNOWN
from .rows import DISTRIBUTED, PROGRAMS, QUICK, RANKS, RATION, STANDARD, STRESS

LEVELS: Dict[str, Tuple[Check, ...]] = {
    "quick": QUICK,
    "standard": QUICK + STANDARD + KNOWN + PROGRAMS + RATION + DISTRIBUTED,
    "census": QUICK + STANDARD + KNOWN + PROGRAMS + RATION + DISTRIBUTED,
    "stress": QUICK + STRESS,
}


def on_host(level: str, wanted: str) -> Tuple[Check, ...]:
    """The checks that run once.

    >>> [check.name for check in on_host("quick", "cuda:1")]
    ['import', 'gpu']
    """
    return tuple(check for check in LEVELS[level] if f"{HOST}:{kind(wanted)}" in check.on)


def on_device(level: str, device: str) -> Tuple[Check, ...]:
    """The checks that run on a device.

    >>> [check.name for check in on_device("quick", "cpu")]
    ['properties', 'matmul', 'amp']
    """
    return tuple(check for check in LEVELS[level] if kind(device) in check.on)


def among_ranks(device: str) -> Tuple[Check, ...]:
    """The checks of several ranks together, whatever the level.

    >>> among_ranks("cpu")[0].name
    'meet'
    """
    return tuple(check for check in RANKS if f"ranks:{kind(device)}" in check.on)


def chosen_rows(
    checks: Tuple[Check, ...], only: Tuple[str, ...], skip: Tuple[str, ...]
) -> Tuple[Check, ...]:
    """Those that are asked for and what they need, without those that are not.

    >>> [check.name for check in chosen_rows(QUICK, ("matmul",), ("amp",))]
    ['import', 'gpu', 'properties', 'arch', 'matmul']
    """
    wanted = {each.partition("/")[0] for each in only}
    todo = list(wanted)
    while todo:
        more = set(named(todo.pop()).needs) - wanted
        wanted |= more
        todo += more
    return tuple(c for c in checks if (c.name in wanted or not only) and c.name not in skip)


def named_rows(names: Tuple[str, ...]) -> None:
    """Complains of a name that no check has."""
    known = {check.name for check in every()}
    for name in names:
        if name.partition("/")[0] not in known:
            raise WrongQuestion(f"There is no check {name!r}", "one of " + ", ".join(sorted(known)))


def levels_with(name: str) -> Tuple[str, ...]:
    """The levels that have a check.

    >>> levels_with("float8"), levels_with("load")
    (('standard', 'census'), ('stress',))
    """
    levels = []
    for level, rows in LEVELS.items():
        if name in {check.name for check in rows}:
            levels.append(level)
    return tuple(levels)


def level_for(only: Tuple[str, ...]) -> str:
    """The first level that has every check of `--only`; quick if there is none.

    >>> level_for(("optimizers", "matmul")), level_for(()), level_for(("load", "float8"))
    ('standard', 'quick', 'quick')
    """
    names = [each.partition("/")[0] for each in only]
    # A check that no level has (one of the ranks) runs at every level.
    levels_by_name = [levels for levels in map(levels_with, names) if levels]
    for level in LEVELS:
        if all(level in levels for levels in levels_by_name):
            return level
    return "quick"


def within_level(only: Tuple[str, ...], level: str) -> None:
    """Complains of a check that only another level has: nothing would be computed, and passed.

    >>> within_level(("operators/addmm/7",), "standard")
    """
    for each in only:
        name = each.partition("/")[0]
        levels = levels_with(name)
        if levels and level not in levels:
            raise WrongQuestion(
                f"`{name}` is no check of level {level}", f"add `--level {levels[0]}`, which has it"
            )


def named(name: str) -> Check:
    """The row of a name."""
    return next(check for check in every() if check.name == name)


def every() -> Iterator[Check]:
    """Each row once, in the order of the levels."""
    rows = {check.name: check for level in (*LEVELS.values(), RANKS, COMPANIONS) for check in level}
    return iter(rows.values())


def function_of(check: Check) -> Callable[[str], Outcome]:
    """The function of a row; loads its module."""
    module, _, name = check.run.partition(":")
    home = (__package__ or "").rpartition(".")[0] + "." + module
    found: Callable[[str], Outcome] = getattr(importlib.import_module(home), name)
    return found
