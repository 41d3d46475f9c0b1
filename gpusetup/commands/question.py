"""The options of a command as a typed record. The parser, the help and the Python API are made from
this record.

A field is an option on the command line and a keyword in Python:

>>> class GreetQuestion(CommandQuestion):
...     names: tuple[str, ...] = arguments("names to greet")
...     times: int = option("how often", default=1, metavar="N", parse=int)
...     loud: bool = switch("in capitals")
>>> question = GreetQuestion(names=("Ada",), times=2)
>>> question.names, question.times, question.loud, question.words()
(('Ada',), 2, False, ['--times=2', '--', 'Ada'])
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple


class HelpGroup(NamedTuple):
    """A heading in `--help`: as a value in a question's class, it begins a group, to which all
    options below it belong."""

    title: str
    description: str | None = None


class Option(NamedTuple):
    """One field of a question: how argparse adds it, and what the Python API needs to know."""

    flags: tuple[str, ...]
    """The option's names on the command line; none for a positional argument."""
    keywords: Mapping[str, Any]
    """The other arguments of argparse's `add_argument`."""
    default: Any = None
    json_type: str = "string"
    """The kind of value: `boolean`, `number`, `string`, or `strings` for a list of texts."""
    is_positional: bool = False
    group: HelpGroup | None = None
    """The heading above it in its class; without one, it is in the first group of `--help`."""
    one_of: str | None = None
    """Options with the same word here are mutually exclusive."""
    is_needed: bool = False
    """Whether the user must give one of these mutually exclusive options."""
    as_it_is: tuple[type, ...] = ()
    """Types of values that Python callers may pass and that are not checked further, such as a
    snapshot or bytes."""


FOR_ARGPARSE = ("help", "type", "metavar", "choices", "action", "nargs", "const")


def _option(flags: tuple[str, ...], default: Any, **details: Any) -> Any:
    """An option; `details` are arguments of argparse's `add_argument` and fields of `Option`."""
    keywords = {name: details.pop(name) for name in FOR_ARGPARSE if name in details}
    return Option(flags, keywords, default, **details)


def option(
    help: str, *flags: str, default: Any = None, parse: Callable[[str], Any] = str, **rest: Any
) -> Any:
    """An option with one value, which `parse` makes from the typed text; `parse` raises ValueError
    or ArgumentTypeError if it cannot. The flag is made from the field's name unless `flags` are
    given. With `const`, the option may be typed without a value, and then has that one."""
    if "const" in rest:
        rest["nargs"] = "?"
    return _option(flags, default, help=help, type=parse, **rest)


def number(help: str, **rest: Any) -> Any:
    """An option whose value is a whole number."""
    return option(help, parse=int, metavar="N", **rest)


def options(help: str, *flags: str, action: str = "append", **rest: Any) -> Any:
    """An option that may be repeated; its value is a tuple."""
    return _option(flags, (), help=help, action=action, **rest)


def switch(help: str, *flags: str, **rest: Any) -> Any:
    """An option without a value: True if it is given."""
    return _option(flags, False, help=help, action="store_true", **rest)


def argument(
    help: str, *, default: Any = None, parse: Callable[[str], Any] = str, **rest: Any
) -> Any:
    """A positional argument; required if the default is NEEDED."""
    nargs = None if default is NEEDED else "?"
    return option(help, default=default, parse=parse, nargs=nargs, is_positional=True, **rest)


def arguments(help: str, **rest: Any) -> Any:
    """Any number of positional arguments; the value is a tuple."""
    return _option((), (), help=help, nargs="*", is_positional=True, **rest)


def command_after_dashes() -> Any:
    """The command after `--`. Its words are passed on without being parsed."""
    return _option((), (), is_positional=True, action=AFTER_DASHES)


NEEDED: Any = object()
"""The default of an argument that is required."""
AFTER_DASHES = "after dashes"
"""Marks the command after `--`, which argparse never sees."""


