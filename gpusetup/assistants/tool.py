"""One tool of the server, and what it takes: a JSON schema, made of its command's options."""

from __future__ import annotations

from argparse import Action
from collections.abc import Callable, Mapping
from typing import Any

from gpusetup.assistants.bounded import LIMIT
from gpusetup.commands.calling import kind_of, option_of, options_of
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen

LONGEST_WORD = 2000
MOST_WORDS = 50


def text(what: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "maxLength": LONGEST_WORD, "description": what, **more}


def texts(what: str) -> dict[str, Any]:
    text = {"type": "string", "maxLength": LONGEST_WORD}
    return {"type": ["array", "string"], "items": text, "maxItems": MOST_WORDS, "description": what}


def truth(what: str) -> dict[str, Any]:
    return {"type": "boolean", "description": what}


class Setting(Frozen):
    """How the server was started."""

    python: str | None = None
    keep_private: bool = False


class Tool(Frozen):
    """One row of the table."""

    name: str
    command: str
    """The command that it asks."""
    what: str
    takes: tuple[str, ...]
    """The options of that command that it takes, by their names in Python."""
    answer: Callable[[Mapping[str, Any], Setting], dict[str, Any]]
    """It reads of a machine what `redact` leaves; `_hidden` looks over every answer once more."""
    more: Mapping[str, Mapping[str, Any]] = {}
    """What it takes besides: name -> JSON schema."""
    needs: tuple[str, ...] = ()
    shown: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """What of the answer is told."""
    quotes: bool = True
    """Whether words of others may stand in the answer."""
    asks_network: bool = False
    limit: int = LIMIT


def properties_of(tool: Tool) -> dict[str, Any]:
    """What a tool takes, name -> JSON schema: of its command's options, and what it adds."""
    known = options_of(tool.command)
    return {**{name: _property(known[option_of(name)]) for name in tool.takes}, **tool.more}


def _property(option: Action) -> dict[str, Any]:
    kind, what = kind_of(option), (option.help or "").replace("%%", "%")
    if kind == "strings":
        return texts(what)
    if kind != "string":
        return {"type": kind, "description": what}
    return text(what, enum=list(option.choices)) if option.choices else text(what)


def schema_of(tool: Tool) -> dict[str, Any]:
    """The JSON schema of what a tool takes."""
    known = {"type": "object", "properties": properties_of(tool), "additionalProperties": False}
    return {**known, "required": list(tool.needs)} if tool.needs else known


LONGEST_PROBLEM = 400


def check(tool: Tool, values: dict[str, Any]) -> None:
    """Raises UsageError for what is not as the schema says."""
    from jsonschema import Draft202012Validator

    schema = schema_of(tool)
    for problem in Draft202012Validator(schema).iter_errors(values):
        where = f"`{problem.path[0]}` of {tool.name}" if problem.path else tool.name
        known = schema["properties"]
        said = known[problem.path[0]]["description"] if problem.path else ", ".join(known)
        raise UsageError(f"{where}: {problem.message[:LONGEST_PROBLEM]}", hint=f"it takes {said}")
