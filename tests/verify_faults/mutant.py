"""What a mutant is, and how those that change an operator are written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from verify_faults.layers import Operator

Context = AbstractContextManager[Any]


class Mutant(NamedTuple):
    name: str
    catcher: str
    make: Callable[[], Context]
    through_dispatcher: bool = True
    """False where compiled code is wrong too."""


def op(names: str, change: Any, when: Any = None, exact: bool = False) -> Callable[[], Context]:
    options = {"when": when} if when else {}
    return lambda: Operator(names, change, exact=exact, **options)


def beyond(size: int) -> Any:
    return lambda found, _: found.numel() >= size


def single(*shape: int) -> Any:
    return lambda found, _: found.dtype == torch.float32 and tuple(found.shape) == shape
