"""The table of checks: which ones each level runs, on which device and in which order, with
functions to select from it."""

from __future__ import annotations

import importlib
from typing import Callable, Dict, Iterator, Tuple

from ..companions import COMPANIONS
from ..values import HOST, Check, Outcome, WrongQuestion, kind
from .rows import CENSUS, DISTRIBUTED, KNOWN, PROGRAMS, QUICK, RANKS, STANDARD, STRESS

LEVELS: Dict[str, Tuple[Check, ...]] = {
    "quick": QUICK,
    "standard": QUICK + STANDARD + KNOWN + PROGRAMS + DISTRIBUTED,
    "census": QUICK + STANDARD + KNOWN + PROGRAMS + DISTRIBUTED + CENSUS,
    "stress": QUICK + STRESS,
}


def on_host(level: str, wanted_device: str) -> Tuple[Check, ...]:
    """The checks of a level that run once per host, for this `--device`.

    >>> [check.name for check in on_host("quick", "cuda:1")]
    ['import', 'gpu']
    """
    subject = f"{HOST}:{kind(wanted_device)}"
    return rows_on(LEVELS[level], subject)


def on_device(level: str, device: str) -> Tuple[Check, ...]:
    """The checks of a level that run on a device.

    >>> [check.name for check in on_device("quick", "cpu")]
    ['properties', 'matmul', 'amp']
    """
    return rows_on(LEVELS[level], kind(device))


def among_ranks(device: str) -> Tuple[Check, ...]:
    """The checks that several ranks run together, at any level.

    >>> among_ranks("cpu")[0].name
    'meet'
    """
    subject = f"ranks:{kind(device)}"
    return rows_on(RANKS, subject)


def rows_on(rows: Tuple[Check, ...], subject: str) -> Tuple[Check, ...]:
    """The checks that run on a subject such as `cpu`, `host:auto` or `ranks:cuda`."""
    checks = [check for check in rows if subject in check.on]
    return tuple(checks)


def chosen_rows(
    checks: Tuple[Check, ...], only: Tuple[str, ...], skip: Tuple[str, ...]
) -> Tuple[Check, ...]:
    """The checks named in `only` and the checks that they need, or all checks if `only` is empty.
    The checks named in `skip` are left out.

    >>> [check.name for check in chosen_rows(QUICK, ("matmul",), ("amp",))]
    ['import', 'gpu', 'properties', 'arch', 'matmul']
    """
    chosen_names = {check_name(text) for text in only}
    # A check may need a check that needs further checks.
    to_do = list(chosen_names)
    while to_do:
        needed_names = set(named(to_do.pop()).needs)
        new_names = needed_names - chosen_names
        chosen_names |= new_names
        to_do += new_names
    chosen = []
    for check in checks:
        is_chosen = not only or check.name in chosen_names
        if is_chosen and check.name not in skip:
            chosen.append(check)
    return tuple(chosen)


def check_name(text: str) -> str:
    """The name of the check in a value of `--only`, which may also name a single question of it.

    >>> check_name("operators/addmm")
    'operators'
    """
    return text.partition("/")[0]


def named_rows(names: Tuple[str, ...]) -> None:
    """Raise WrongQuestion if one of these names is not the name of a check."""
    all_names = {check.name for check in every()}
    for name in names:
        if check_name(name) not in all_names:
            # The hint lists the names that exist.
            names_in_words = ", ".join(sorted(all_names))
            hint = f"one of {names_in_words}"
            raise WrongQuestion(f"There is no check {name!r}", hint)


def levels_with(name: str) -> Tuple[str, ...]:
    """The names of the levels that contain this check.

    >>> levels_with("float8"), levels_with("load")
    (('standard', 'census'), ('stress',))
    """
    levels = []
    for level, rows in LEVELS.items():
        names = [check.name for check in rows]
        if name in names:
            levels.append(level)
    return tuple(levels)


def level_for(only: Tuple[str, ...]) -> str:
    """The first level that contains every check named in `only`; `quick` if there is none.

    >>> level_for(("optimizer-steps", "matmul")), level_for(()), level_for(("load", "float8"))
    ('standard', 'quick', 'quick')
    """
    levels_by_name = []
    for text in only:
        levels = levels_with(check_name(text))
        # A check that is in no level (a check among ranks) runs at every level.
        if levels:
            levels_by_name.append(levels)
    for level in LEVELS:
        if all(level in levels for levels in levels_by_name):
            return level
    return "quick"


def within_level(only: Tuple[str, ...], level: str) -> None:
    """Raise WrongQuestion if a check named in `only` is not in this level, because then nothing
    would be computed.

    >>> within_level(("operators/addmm",), "census")
    """
    for text in only:
        name = check_name(text)
        levels = levels_with(name)
        if levels and level not in levels:
            hint = f"add `--level {levels[0]}`, which has it"
            raise WrongQuestion(f"`{name}` is not a check of level {level}", hint)


def named(name: str) -> Check:
    """The check with this name."""
    rows = {check.name: check for check in every()}
    return rows[name]


def every() -> Iterator[Check]:
    """Every check once, in the order of the levels."""
    # Several levels may contain the same check.
    rows: Dict[str, Check] = {}
    for level_rows in (*LEVELS.values(), RANKS, COMPANIONS):
        for check in level_rows:
            rows[check.name] = check
    return iter(rows.values())


def function_of(check: Check) -> Callable[[str], Outcome]:
    """The function of a check. Imports its module."""
    # Import the module only now, so that only the child loads torch.
    module, _, name = check.run.partition(":")
    # The folder may have been copied elsewhere, under any package name.
    room = (__package__ or "").rpartition(".")[0]
    loaded_module = importlib.import_module(f"{room}.{module}")
    function: Callable[[str], Outcome] = getattr(loaded_module, name)
    return function
