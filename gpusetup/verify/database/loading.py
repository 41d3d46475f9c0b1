"""Load the operator database of torch's own tests, without changing the state of the process.

`torch.testing._internal` is in every wheel. It is private and changes with each release, so it is
not the machine's fault if it lacks something or cannot be loaded. It imports packages, but its
tables only use some of their names. If such a package is missing, a `StandIn` replaces it.
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
"""Packages that the database imports and that a user's environment may lack. `expecttest` and
`yaml` are only needed to develop torch; `numpy` provides references that are not used here."""


class NoDatabase(Exception):
    """Raised if the database of this torch cannot be loaded. The message gives the reason."""


class Database(NamedTuple):
    operators: List[Any]
    """One `OpInfo` of torch for each operator."""
    lists: List[Any]
    """One `ForeachFuncInfo` for each operator on lists of tensors."""


class StandInName(type):
    """Replaces any name in a missing package. Its attributes and calls return more such
    stand-ins."""

    def __getattr__(cls, name: str) -> Any:
        # Python itself looks up names with double underscores. Report them as missing, as most
        # classes do.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandInName(name, (), {})

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if len(args) == 3 and cls is StandInName:
            return type.__call__(cls, *args)
        return StandInName("made", (), {})

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __ge__(cls, other: Any) -> bool:
        return True

    __gt__ = __ge__

    def __getitem__(cls, item: Any) -> Any:
        return cls


class StandIn(types.ModuleType):
    """Replaces a missing package of which only the names are needed."""

    __version__ = "1.0"
    __path__: List[str] = []
    ACCEPT = False
    inf, nan, pi = math.inf, math.nan, math.pi
    TestCase = unittest.TestCase

    def __getattr__(self, name: str) -> Any:
        # Python's own module attributes must be missing.
        if name.startswith("__"):
            raise AttributeError(name)
        return StandInName(name, (), {})


@contextlib.contextmanager
def standing_in() -> Iterator[List[str]]:
    """Inside the `with` block, provide stand-ins for missing packages. Yields the names of these
    packages."""
    missing: List[str] = []
    for name in STANDING_IN:
        package = name.partition(".")[0]
        # If the package is missing, its modules are missing too.
        is_missing = package in missing
        if not is_missing and name not in sys.modules:
            is_missing = importlib.util.find_spec(package) is None
        if is_missing:
            missing.append(name)
            module = StandIn(name)
            # `find_spec` fails for a module without a spec.
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
            sys.modules[name] = module
    try:
        yield missing
    finally:
        for name in missing:
            sys.modules.pop(name, None)


@contextlib.contextmanager
def as_before(torch: Any) -> Iterator[None]:
    """After the `with` block, undo what importing torch's tests changes: program arguments,
    environment variables, random states and frozen backend flags."""
    arguments, variables = list(sys.argv), dict(os.environ)
    default_dtype = torch.get_default_dtype()
    # The import freezes the flags of torch's backends, and torch has no function to unfreeze them.
    backends = torch.backends.flags_frozen.__globals__
    frozen = "__allow_nonbracketed_mutation_flag"
    is_open = backends[frozen]
    # torch's test modules read the program's arguments, so hide them.
    sys.argv[1:] = []
    try:
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet, kept_chance(torch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.argv[:] = arguments
        restore(variables)
        torch.set_default_dtype(default_dtype)
        backends[frozen] = is_open


def restore(variables: Dict[str, str]) -> None:
    """Reset the environment variables to these values."""
    # First delete the variables that the import has added.
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


@contextlib.contextmanager
def kept_chance(torch: Any) -> Iterator[None]:
    """Restore the states of all global random generators after the `with` block, including numpy's
    if it is loaded."""
    state_of_python, state_of_torch = random.getstate(), torch.get_rng_state()
    numpy_random = loaded_numpy_random()
    state_of_numpy = numpy_random.get_state() if numpy_random else None
    try:
        yield
    finally:
        random.setstate(state_of_python)
        torch.set_rng_state(state_of_torch)
        if numpy_random:
            numpy_random.set_state(state_of_numpy)


def loaded_numpy_random() -> Any:
    """Returns the module `numpy.random` if the real numpy (not a stand-in) is loaded, otherwise
    None."""
    numpy = sys.modules.get("numpy")
    is_numpy = hasattr(numpy, "ndarray")
    return getattr(numpy, "random", None) if is_numpy else None


def seeded(torch: Any, seed: int) -> None:
    """Seed all global random generators that the database uses."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy_random = loaded_numpy_random()
    if numpy_random:
        # numpy accepts only 32-bit seeds.
        numpy_random.seed(seed % 2**32)


SIZES = {"XS": 7, "S": 17, "M": 18, "L": 65}
"""Lengths for larger samples, which replace the database's lengths 3, 5, 10 and 20. Most of them
are not multiples of a kernel's vector."""


@contextlib.contextmanager
def larger() -> Iterator[None]:
    """Inside the `with` block, make the database create larger samples."""
    sizes_before = []
    for module_name, module in list(sys.modules.items()):
        # Each of torch's test modules has a copy of the lengths.
        if not module_name.startswith(HOME):
            continue
        for name, size in SIZES.items():
            if name in module.__dict__:
                sizes_before.append((module, name, module.__dict__[name]))
                setattr(module, name, size)
    try:
        yield
    finally:
        for module, name, size_before in sizes_before:
            setattr(module, name, size_before)


def load(torch: Any) -> Database:
    """Load the operator database of this torch. Raises NoDatabase."""
    module = module_of_tests(torch, "common_methods_invocations")
    operators = rows_of(module, "op_db")
    lists = []
    # There are several tables, for operators on one list, on two lists, and so on.
    for name in sorted(dir(module)):
        if name.startswith("foreach_") and name.endswith("_op_db"):
            lists += getattr(module, name)
    return Database(operators, lists)


def optimizers(torch: Any) -> List[Any]:
    """Load the rows (`OptimizerInfo`) of torch's optimizer database. Raises NoDatabase."""
    module = module_of_tests(torch, "common_optimizers")
    return rows_of(module, "optim_db")


def module_of_tests(torch: Any, name: str) -> Any:
    """Import a module of torch's tests. Raises NoDatabase."""
    try:
        with as_before(torch), standing_in():
            return importlib.import_module(HOME + name)
    except (Exception, SystemExit) as problem:
        kind = type(problem).__name__
        raise NoDatabase(f"{kind}: {problem}") from problem


def rows_of(module: Any, name: str) -> List[Any]:
    """Returns a table of the database. Raises NoDatabase if this torch does not have it."""
    rows = getattr(module, name, None)
    # In another release, the table may have another name.
    if not isinstance(rows, list) or not rows:
        raise NoDatabase(f"it has no `{name}`")
    return rows
