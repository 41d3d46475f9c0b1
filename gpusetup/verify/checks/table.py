"""Which checks each level runs, and functions that choose among them."""

from __future__ import annotations

import importlib
from typing import Callable, Dict, Tuple

from ..companions import COMPANIONS
from ..values import Check, Outcome, WrongQuestion, kind
from .rows import CENSUS, DISTRIBUTED, KNOWN, PROGRAMS, QUICK, RANKS, STANDARD, STRESS

LEVELS: Dict[str, Tuple[Check, ...]] = {
    "quick": QUICK,
    "standard": QUICK + STANDARD + KNOWN + PROGRAMS + DISTRIBUTED,
    "census": QUICK + STANDARD + KNOWN + PROGRAMS + DISTRIBUTED + CENSUS,
    "stress": QUICK + STRESS,
}


def every() -> Tuple[Check, ...]:
    """Every check once, in the order of the levels."""
    rows = (*LEVELS["census"], *LEVELS["standard"], *LEVELS["stress"], *RANKS, *COMPANIONS)
    return tuple({check.name: check for check in rows}.values())


def named(name: str) -> Check:
    """The check with this name."""
    return next(check for check in every() if check.name == name)


def on_device(level: str, device: str) -> Tuple[Check, ...]:
    """The checks of a level that run on a device such as `cuda:0`, or on `host:WANTED`; at any
    level, those on `ranks:cpu` or `ranks:cuda`.

    >>> [check.name for check in on_device("quick", "cpu")]
    ['properties', 'matmul', 'amp']
    """
    place = device if device.startswith(("host:", "ranks:")) else kind(device)
    return tuple(check for check in (*LEVELS[level], *RANKS) if place in check.on)


def chosen_rows(
    checks: Tuple[Check, ...], only: Tuple[str, ...], skip: Tuple[str, ...]
) -> Tuple[Check, ...]:
    """The checks named in `only` and the checks that they need, or all checks if `only` is empty.
    The checks named in `skip` are left out.

    >>> [check.name for check in chosen_rows(QUICK, ("matmul",), ("amp",))]
    ['import', 'gpu', 'properties', 'arch', 'matmul']
    """
    chosen = {check_name(text) for text in only}
    # A check may need a check that needs further checks.
    to_do = list(chosen)
    while to_do:
        new_names = set(named(to_do.pop()).needs) - chosen
        chosen |= new_names
        to_do += new_names
    return tuple(c for c in checks if (not only or c.name in chosen) and c.name not in skip)


def check_name(text: str) -> str:
    """The name of the check in a value of `--only`, which may also name a single question of it."""
    return text.partition("/")[0]


def levels_with(name: str) -> Tuple[str, ...]:
    """The names of the levels that contain this check."""
    return tuple(level for level, rows in LEVELS.items() if name in [row.name for row in rows])


def level_for(only: Tuple[str, ...]) -> str:
    """The first level that contains every check named in `only`; `quick` if there is none.

    >>> level_for(("optimizer-steps", "matmul")), level_for(()), level_for(("load", "float8"))
    ('standard', 'quick', 'quick')
    """
    # A check that is in no level (a check among ranks) runs at every level.
    found = list(filter(None, (levels_with(check_name(text)) for text in only)))
    return next((level for level in LEVELS if all(level in each for each in found)), "quick")


def refuse_unknown(only: Tuple[str, ...], skip: Tuple[str, ...], level: str) -> None:
    """Raise WrongQuestion for a name that no check has, or for a check in `only` that this level
    does not have, because then nothing would be computed.

    >>> refuse_unknown(("operators/addmm",), (), "census")
    """
    names = {check.name for check in every()}
    for text in (*only, *skip):
        if check_name(text) not in names:
            hint = f"use one of {', '.join(sorted(names))}"
            raise WrongQuestion(f"there is no check {text!r}", hint)
    for text in only:
        levels = levels_with(check_name(text))
        if levels and level not in levels:
            problem = f"`{check_name(text)}` is not a check of level {level}"
            raise WrongQuestion(problem, f"add `--level {levels[0]}`, which has it")


def function_of(check: Check) -> Callable[[str], Outcome]:
    """The function of a check. Imports its module."""
    # Import the module only now, so that only the child loads torch.
    module, _, name = check.run.partition(":")
    # The folder may have been copied elsewhere, under any package name.
    room = (__package__ or "").rpartition(".")[0]
    function: Callable[[str], Outcome] = getattr(importlib.import_module(f"{room}.{module}"), name)
    return function
