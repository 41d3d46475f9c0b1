"""Which options of `gpusetup fleet` belong to which of its actions and engines."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from gpusetup.commands import fleet_run, fleet_sweep
from gpusetup.errors import UsageError

SHOWN: Mapping[str, Any] = {
    "nodes": None, "profile": None, "strict": False,
}  # fmt: skip
"""What `show` takes, and `run` when it shows its records, with the values of nobody."""
BOTH = ("device", "python", "limit")
"""Options of `run` that `sweep` takes too."""
ENGINES = {
    "slurm": "--slurm",
    "hosts": "--hosts",
    "ray": "--ray",
    "kubernetes": "--kubernetes",
}
OF_ENGINE = {
    "partition": "slurm",
    "image": "kubernetes",
    "namespace": "kubernetes",
    "runtime_class": "kubernetes",
    "gpus": "kubernetes",
}
"""What one engine alone takes."""


def refuse_foreign(options: argparse.Namespace) -> None:
    """Raise UsageError for an option that the action or the engine would pass over."""
    action = options.action
    if action == "sweep" and options.folder:
        raise UsageError("`fleet sweep` takes no folder")
    run, sweep = _run_options(), _sweep_options()
    taken = {
        "show": SHOWN.keys(),
        "run": SHOWN.keys() | run.keys(),
        "sweep": sweep.keys() | set(BOTH),
    }[action]
    every = {**SHOWN, **run, **sweep}
    given = [name for name, usual in every.items() if getattr(options, name, usual) != usual]
    for name in given:
        if name not in taken:
            raise UsageError(f"`{_flag(name)}` has no part in `fleet {action}`", hint=HINT)
    if action == "run":
        _refuse_other_engines(options, [name for name in given if name in run])


HINT = "`gpusetup fleet --help` says which option is for which action"


def _refuse_other_engines(options: argparse.Namespace, given: list[str]) -> None:
    engine = next((name for name in ENGINES if getattr(options, name)), "")
    for name in given:
        owner = OF_ENGINE.get(name, engine)
        if owner != engine:
            raise UsageError(f"`{_flag(name)}` is for `{ENGINES[owner]}`", hint=HINT)


def _flag(name: str) -> str:
    return ENGINES.get(name) or f"--{name.replace('_', '-')}"


@cache
def _run_options() -> Mapping[str, Any]:
    return _usual(fleet_run.add_options)


@cache
def _sweep_options() -> Mapping[str, Any]:
    return _usual(fleet_sweep.add_options)


def _usual(add: Callable[[argparse.ArgumentParser], None]) -> Mapping[str, Any]:
    """The names of some options with the values that they have where nobody gives them."""
    parser = argparse.ArgumentParser(add_help=False)
    add(parser)
    return vars(parser.parse_args([]))
