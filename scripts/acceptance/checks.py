"""Runs checks of verify in this process: many times with other seeds, or with a fault."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gpusetup.verify.checks.rows import QUICK, STANDARD
from gpusetup.verify.checks.table import function_of, named
from gpusetup.verify.values import Asked, Check, Outcome, ask_for, kind
from gpusetup.verify.worker import raised

OWN_PROCESS = ("dataloader", "memory", "out-of-memory", "compile", "save-load", "speed",
               "speed-half", "copy-in", "copy-out", "copy-within")  # fmt: skip
"""Checks of programs, of sizes and of rates: other random numbers change nothing about them."""


def numeric(device: str) -> tuple[str, ...]:
    """The checks that compare numbers, on this kind of device, and need no variable set."""
    return tuple(
        check.name
        for check in (*QUICK, *STANDARD)
        if kind(device) in check.on
        and not check.environment
        and check.name not in (*OWN_PROCESS, "properties", "arch")
    )


def ran(name: str, device: str, seed: int | None = None) -> Outcome:
    """One check's outcome; an exception is a failure, as in verify."""
    check: Check = named(name)
    ask_for(Asked() if seed is None else Asked(seed=seed))
    os.environ.update(dict(check.environment))
    try:
        return function_of(check)(device)
    except Exception as problem:
        return raised(problem)


def runs(names: tuple[str, ...], device: str, seed: int) -> Iterator[tuple[str, Outcome]]:
    return ((name, ran(name, device, seed)) for name in names)
