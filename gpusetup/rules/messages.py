"""Findings that one message alone decides: rows from a kind of event to a finding.

A row holds for a live machine and for somebody's text alike: both give the same events. What needs
more than the message (a version, a GPU, another event) is a function in the file of its subject.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from gpusetup.model import Event, Finding, Fix, Severity
from gpusetup.rules import ways
from gpusetup.rules.case import Case, events, on, told
from gpusetup.rules.plausible import is_an_identifier
from gpusetup.rules.wording import sentence
from gpusetup.shell import Line, lines
from gpusetup.value import Value


class Message(Value):
    """One kind of event, and the finding that it proves."""

    kind: str
    id: str
    title: str
    """May name values of the event: `{library} is not here`."""
    plain: str = ""
    """The title where the event lacks such a value."""
    text: str
    """What to do."""
    detail: str = ""
    commands: tuple[str, ...] = ()
    """The way, in order. `pip`, `python`, `gpusetup install`, `export` and `unset` are written for
    the target and its shell; `{name}` is a value of the event."""
    windows: tuple[str, ...] | None = None
    """The commands on Windows, where they differ."""
    then: tuple[str, ...] = ()
    """What follows the commands on every system."""
    look: tuple[str, ...] = ()
    """What shows more and changes nothing."""
    see: str = "see first what there is"
    """What `look` is for: it follows the word "or"."""
    other: tuple[str, ...] = ()
    """Another way, and what it does: it follows the word "or"."""
    other_title: str = ""
    needs_root: bool = False
    needs_reboot: bool = False
    severity: Severity = Severity.ERROR


def said(case: Case, rows: tuple[Message, ...]) -> Iterator[Finding]:
    """A finding for every row whose message was said."""
    for row in rows:
        heard = events(case, row.kind)
        if heard:
            yield Finding(
                id=row.id,
                severity=row.severity,
                title=sentence(title_of(row, heard)),
                detail=row.detail,
                evidence=told(heard),
                fix=fix_of(case, row, heard),
            )


def title_of(row: Message, heard: tuple[Event, ...]) -> str:
    """The title with the values of the first event that has them all."""
    for event in heard:
        try:
            return row.title.format_map(event.values)
        except KeyError:
            continue
    return row.plain or row.title


def fix_of(case: Case, row: Message, heard: tuple[Event, ...]) -> Fix:
    unknown = case.snapshot.os.family is None and not row.commands
    windows = row.windows is not None and (on(case, "windows") or unknown)
    commands = lines(*row.windows or ()) if windows else _typed(case, row.commands, heard[0])
    then = _typed(case, row.then, heard[0])
    other = _typed(case, row.other, heard[0])
    return Fix(
        text=row.text,
        commands=(*commands, *then),
        alternatives=ways.other(row.other_title, *other),
        looks=ways.look(row.see, *_typed(case, row.look, heard[0])),
        needs_root=row.needs_root,
        needs_reboot=row.needs_reboot,
    )


def _typed(case: Case, commands: tuple[str, ...], event: Event) -> tuple[Line, ...]:
    return tuple(typed for one in commands for typed in _as_typed(case, one, event))


def _as_typed(case: Case, command: str, event: Event) -> tuple[Line, ...]:
    """A command with the event's values, for this target and its shell.

    None where it needs a value that the event lacks or that is no plausible one, or where it is a
    command of Linux and this is Windows.
    """
    good = {name: v for name, v in event.values.items() if is_an_identifier(v)}
    try:
        words = [word.format_map(good) for word in shlex.split(command)]
    except (KeyError, IndexError, ValueError):
        return ways.posix(case, command) if "{" not in command else ()
    writer = WRITERS.get(words[0])
    if writer:
        return writer(case, words[1:])
    if "{" not in command:
        return ways.posix(case, command)
    return () if on(case, "windows") else (ways.command(case, *words),)


def _settings(case: Case, pairs: list[str]) -> tuple[Line, ...]:
    named = (pair.partition("=") for pair in pairs)
    return tuple(ways.setting(case, name, value) for name, _, value in named)


def _gpusetup(case: Case, words: list[str]) -> tuple[Line, ...]:
    if words[:1] != ["install"] or "--venv" in words:
        return (ways.command(case, "gpusetup", *words),)
    return (ways.gpusetup(case, *words[1:]),)


WRITERS: dict[str, Callable[[Case, list[str]], tuple[Line, ...]]] = {
    "pip": lambda case, words: (ways.pip(case, *words),),
    "python": lambda case, words: (ways.command(case, ways.python(case), *words),),
    "gpusetup": _gpusetup,
    "export": _settings,
    "unset": lambda case, words: tuple(one for name in words for one in ways.unset(case, name)),
}
"""The first word of a row's command -> how it is written for a target."""
