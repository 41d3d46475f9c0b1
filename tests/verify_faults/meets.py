"""Which checks and samples call which operators of aten: those that a mutant replaced come first.

Order alone: what is caught is the same, it is told sooner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from verify_faults.runs import run

from gpusetup.verify.checks import ration

Calls = dict[str, list[str]]
"""Check, or `check/entry` -> operators without overloads: `add`, also for `add_`."""


class _Calls(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.at, self.seen = "", dict[str, set[str]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.setdefault(self.at, set()).add(plain(str(func)))
        return func(*args, **(kwargs or {}))


def plain(operator: str) -> str:
    """
    >>> plain("aten::add_.Tensor"), plain("aten.add.out"), plain("mul")
    ('add', 'add', 'mul')
    """
    return operator.replace("aten::", "").replace("aten.", "").split(".")[0].rstrip("_")


def called(checks: list[str]) -> Calls:
    """Each check runs once in this process under a mode."""
    mode = _Calls()

    def at(question: str, **_: Any) -> None:
        mode.at = f"{mode.at.split('/')[0]}/{question.rpartition('/')[0]}"

    with swapped(ration, "working_on", at):
        for check in checks:
            mode.at = check
            with mode:
                run(check, None)
    return {name: sorted(each) for name, each in mode.seen.items()}


@contextlib.contextmanager
def swapped(holder: Any, name: str, other: Any) -> Iterator[None]:
    real = getattr(holder, name)
    setattr(holder, name, other)
    try:
        yield
    finally:
        setattr(holder, name, real)


@contextlib.contextmanager
def replaced() -> Iterator[set[str]]:
    """The operators that get another kernel meanwhile."""
    names: set[str] = set()
    real = torch.library.Library.impl

    def impl(library: Any, operator: Any, *rest: Any, **more: Any) -> Any:
        names.add(plain(str(operator)))
        return real(library, operator, *rest, **more)

    with swapped(torch.library.Library, "impl", impl):
        yield names


@contextlib.contextmanager
def sooner(checks: list[str], calls: Calls, names: set[str]) -> Iterator[list[str]]:
    """The checks, those that call one of `names` first; their questions likewise."""
    meeting = {key for key, ops in calls.items() if names & set(ops)}
    real = ration.chosen

    def chosen(name: str, known: dict[str, Any]) -> Iterator[tuple[Any, int]]:
        yield from sorted(
            real(name, known), key=lambda each: f"{name}/{each[0].name}" not in meeting
        )

    of_questions = {key.split("/")[0] for key in meeting}
    with swapped(ration, "chosen", chosen):
        yield sorted(checks, key=lambda check: check not in of_questions)
