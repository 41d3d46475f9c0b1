"""The census: every operator in the database of torch's own tests, on the device and on the CPU.

It compares as torch's test `test_compare_cpu` does, with torch's own samples, tolerances and skips.
It is for people who bring up a new platform: an operator that differs is named, and nothing is
called broken for it. The database is private to torch and changes with each release.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import io
import os
import random
import re
import sys
import types
import unittest
import warnings
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import torch

from ..device.importing import first_line
from ..judging.refusals import refuses
from ..values import (
    DIFFERS,
    FAILED,
    PASSED,
    SKIPPED,
    Outcome,
    WrongQuestion,
    asked,
    kind,
    seconds_left,
    sticky,
    working_on,
)

HOME = "torch.testing._internal.common_methods_invocations"
COMPARED = ("TestCommon", "test_compare_cpu")
"""The class and name of torch's own test that compares a device with the CPU."""
TOLERANCE = 1e-3
"""The absolute and relative tolerance of that test, unless a decorator gives a larger one."""
SINCE = (2, 5)
"""The first release whose database is used: in older ones, some samples are wrong themselves."""
NAMED = 20
"""How many operators that differ the report names."""
STANDING_IN = ("expecttest", "yaml", "numpy")
"""Packages that the database imports and that an environment may lack. Only their names are used.
"""


class NoDatabase(Exception):
    """Raised if the database of this torch cannot be loaded. The message gives the reason."""


class AnyName(type):
    """Any name of a missing package; its attributes, calls and items are more of them."""

    def __getattr__(cls, name: str) -> Any:
        # Python itself looks up such names, and most classes lack them.
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyName(name, (), {})

    def __call__(cls, *args: Any, **named: Any) -> Any:
        is_new_class = len(args) == 3 and cls is AnyName
        return type.__call__(cls, *args) if is_new_class else AnyName("made", (), {})

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __ge__(cls, other: Any) -> bool:
        return True

    __gt__ = __ge__


class StandIn(types.ModuleType):
    """Takes the place of a missing package."""

    __version__ = "1.0"
    __path__: List[str] = []
    ACCEPT = False
    inf, nan, pi = float("inf"), float("nan"), 3.141592653589793
    TestCase = unittest.TestCase

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyName(name, (), {})


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """Inside the `with` block, packages that the database needs only by name can be imported."""
    missing = []
    for name in STANDING_IN:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            missing += [name, "numpy.typing"] if name == "numpy" else [name]
    for name in missing:
        module = sys.modules[name] = StandIn(name)
        # `find_spec` fails for a module without a spec.
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    try:
        yield
    finally:
        for name in missing:
            sys.modules.pop(name, None)


@contextlib.contextmanager
def left_as_before() -> Iterator[None]:
    """After the `with` block, undo what torch's tests change in a process: the program's arguments,
    variables, states of random generators, and torch's flags."""
    arguments, variables = list(sys.argv), dict(os.environ)
    states = random.getstate(), torch.get_rng_state()
    flags, frozen = torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag"
    is_open, default = flags[frozen], torch.get_default_dtype()
    # Torch's tests read the program's arguments.
    sys.argv[1:] = []
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.argv[:] = arguments
        for name in set(os.environ) - set(variables):
            del os.environ[name]
        os.environ.update(variables)
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        torch.set_default_dtype(default)
        flags[frozen] = is_open


def database() -> Dict[str, Any]:
    """Name -> torch's `OpInfo` of each operator. Raises NoDatabase."""
    major, minor = re.findall(r"\d+", torch.__version__)[:2]
    if (int(major), int(minor)) < SINCE:
        raise NoDatabase("some samples of this torch's database are wrong themselves")
    try:
        with left_as_before(), standing_in():
            rows = list(importlib.import_module(HOME).op_db)
    except (Exception, SystemExit) as problem:
        raise NoDatabase(f"this torch's database cannot be loaded: {first_line(problem)}") from None
    return {".".join(filter(None, (row.name, row.variant_test_name))): row for row in rows}


class Terms(NamedTuple):
    """How torch's own test compares an operator on a kind of device."""

    is_skipped: bool
    atol: float = TOLERANCE
    rtol: float = TOLERANCE


