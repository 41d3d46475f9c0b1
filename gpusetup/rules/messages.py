"""Findings that one message alone decides: rows from a kind of event to a finding.

A row holds for a live machine and for somebody's text alike: both give the same events. What needs
more than the message (a version, a GPU, another event) is a function in the file of its subject.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gpusetup.model import Event, Finding, Fix, Severity
from gpusetup.rules import ways
from gpusetup.rules.case import Case, events, on, told
from gpusetup.rules.wording import sentence
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
    """A command that begins with `pip ` is written for the target's installer."""
    windows: tuple[str, ...] | None = None
    """The commands on Windows, where they differ."""
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
    commands = row.commands if row.windows is None or not on(case, "windows") else row.windows
    return Fix(
        text=row.text,
        commands=tuple(
            typed for command in commands for typed in _as_typed(case, command, heard[0])
        ),
        needs_root=row.needs_root,
        needs_reboot=row.needs_reboot,
    )


def _as_typed(case: Case, command: str, event: Event) -> tuple[str, ...]:
    """A command with the event's values; none where it needs one that the event lacks."""
    try:
        words = [word.format_map(event.values) for word in shlex.split(command)]
    except (KeyError, IndexError, ValueError):
        return () if "{" in command else (command,)
    if words[0] == "pip":
        return (ways.pip(case, *words[1:]),)
    if "{" not in command:
        return (command,)
    return (ways.command(case, *words),)
