"""Settings as a text that pastes as it is: YAML, JSON, flags of a command line, overrides."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Literal

from gpusetup.configs.settings import EMPTY, FALSE, TRUE

Values = dict[str, Any]
"""Keys of a trainer's config with their values; None: the trainer needs no such key."""
Format = Literal["yaml", "json", "flags", "overrides"]
"""`flags`: `--name value`; `overrides`: `name=value`, as Hydra and torchtune take them."""


def without_none(values: Values) -> Values:
    """The values without those that are None, and without maps that are then empty."""
    kept: Values = {}
    for key, value in values.items():
        cleaned = without_none(value) if isinstance(value, dict) else value
        if cleaned is not None and cleaned != {}:
            kept[key] = cleaned
    return kept


def written(values: Values, form: Format) -> str:
    """The settings as a text that pastes as it is."""
    if form == "yaml":
        return yaml_text(values)
    if form == "json":
        return json.dumps(values, indent=2) + "\n"
    lines = [
        flag(name, value) if form == "flags" else f"{name}={shlex.quote(spelled(value))}"
        for name, value in dotted_names(values)
    ]
    return " \\\n".join(lines) + "\n"


def flag(name: str, value: Any) -> str:
    """One option of a command line; a switch that is on needs no value in most programs.

    >>> flag("max_length", 4096), flag("fsdp", "full_shard auto_wrap"), flag("bf16", True)
    ('--max_length 4096', "--fsdp 'full_shard auto_wrap'", '--bf16')
    """
    return f"--{name}" if value is True else f"--{name} {shlex.quote(spelled(value))}"


def spelled(value: Any) -> str:
    """A value as YAML and most command lines spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def dotted_names(values: Values, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of nested maps with its path.

    >>> list(dotted_names({"actor": {"strategy": "fsdp2"}}))
    [('actor.strategy', 'fsdp2')]
    """
    for key, value in values.items():
        if isinstance(value, dict):
            yield from dotted_names(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def yaml_text(values: Values, indent: str = "") -> str:
    """Block YAML of nested maps of plain values.

    >>> print(yaml_text({"model": {"path": "a/b", "tied": True}, "note": "x: y"}), end="")
    model:
      path: a/b
      tied: true
    note: "x: y"
    """
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:\n{yaml_text(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {yaml_scalar(value)}\n")
    return "".join(lines)


def yaml_scalar(value: Any) -> str:
    """A plain value as YAML; a text is quoted if YAML would read another thing.

    >>> yaml_scalar("Qwen/Qwen3-8B"), yaml_scalar("yes"), yaml_scalar("3"), yaml_scalar(3)
    ('Qwen/Qwen3-8B', '"yes"', '"3"', '3')
    """
    if isinstance(value, str):
        is_plain = re.fullmatch(r"[A-Za-z][\w./-]*", value)
        is_other_kind = value in (*TRUE, *FALSE, *EMPTY)
        return value if is_plain and not is_other_kind else json.dumps(value)
    return spelled(value)