def terms_of(info: Any, device_kind: str, dtype: Any) -> Terms:
    """Skips, expected failures and tolerances, from the operator's decorators."""
    terms = Terms(False)
    for decoration in info.decorators:
        is_active = getattr(decoration, "is_active", None)
        if is_active is None or not is_active(*COMPARED, device_kind, dtype, {}):
            continue
        for decorator in decoration.decorators:
            tolerances = getattr(decorator, "d", None)
            if isinstance(tolerances, dict):
                found = tolerances.get(dtype, TOLERANCE)
                atol, rtol = found if isinstance(found, tuple) else (found, found)
                terms = Terms(terms.is_skipped, max(atol, terms.atol), max(rtol, terms.rtol))
            # A decorator of all tests, such as one for missing LAPACK, is no skip.
            elif decoration.test_name == COMPARED[1]:
                terms = terms._replace(is_skipped=True)
    return terms


def difference(info: Any, device: str) -> Optional[str]:
    """How an operator's results on the device differ from the CPU's; empty if they do not, and None
    if nothing can be compared."""
    common = info.supported_dtypes(kind(device)) & info.supported_dtypes("cpu")
    if not common:
        return None
    # Torch compares one format of each operator, float32 before all others.
    dtype = torch.float32 if torch.float32 in common else min(common, key=str)
    terms = terms_of(info, kind(device), dtype)
    if terms.is_skipped:
        return None
    compared = 0
    for sample in info.sample_inputs("cpu", dtype):
        samples = sample, sample.transform(lambda x: moved(x, device))
        try:
            known, found = (each.output_process_fn_grad(called(info, each)) for each in samples)
        except Exception as problem:
            if sticky(problem):
                raise
            if isinstance(problem, NotImplementedError) or refuses(problem):
                continue
            return f"raises {first_line(problem)}"
        compared += 1
        try:
            rooms = {"atol": terms.atol, "rtol": terms.rtol, "equal_nan": True}
            torch.testing.assert_close(found, known, check_device=False, **rooms)
        except (AssertionError, TypeError, ValueError) as problem:
            return " ".join(str(problem).split())[:160]
    return "" if compared else None


def called(info: Any, sample: Any) -> Any:
    """The operator's result for a sample. The operator may write to its arguments."""
    given = sample.transform(lambda x: x.clone() if isinstance(x, torch.Tensor) else x)
    torch.manual_seed(asked().seed % 2**63)
    return info(given.input, *given.args, **given.kwargs)


def moved(value: Any, device: str) -> Any:
    """A tensor, or the name of a device, for this device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return device if isinstance(value, (torch.device, str)) and str(value) == "cpu" else value


def operators(device: str) -> Outcome:
    """Compare every operator of torch's database on the device with the CPU, and name those that
    differ. An operator that ends the process is a failure."""
    try:
        rows = database()
    except NoDatabase as problem:
        return Outcome(SKIPPED, str(problem))
    wanted = [text.partition("/")[2] for text in asked().only if text.startswith("operators/")]
    for name in wanted:
        if name not in rows:
            hint = "write it as the report does, such as operators/addmm"
            raise WrongQuestion(f"{name!r} is no operator of this torch's database", hint)
    compared, unlike = 0, []
    for name in wanted or rows:
        if seconds_left() <= 0:
            break
        working_on(name)
        try:
            with left_as_before():
                found = difference(rows[name], device)
        except Exception as problem:
            if not sticky(problem):
                # The sample itself could not be made here.
                continue
            detail = f"{name} ended the process: {first_line(problem)}"
            return Outcome(FAILED, detail, hint=again(device, name), spent=True)
        compared += found is not None
        if found:
            unlike.append(f"{name}: {found}")
    if not compared:
        return Outcome(SKIPPED, "this torch's database has nothing that can be compared here")
    detail = f"{compared} of {len(rows)} operators compared with the CPU"
    if not unlike:
        return Outcome(PASSED, detail)
    more = f"; and {len(unlike) - NAMED} more" if len(unlike) > NAMED else ""
    detail = f"{detail}, {len(unlike)} differ: {'; '.join(unlike[:NAMED])}{more}"
    hint = again(device, unlike[0].partition(":")[0])
    return Outcome(PASSED, detail, hint=hint, problem=DIFFERS)


def again(device: str, name: str) -> str:
    """The hint for repeating one operator."""
    return f"again: `--level census --device {device} --only operators/{name}`"
