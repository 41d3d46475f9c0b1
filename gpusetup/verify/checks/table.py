"""Which checks each level runs, and functions that choose among them."""

from __future__ import annotations

import importlib
from typing import Callable, Dict, Sequence, Tuple

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
    rows = (*LEVELS["census"], *LEVELS["stress"], *RANKS)
    return tuple({check.name: check for check in rows}.values())


def named(name: str) -> Check:
    """The check with this name."""
    return next(check for check in every() if check.name == name)


def on_device(rows: Tuple[Check, ...], device: str) -> Tuple[Check, ...]:
    """Those of the checks that run on a device such as `cuda:0`, or on `host:WANTED` or
    `ranks:cpu`.

    >>> [check.name for check in on_device(LEVELS["quick"], "cpu")]
    ['properties', 'matmul', 'amp']
    """
    place = device if device.startswith(("host:", "ranks:")) else kind(device)
    return tuple(check for check in rows if place in check.on)


def chosen_rows(level: str, only: Sequence[str], skip: Sequence[str]) -> Tuple[Check, ...]:
    """The checks of a level and those among ranks or, if `only` names checks, those of any level
    with the checks that they need. The checks named in `skip` are left out.

    >>> [check.name for check in chosen_rows("quick", ("matmul",), ("arch",))]
    ['import', 'gpu', 'properties', 'matmul']
    """
    chosen = set(only)
    # A check may need a check that needs further checks.
    to_do = list(only)
    while to_do:
        new_names = set(named(to_do.pop()).needs) - chosen
        chosen |= new_names
        to_do += new_names
    rows = (*LEVELS[level], *RANKS)
    if only:
        rows = tuple(check for check in every() if check.name in chosen)
    return tuple(check for check in rows if check.name not in skip)


def refuse_unknown(names: Sequence[str]) -> None:
    """Raise WrongQuestion for a name that no check has."""
    known = {check.name for check in every()}
    for name in names:
        if name not in known:
            hint = f"use one of {', '.join(sorted(known))}"
            raise WrongQuestion(f"there is no check {name!r}", hint)


def function_of(check: Check) -> Callable[[str], Outcome]:
    """The function of a check. Imports its module."""
    # Import the module only now, so that only the child loads torch.
    module, _, name = check.run.partition(":")
    # The folder may have been copied elsewhere, under any package name.
    room = (__package__ or "").rpartition(".")[0]
    function: Callable[[str], Outcome] = getattr(importlib.import_module(f"{room}.{module}"), name)
    return function
