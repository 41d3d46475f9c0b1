"""Which options of aten's operators the census calls, and which no row calls with another value.

`python -m verify_faults.options` in `tests` prints the list anew, in minutes.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from verify_faults.meets import plain

from gpusetup.verify.operators.comparing import Sample, compared
from gpusetup.verify.operators.sampling import FAMILIES, layouts_of
from gpusetup.verify.values import Asked, ask_for

AS_OF = "2026-11-23, torch 2.13.0"
LIST = Path(__file__).with_name("options_not_called.txt")
"""A line for each option of an operator that is called: `operator argument value`."""
ASIDE = frozenset(
    (
        *("dtype", "layout", "device", "pin_memory", "memory_format", "requires_grad"),
        *("non_blocking", "generator", "out"),
    )
)
"""What says in which form and where an answer comes; `generator` is what `chance` asks for."""
REASONS: tuple[tuple[str, str], ...] = (
    (r"\S+ (half_to_float|use_fast_accum|use_cudnn|cudnn_enabled?) .*", "the CPU has it not"),
    (r"\S+ (check_errors|unsafe|is_coalesced|unroll_dim|path) .*", "changes no number"),
    (r"_\S* .*", "what a public operator hands on"),
    (r"\S+_backward \S+ .*", "what autograd hands on from the call forwards"),
    (r"\S+ (train|dropout_p|sparse|sparse_grad|masked_grad) .*", "other checks ask for it"),
)
"""Patterns of lines, and why such are not called."""
OPEN = "no row was written for it yet"


def why(line: str) -> str:
    """
    >>> why("softmax half_to_float True"), why("diff n other")
    ('the CPU has it not', 'no row was written for it yet')
    """
    return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, line)), OPEN)


class Given(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Notes which values of their options operators are called with."""

    def __init__(self) -> None:
        super().__init__()
        self.called: dict[str, set[Any]] = defaultdict(set)
        self.lines: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        name = func._schema.name
        if name.startswith("aten::"):
            name = plain(name)
            self.called[name].add(func)
            for place, argument in enumerate(func._schema.arguments):
                value = options.get(argument.name, argument.default_value)
                value = args[place] if place < len(args) else value
                self.lines |= {f"{name} {argument.name} {word}" for word in said(argument, value)}
        return func(*args, **options)


def said(argument: Any, value: Any) -> Iterator[str]:
    """What a value of an argument tells."""
    kind = str(argument.type)
    if value is not None and kind.startswith("Optional"):
        yield "given"
    if isinstance(value, bool):
        yield str(value)
    elif isinstance(value, (int, float, str)) and value != argument.default_value:
        yield "other"


def options_of(operators: Iterable[Any]) -> set[str]:
    """Every option of these operators: both values of a flag, another than the usual number or
    word, anything where nothing may be given."""
    found = set()
    for operator in operators:
        name = plain(operator._schema.name)
        for argument in operator._schema.arguments:
            if argument.name not in ASIDE and not argument.is_out:
                found |= {f"{name} {argument.name} {word}" for word in asked_of(argument)}
    return found


def asked_of(argument: Any) -> tuple[str, ...]:
    kind = str(argument.type)
    if kind == "bool":
        return ("True", "False")
    if kind.startswith("Optional"):
        return ("given", "True", "False") if "bool" in kind else ("given",)
    words = ("int", "float", "number", "SymInt", "Scalar", "str")
    return ("other",) if kind in words and argument.has_default_value() else ()


def met_by_rows(
    families: Iterable[str] = tuple(FAMILIES), samples: int = 3
) -> tuple[set[str], set[str]]:
    """The options that there are of what is called, and those that rows call; a format that an
    operator lacks on the CPU is left out."""
    ask_for(Asked(1, level="standard"))
    given = Given()
    for family in families:
        for row in FAMILIES[family]:
            for turn in range(samples):
                dtype = row.dtypes[turn % len(row.dtypes)]
                sample = Sample(row.name, dtype, "contiguous", row.sizes[0], turn)
                with given, contextlib.suppress(NotImplementedError, RuntimeError):
                    compared(torch, "cpu", row, sample, turn, layouts_of(family))
    every = options_of(func for funcs in given.called.values() for func in funcs)
    return every, every & given.lines


def listed() -> set[str]:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def text(missing: Iterable[str]) -> str:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for line in sorted(missing):
        by_reason[why(line)].append(line)
    parts = [f"# As of {AS_OF}: options that no row of the census calls."]
    for reason in sorted(by_reason):
        parts += ["", f"# {reason}", *by_reason[reason]]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    every, met = met_by_rows()
    print(f"{len(met)} of {len(every)} options are called")
    LIST.write_text(text(every - met), encoding="utf-8")
