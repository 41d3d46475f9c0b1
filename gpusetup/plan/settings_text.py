"""Formats settings as text to paste: YAML, command-line flags, or overrides."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Literal

from gpusetup.configs.settings import EMPTY, FALSE, TRUE

Values = dict[str, Any]
"""The keys of a trainer's config with their values; None leaves a key out."""
Format = Literal["yaml", "flags", "overrides"]
"""The output format. `flags` means `--name value`; `overrides` means `name=value`, as Hydra
reads them."""


def without_none(values: Values) -> Values:
    """The settings without keys whose value is None, and without maps that become empty because of
    this."""
    cleaned: Values = {}
    for key, value in values.items():
        if isinstance(value, dict):
            value = without_none(value)
        if value is not None and value != {}:
            cleaned[key] = value
    return cleaned


def written(values: Values, form: Format) -> str:
    """The settings as text in the given format, ready to paste."""
    if form == "yaml":
        return yaml_text(values)
    lines = []
    for name, value in dotted_names(values):
        line = flag(name, value) if form == "flags" else override(name, value)
        lines.append(line)
    # A backslash at the end of a line continues a shell command.
    return " \\\n".join(lines) + "\n"


def override(name: str, value: Any) -> str:
    """One setting as a command-line override, `name=value`, quoted for the shell."""
    text = spelled(value)
    quoted = shlex.quote(text)
    return f"{name}={quoted}"


def flag(name: str, value: Any) -> str:
    """One option for a command line; a switch that is on is written without a value.

    >>> flag("max_length", 4096), flag("fsdp", "full_shard auto_wrap"), flag("bf16", True)
    ('--max_length 4096', "--fsdp 'full_shard auto_wrap'", '--bf16')
    """
    if value is True:
        return f"--{name}"
    text = spelled(value)
    quoted = shlex.quote(text)
    return f"--{name} {quoted}"


def spelled(value: Any) -> str:
    """A value as text, with `true` and `false` in lower case as in YAML."""
    text = str(value)
    # Python's text for a boolean begins with a capital letter, so convert it.
    if isinstance(value, bool):
        return text.lower()
    return text


def dotted_names(values: Values, before: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested maps, each with its dotted path.

    >>> list(dotted_names({"actor": {"strategy": "fsdp2"}}))
    [('actor.strategy', 'fsdp2')]
    """
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            yield from dotted_names(value, f"{name}.")
        else:
            yield name, value


def yaml_text(values: Values, indent: str = "") -> str:
    """Nested maps as block YAML.

    >>> print(yaml_text({"model": {"path": "a/b", "tied": True}, "note": "x: y"}), end="")
    model:
      path: a/b
      tied: true
    note: "x: y"
    """
    text = ""
    for key, value in values.items():
        if isinstance(value, dict):
            text += f"{indent}{key}:\n"
            text += yaml_text(value, f"{indent}  ")
        else:
            text += f"{indent}{key}: {yaml_scalar(value)}\n"
    return text


def yaml_scalar(value: Any) -> str:
    """A plain value as YAML; a string is quoted if YAML would read it as something else.

    >>> yaml_scalar("Qwen/Qwen3-8B"), yaml_scalar("yes"), yaml_scalar("3"), yaml_scalar(3)
    ('Qwen/Qwen3-8B', '"yes"', '"3"', '3')
    """
    if not isinstance(value, str):
        return spelled(value)
    is_word = re.fullmatch(r"[A-Za-z][\w./-]*", value)
    # Quote words such as `yes` or `null`, because YAML 1.1 reads them as booleans or as null.
    is_switch = value in (*TRUE, *FALSE, *EMPTY)
    return value if is_word and not is_switch else json.dumps(value)
