"""The census: every operator in the database of torch's own tests, on the device and on the CPU.

It compares as torch's test `test_compare_cpu` does, with torch's own samples, tolerances and skips.
It is for people who bring up a new platform: an operator that differs is named, and nothing is
called broken for it. The database is private to torch and changes with each release.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import warnings
from typing import Any, Dict, Optional, Tuple

import torch

from ..device.importing import first_line
from ..judging.refusals import refuses
from ..values import (
    DIFFERS,
    FAILED,
    PASSED,
    SKIPPED,
    Outcome,
    kind,
    run_options,
    sticky,
    working_on,
)

DATABASE = "torch.testing._internal.common_methods_invocations"
"""The module of torch's tests that describes every operator."""
COMPARED = ("TestCommon", "test_compare_cpu")
"""The class and name of torch's own test that compares a device with the CPU."""
TOLERANCE = 1e-3
"""The absolute and relative tolerance of that test, unless a decorator gives a larger one."""
MOST_NAMED = 20
"""How many operators that differ the report names."""
LONGEST_DIFFERENCE = 160
"""The most characters that the report quotes of torch's description of a difference."""


def database() -> Dict[str, Any]:
    """Name -> torch's `OpInfo` of each operator. Raises whatever torch's tests raise at import."""
    # Torch's tests read the program's arguments, and print what they could not import.
    sys.argv[1:] = []
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = list(importlib.import_module(DATABASE).op_db)
    return {".".join(filter(None, (row.name, row.variant_test_name))): row for row in rows}


def tolerances_of(info: Any, device_kind: str, dtype: Any) -> Optional[Tuple[float, float]]:
    """The absolute and relative tolerance by the operator's decorators; None if torch's own test
    skips it, or expects it to fail."""
    atol = rtol = TOLERANCE
    for decoration in info.decorators:
        is_active = getattr(decoration, "is_active", None)
        if is_active is None or not is_active(*COMPARED, device_kind, dtype, {}):
            continue
        for decorator in decoration.decorators:
            # toleranceOverride and precisionOverride keep their tolerances by format in `d`.
            tolerances = getattr(decorator, "d", None)
            if isinstance(tolerances, dict):
                # A pair of absolute and relative, or one number for both.
                own = tolerances.get(dtype, TOLERANCE)
                own_atol, own_rtol = own if isinstance(own, tuple) else (own, own)
                atol, rtol = max(atol, own_atol), max(rtol, own_rtol)
            # Another decorator of this test skips it, or expects it to fail. One of all tests, such
            # as for missing LAPACK, does not.
            elif decoration.test_name == COMPARED[1]:
                return None
    return atol, rtol


def difference_from_cpu(info: Any, device: str) -> Optional[str]:
    """How an operator's results differ; empty if they do not, None if nothing can be compared."""
    common = info.supported_dtypes(kind(device)) & info.supported_dtypes("cpu")
    if not common:
        return None
    # Torch compares one format of each operator, float32 before all others.
    dtype = torch.float32 if torch.float32 in common else min(common, key=str)
    tolerances = tolerances_of(info, kind(device), dtype)
    if tolerances is None:
        return None

    def result_on(target: str, sample: Any) -> Any:
        def moved(value: Any) -> Any:
            # The operator may write to its arguments, so it gets copies.
            if isinstance(value, torch.Tensor):
                return value.clone().to(target)
            # Some operators are told on which device to create their result.
            names_cpu = isinstance(value, (torch.device, str)) and str(value) == "cpu"
            return target if names_cpu else value

        copy = sample.transform(moved)
        # Some operators draw random numbers.
        torch.manual_seed(run_options().seed)
        return copy.output_process_fn_grad(info(copy.input, *copy.args, **copy.kwargs))

    compared = 0
    for sample in info.sample_inputs("cpu", dtype):
        try:
            known, computed = result_on("cpu", sample), result_on(device, sample)
        except Exception as problem:
            if sticky(problem):
                raise
            if isinstance(problem, NotImplementedError) or refuses(problem):
                continue
            return f"raises {first_line(problem)}"
        compared += 1
        try:
            limits = {"atol": tolerances[0], "rtol": tolerances[1], "equal_nan": True}
            torch.testing.assert_close(computed, known, check_device=False, **limits)
        # For results that are no numbers, it raises TypeError or ValueError.
        except (AssertionError, TypeError, ValueError) as problem:
            return " ".join(str(problem).split())[:LONGEST_DIFFERENCE]
    return "" if compared else None


def operators(device: str) -> Outcome:
    """Name the operators that differ. An operator that ends the process is a failure."""
    try:
        rows = database()
    except (Exception, SystemExit) as problem:  # a test's module may end the program
        reason = f"this torch's database cannot be loaded: {first_line(problem)}"
        return Outcome(SKIPPED, reason)
    compared, differences = 0, []
    for name, info in rows.items():
        working_on(name)
        try:
            difference = difference_from_cpu(info, device)
        except Exception as problem:
            if not sticky(problem):
                # The sample itself could not be made here.
                continue
            detail = f"{name} ended the process: {first_line(problem)}"
            return Outcome(FAILED, detail, spent=True)
        compared += difference is not None
        if difference:
            differences.append(f"{name}: {difference}")
    # Torch's tests have changed this process, so it ends.
    if not compared:
        reason = "this torch's database has nothing that can be compared here"
        return Outcome(SKIPPED, reason, spent=True)
    detail = f"{compared} of {len(rows)} operators compared with the CPU"
    if not differences:
        return Outcome(PASSED, detail, spent=True)
    count = len(differences)
    more = f"; and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
    detail = f"{detail}, {count} differ: {'; '.join(differences[:MOST_NAMED])}{more}"
    return Outcome(PASSED, detail, problem=DIFFERS, spent=True)
