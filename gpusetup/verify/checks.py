"""The table of checks: what each level runs, where, and after what. Rows, in running order."""

from __future__ import annotations

import importlib
from typing import Callable, Dict, Iterator, Tuple

from .rows_cluster import DISTRIBUTED, RANKS, STRESS
from .rows_quick import QUICK
from .rows_standard import STANDARD
from .values import HOST, Check, Outcome, kind

LEVELS: Dict[str, Tuple[Check, ...]] = {
    "quick": QUICK,
    "standard": QUICK + STANDARD + DISTRIBUTED,
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


def named(name: str) -> Check:
    """The row of a name."""
    return next(check for check in every() if check.name == name)


def every() -> Iterator[Check]:
    """Each row once, in the order of the levels."""
    rows = {check.name: check for level in (*LEVELS.values(), RANKS) for check in level}
    return iter(rows.values())


def function_of(check: Check) -> Callable[[str], Outcome]:
    """The function of a row; loads its module."""
    module, _, name = check.run.partition(":")
    home = (__package__ or "") + "." + module
    found: Callable[[str], Outcome] = getattr(importlib.import_module(home), name)
    return found
