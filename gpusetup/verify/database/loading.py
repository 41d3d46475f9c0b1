"""Loads the database that torch tests its operators with, and leaves the process as it was.

`torch.testing._internal` is in every wheel. It is private, and other with each release: what it
lacks, or where it cannot be loaded, is no fault of the machine. It needs packages of which its
tables use nothing but names; where they are missing, `StandIn` takes their place.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import io
import math
import os
import random
import sys
import types
import unittest
import warnings
from typing import Any, Dict, Iterator, List, NamedTuple

HOME = "torch.testing._internal."
STANDING_IN = ("expecttest", "yaml", "numpy", "numpy.typing")
"""What the database imports and a user's environment may lack. `expecttest` and `yaml` belong to
torch's own development; `numpy` gives references that are not used here."""


class NoDatabase(Exception):
    """This torch's database cannot be loaded; the sentence says why."""


class Database(NamedTuple):
    operators: List[Any]
    """torch's `OpInfo`, one each."""
    lists: List[Any]
    """`ForeachFuncInfo`: operators on lists of tensors."""


class Name(type):
    """Any name of a package that is not there: what is asked of it is another such name."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Name(name, (), {})

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if len(args) == 3 and cls is Name:
            return type.__call__(cls, *args)
        return Name("made", (), {})

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __ge__(cls, other: Any) -> bool:
        return True

    __gt__ = __ge__

    def __getitem__(cls, item: Any) -> Any:
        return cls


class StandIn(types.ModuleType):
    """A package of which only names are needed."""

    __version__ = "1.0"
    __path__: List[str] = []
    ACCEPT = False
    inf, nan, pi = math.inf, math.nan, math.pi
    TestCase = unittest.TestCase

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name, (), {})


@contextlib.contextmanager
def standing_in() -> Iterator[List[str]]:
    """Missing packages have a stand-in meanwhile; yields their names."""
    missing: List[str] = []
    for name in STANDING_IN:
        top = name.partition(".")[0]
        if top in missing or (name not in sys.modules and importlib.util.find_spec(top) is None):
            missing.append(name)
            made = StandIn(name)
            made.__spec__ = importlib.machinery.ModuleSpec(name, None)
            sys.modules[name] = made
    try:
        yield missing
    finally:
        for name in missing:
            sys.modules.pop(name, None)


@contextlib.contextmanager
def as_before(torch: Any) -> Iterator[None]:
    """Undo what the import of torch's tests changes: arguments, variables, seeds, frozen flags."""
    arguments, variables = list(sys.argv), dict(os.environ)
    default = torch.get_default_dtype()
    backends = torch.backends.flags_frozen.__globals__
    frozen = "__allow_nonbracketed_mutation_flag"
    open_to_all = backends[frozen]
    sys.argv[1:] = []
    try:
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet, kept_chance(torch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.argv[:] = arguments
        _restore(variables)
        torch.set_default_dtype(default)
        backends[frozen] = open_to_all


def _restore(variables: Dict[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


@contextlib.contextmanager
def kept_chance(torch: Any) -> Iterator[None]:
    """The states of the global generators, numpy's too where it is loaded, stay as they were."""
    numpy = sys.modules.get("numpy")
    of_numpy = getattr(numpy, "random", None) if hasattr(numpy, "ndarray") else None
    before = random.getstate(), torch.get_rng_state()
    state = of_numpy.get_state() if of_numpy else None
    try:
        yield
    finally:
        random.setstate(before[0])
        torch.set_rng_state(before[1])
        if of_numpy:
            of_numpy.set_state(state)


def seeded(torch: Any, number: int) -> None:
    """All generators that the database draws from start anew."""
    torch.default_generator.manual_seed(number)
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if hasattr(numpy, "ndarray"):
        numpy.random.seed(number % 2**32)  # type: ignore[union-attr]


SIZES = {"XS": 7, "S": 17, "M": 18, "L": 65}
"""Lengths of the database's samples in place of 3, 5, 10 and 20, which end within a vector."""


@contextlib.contextmanager
def larger() -> Iterator[None]:
    """Meanwhile samples that are made are larger."""
    homes = [home for name, home in [*sys.modules.items()] if name.startswith(HOME)]
    before = [(home, {n: home.__dict__[n] for n in SIZES if n in home.__dict__}) for home in homes]
    for home, sizes in before:
        home.__dict__.update({n: SIZES[n] for n in sizes})
    try:
        yield
    finally:
        for home, sizes in before:
            home.__dict__.update(sizes)


def load(torch: Any) -> Database:
    """This torch's database of operators. Raises NoDatabase."""
    home = _home(torch, "common_methods_invocations")
    names = [n for n in dir(home) if n.startswith("foreach_") and n.endswith("_op_db")]
    return Database(
        _rows(home, "op_db"), [row for name in sorted(names) for row in getattr(home, name)]
    )


def optimizers(torch: Any) -> List[Any]:
    """torch's `OptimizerInfo`, one each. Raises NoDatabase."""
    return _rows(_home(torch, "common_optimizers"), "optim_db")


def _home(torch: Any, name: str) -> Any:
    try:
        with as_before(torch), standing_in():
            return importlib.import_module(HOME + name)
    except (Exception, SystemExit) as problem:
        raise NoDatabase(f"{type(problem).__name__}: {problem}") from problem


def _rows(home: Any, name: str) -> List[Any]:
    rows = getattr(home, name, None)
    if not isinstance(rows, list) or not rows:
        raise NoDatabase(f"it has no `{name}`")
    return rows
