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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

VALUE, LIST, SWITCH, ARGUMENT, ARGUMENTS, COMMAND = range(6)
"""The kinds of options on the command line: with one value, repeatable, without a value, a single
positional word, any number of positional words, or the command after `--`."""


class HelpGroup(NamedTuple):
    """A heading in `--help`: as a value in a question's class, it begins a group, to which all
    options below it belong."""

    title: str
    description: str | None = None


class Option(NamedTuple):
    """The facts about one field of a question that the command line and the Python API need."""

    kind: int
    help: str
    default: Any = None
    flags: tuple[str, ...] = ()
    """The option's names on the command line; none for a positional argument."""
    metavar: str | None = None
    choices: Collection[str] | None = None
    parse: Callable[[str], Any] = str
    """Converts the typed text into the value. Raises ValueError or ArgumentTypeError if it
    cannot."""
    value_type: type = str
    """The type that `parse` returns. For int and float, Python callers may pass any number."""
    const: str | None = None
    """The option's value if it is typed without a value; None if that is not allowed."""
    group: HelpGroup | None = None
    """The heading above it in its class; without one, it is in the first group of `--help`."""
    one_of: str | None = None
    """Options with the same word here are mutually exclusive."""
    is_needed: bool = False
    """Whether the user must give one of these mutually exclusive options."""
    takes_several: bool = False
    """Whether a repeatable option accepts several words each time, such as `--only memory sdpa`."""
    as_it_is: tuple[type, ...] = ()
    """Types of values that Python callers may pass and that are not checked further, such as a
    snapshot or bytes."""


def option(
    help: str, *flags: str, default: Any = None, parse: Callable[[str], Any] = str, **rest: Any
) -> Any:
    """An option with one value. Its flag is made from the field's name unless `flags` are given.

    A parser that returns a number needs a `value_type`, unless it is `int` or `float` itself.
    """
    if parse in (int, float):
        rest.setdefault("value_type", parse)
    return Option(VALUE, help, default, flags, parse=parse, **rest)


def number(help: str, **rest: Any) -> Any:
    """An option whose value is a whole number."""
    return option(help, parse=int, metavar="N", **rest)


def options(help: str, *flags: str, **rest: Any) -> Any:
    """An option that may be repeated; its value is a tuple."""
    return Option(LIST, help, (), flags, **rest)


def switch(help: str, *flags: str, **rest: Any) -> Any:
    """An option without a value: True if it is given."""
    return Option(SWITCH, help, False, flags, **rest)


def argument(help: str, *, default: Any = None, **rest: Any) -> Any:
    """A positional argument; required unless it has a `default`."""
    return Option(ARGUMENT, help, default, **rest)


def arguments(help: str, **rest: Any) -> Any:
    """Any number of positional arguments; the value is a tuple."""
    return Option(ARGUMENTS, help, (), **rest)


def command_after_dashes() -> Any:
    """The command after `--`. Its words are passed on without being parsed."""
    return Option(COMMAND, "", ())


NEEDED: Any = object()
"""The default of an argument that is required."""

if TYPE_CHECKING:
    from gpusetup.model.frozen import dataclass_transform

    _FIELDS = (option, number, options, switch, argument, arguments, command_after_dashes)
    _record = dataclass_transform(
        kw_only_default=True, frozen_default=True, field_specifiers=_FIELDS
    )
else:

    def _record(kind: type) -> type:
        return kind