class CommandQuestion:
    """The options of a command; each subclass lists its options as fields (see above)."""

    OPTIONS: dict[str, Option] = {}
    """Maps each field to its option, in the order of `--help`."""
    given: frozenset[str] = frozenset()
    """The fields that were typed or passed from Python; all others have their defaults."""

    def __init_subclass__(cls) -> None:
        cls.OPTIONS = {}
        group = None
        for name, value in list(vars(cls).items()):
            if isinstance(value, HelpGroup):
                group = value
            elif isinstance(value, Option):
                flag_of_name = () if value.is_positional else (f"--{name.replace('_', '-')}",)
                cls.OPTIONS[name] = value._replace(
                    flags=value.flags or flag_of_name,
                    group=group,
                    json_type=json_type_of(cls.__annotations__[name]),
                )
                # The class attribute becomes the option's default, so that a question in which the
                # field is not set has the default.
                setattr(cls, name, value.default)

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)
        self.__dict__["given"] = frozenset(values)

    @classmethod
    def typed(cls, parsed: argparse.Namespace) -> Any:
        """The question with the values of a parsed command line."""
        # argparse collects repeated options in a list, but a question must be immutable. A
        # positional argument that was not typed is None there.
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in vars(parsed).items()
            if name in cls.OPTIONS and value is not None
        }
        return cls(**values)

    def replaced(self, **changes: Any) -> Any:
        """A copy of the question with some values replaced; `given` stays the same."""
        changed = copy(self)
        changed.__dict__.update(changes)
        return changed

    def words(self, *, without: Sequence[str] = ()) -> list[str]:
        """The given options as command-line words, with positional arguments last; the fields in
        `without` are left out."""
        options: list[str] = []
        positional: list[str] = []
        for name, spec in self.OPTIONS.items():
            if name not in self.given or name in without:
                continue
            value = getattr(self, name)
            if spec.json_type == "boolean":
                if value:
                    options.append(spec.flags[-1])
            elif spec.flags:
                options += [f"{spec.flags[-1]}={part}" for part in parts(value)]
            else:
                positional += map(str, parts(value))
        # After `--`, a positional argument that begins with a dash is not taken for an option.
        return [*options, "--", *positional] if positional else options


def json_type_of(annotation: str) -> str:
    """The kind of value that a field takes, from its annotation in the source.

    >>> json_type_of("tuple[str, ...]"), json_type_of("float | None"), json_type_of("bool")
    ('strings', 'number', 'boolean')
    """
    if annotation.startswith("tuple"):
        return "strings"
    # `float | None` begins with its type.
    type_name = annotation.partition(" ")[0]
    return {"bool": "boolean", "int": "number", "float": "number"}.get(type_name, "string")


def parts(value: Any) -> Sequence[Any]:
    """The values of an option as a sequence, even if there is only one."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    return (value,)


# --- the parser -----------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser, question: type[CommandQuestion]) -> None:
    """Add the options of a question to a parser, in their groups."""
    groups: dict[HelpGroup | None, Any] = {None: parser}
    exclusive: dict[tuple[HelpGroup | None, str], Any] = {}
    for name, spec in question.OPTIONS.items():
        # argparse never sees the command after `--`.
        if spec.keywords.get("action") == AFTER_DASHES:
            continue
        if spec.group is not None and spec.group not in groups:
            groups[spec.group] = parser.add_argument_group(*spec.group)
        group = groups[spec.group]
        if spec.one_of is not None:
            key = (spec.group, spec.one_of)
            if key not in exclusive:
                exclusive[key] = group.add_mutually_exclusive_group(required=spec.is_needed)
            group = exclusive[key]
        if spec.is_positional:
            group.add_argument(name, **spec.keywords)
        else:
            # An option that is not typed stays out of the namespace, so that `given` can be known.
            group.add_argument(*spec.flags, dest=name, default=argparse.SUPPRESS, **spec.keywords)


def positional_words(question: type[CommandQuestion]) -> str:
    """The positional arguments of a question as in a usage line, such as `[PACKAGE ...]`. The
    command after `--` is left out."""
    form_of_nargs = {None: "{}", "?": "[{}]", "*": "[{} ...]"}
    words = []
    for name, spec in question.OPTIONS.items():
        if spec.is_positional and "nargs" in spec.keywords:
            word = spec.keywords.get("metavar") or name.upper()
            words.append(form_of_nargs[spec.keywords["nargs"]].format(word))
    return " ".join(words)
