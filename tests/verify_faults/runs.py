"""Runs the checks that stand on the CPU in this process, with or without a mutant."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping

from verify_faults.mutants import Mutant

from gpusetup.verify.checks import memory
from gpusetup.verify.checks.table import LEVELS, function_of, named
from gpusetup.verify.values import Outcome, RunOptions, set_for_checks
from gpusetup.verify.worker import outcome_of_error

memory.CHUNK_BYTES["cpu"] = 16 * memory.MIB
memory.CPU_BYTES = 32 * memory.MIB  # two small blocks show what large ones would
PAST_THE_DISPATCHER = ("compile",)
"""Compiled kernels do not pass the dispatcher, and it cannot be compiled under its modes."""


def checks() -> tuple[str, ...]:
    """The checks that compute on a CPU."""
    return tuple(check.name for check in LEVELS["standard"] if "cpu" in check.on)


def run_all(
    mutant: Mutant | None = None, names: Iterable[str] | None = None, seed: int | None = None
) -> dict[str, Outcome]:
    """Each check's outcome. The variables that a check asks for are set."""
    options = RunOptions(level="standard")
    set_for_checks(options=options if seed is None else options._replace(seed=seed))
    return {name: run(name, mutant) for name in (checks() if names is None else names)}


def run(name: str, mutant: Mutant | None) -> Outcome:
    check = named(name)
    os.environ.update(dict(check.environment))
    untouched = mutant is None or (name in PAST_THE_DISPATCHER and mutant.through_dispatcher)
    context = contextlib.nullcontext() if untouched or mutant is None else mutant.make()
    try:
        with context:
            return function_of(check)("cpu")
    except Exception as problem:  # as the worker does
        return outcome_of_error(problem, "cpu")


def bad(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """The checks that did not pass, and what they said."""
    return {
        name: found.detail for name, found in outcomes.items() if found.status not in ("passed",)
    }