@_record
class CommandQuestion:
    """The options of a command; each subclass lists its options as fields (see the module's
    example)."""

    OPTIONS: Mapping[str, Option] = {}
    """Maps each field to its option, in the order of `--help`."""
    given: frozenset[str] = frozenset()
    """The fields that were typed or passed from Python; all others have their defaults."""

    def __init_subclass__(cls) -> None:
        declared: dict[str, Option] = {}
        group = None
        for name, value in vars(cls).items():
            if isinstance(value, HelpGroup):
                group = value
            elif isinstance(value, Option):
                is_positional = value.kind in (ARGUMENT, ARGUMENTS, COMMAND)
                own_flag = () if is_positional else (f"--{name.replace('_', '-')}",)
                declared[name] = value._replace(flags=value.flags or own_flag, group=group)
        cls.OPTIONS = {**cls.OPTIONS, **declared}
        # Move each option to OPTIONS, and replace the class attribute with the option's default. So
        # a question in which the field is not set has the default.
        for name, spec in declared.items():
            setattr(cls, name, spec.default)

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - self.OPTIONS.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {min(unknown)!r}")
        self.__dict__.update(values)
        self.__dict__["given"] = frozenset(values)

    @classmethod
    def typed(cls, parsed: argparse.Namespace) -> Any:
        """The question with the values of a parsed command line."""
        # argparse collects repeated options in a list, but a question must be immutable.
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in vars(parsed).items()
            if name in cls.OPTIONS and value is not None
        }
        return cls(**values)

    def replaced(self, **changes: Any) -> Any:
        """A copy of the question with some values replaced; `given` stays the same."""
        values = {name: getattr(self, name) for name in self.OPTIONS if name in vars(self)}
        changed = type(self)(**{**values, **changes})
        changed.__dict__["given"] = self.given
        return changed

    def given_flags(self) -> set[str]:
        """The longest flag of each given option, such as `--gpu`; positional arguments have
        none."""
        flags = set()
        for name in self.given:
            if self.OPTIONS[name].flags:
                flags.add(self.OPTIONS[name].flags[-1])
        return flags

    def words(self, *without: str) -> list[str]:
        """The given options as command-line words, with positional arguments last; the fields in
        `without` are left out."""
        with_flag: list[str] = []
        without_flag: list[str] = []
        for name, spec in self.OPTIONS.items():
            if name not in self.given or name in without:
                continue
            value = getattr(self, name)
            if spec.kind == SWITCH:
                with_flag += spec.flags[-1:] if value else ()
            elif spec.flags:
                with_flag += [f"{spec.flags[-1]}={part}" for part in parts(value)]
            else:
                without_flag += map(str, parts(value))
        # Put positional arguments after `--`, so that one that begins with a dash is not taken for
        # an option.
        return [*with_flag, "--", *without_flag] if without_flag else with_flag


def parts(value: Any) -> Sequence[Any]:
    """The values of an option as a sequence, even if there is only one."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    return (value,)


def takes(spec: Option) -> str:
    """The kind of value that an option takes: `boolean`, `integer` (any number), `string`, or
    `strings` for a list of texts."""
    if spec.kind == SWITCH:
        return "boolean"
    if spec.kind in (LIST, ARGUMENTS, COMMAND):
        return "strings"
    return "integer" if spec.value_type in (int, float) else "string"


# --- the parser -----------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser, kind: type[CommandQuestion]) -> None:
    """Add the options of a question to a parser, in their groups."""
    groups: dict[HelpGroup | None, Any] = {None: parser}
    exclusive: dict[tuple[HelpGroup | None, str], Any] = {}
    for name, spec in kind.OPTIONS.items():
        if spec.kind == COMMAND:
            continue
        if spec.group is not None and spec.group not in groups:
            groups[spec.group] = parser.add_argument_group(*spec.group)
        group = groups[spec.group]
        if spec.one_of is not None:
            key = (spec.group, spec.one_of)
            if key not in exclusive:
                exclusive[key] = group.add_mutually_exclusive_group(required=spec.is_needed)
            group = exclusive[key]
        _add_option(group, name, spec)


def _add_option(group: Any, name: str, spec: Option) -> None:
    """Add one option to a group. An option that is not typed stays out of the namespace, so that
    the given options can be recognised."""
    details: dict[str, Any] = {"help": spec.help, "default": argparse.SUPPRESS}
    if spec.kind == SWITCH:
        group.add_argument(*spec.flags, dest=name, action="store_true", **details)
        return
    details.update(metavar=spec.metavar, choices=spec.choices, type=spec.parse)
    if spec.kind == ARGUMENT:
        nargs = None if spec.default is NEEDED else "?"
        # For an optional positional argument, argparse would use the text of SUPPRESS itself as the
        # value.
        group.add_argument(name, nargs=nargs, **{**details, "default": None})
    elif spec.kind == ARGUMENTS:
        group.add_argument(name, nargs="*", **details)
    elif spec.kind == LIST and spec.takes_several:
        group.add_argument(*spec.flags, dest=name, action="extend", nargs="+", **details)
    elif spec.kind == LIST:
        group.add_argument(*spec.flags, dest=name, action="append", **details)
    elif spec.const is not None:
        group.add_argument(*spec.flags, dest=name, nargs="?", const=spec.const, **details)
    else:
        group.add_argument(*spec.flags, dest=name, **details)
