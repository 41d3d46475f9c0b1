"""Makes a finding from a cause's record and the messages or readings that show the cause.

If a record has no check, its message alone makes the finding. Findings that need more than a
message (a version, a GPU, another event) have a function in their subject's file.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from gpusetup.causes.record import RECORDS, Message
from gpusetup.causes.table import CAUSES
from gpusetup.evidence.command_values import is_an_identifier
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    event_evidence,
    events,
    gpus,
    on,
    source_of,
)
from gpusetup.fixes import gpu_naming, paste, system_packages
from gpusetup.model.finding import Finding, Findings, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events, Gpu
from gpusetup.model.patterns import in_any_case
from gpusetup.model.shell import Lines, unsetting


def case_of(context: RuleContext, message: Message, messages: Events) -> tuple[Message, Events]:
    """The first case of a message that applies here, with the events that match it; the message
    itself with all events if none applies."""
    for case in message.cases:
        matching = tuple(event for event in messages if has(event, case.having))
        if not matching or not all(condition(context) for condition in case.where):
            continue
        fix_from = case if case.text else message
        complete_case = replace(
            case,
            title=case.title or message.title,
            # A plain title belongs to its title, so a case with its own title does not take it.
            plain=case.plain or ("" if case.title else message.plain),
            means=case.means or message.means,
            **{part: getattr(fix_from, part) for part in OF_A_FIX},
        )
        return complete_case, matching
    return message, messages


OF_A_FIX = ("text", "commands", "look", "needs_root", "needs_reboot", "fix_for")
"""The fields of a message that make its fix. A case without a text has the message's own."""


def has(event: Event, patterns: Mapping[str, str]) -> bool:
    """Whether an event's values match all these patterns."""
    return all(
        name in event.values and in_any_case(pattern).search(event.values[name])
        for name, pattern in patterns.items()
    )


def finding(
    context: RuleContext,
    cause: str,
    messages: Iterable[Event],
    /,
    *,
    message: Message | None = None,
    fix: Fix | None = None,
    severity: Severity | None = None,
    weak: object = False,
    **values: str,
) -> Finding:
    """The finding of a record, made from messages and from the machine's readings.

    `message` replaces the record's own message, which supplies the text of the fix if `message`
    has none. `weak` turns an error into a warning, unless `severity` says otherwise. `values` fill
    placeholders of the title for which the event has no value.
    """
    record = RECORDS[cause]
    defaults = {name: value for name, value in values.items() if value}
    complete = tuple(replace(event, values={**defaults, **event.values}) for event in messages)
    case, matching = case_of(context, message or record, complete)
    if not case.text:
        case = replace(case, text=record.text)
    if weak:
        severity = severity or Severity.WARNING
    finding_of_record = record.found(
        title_of(context, case, matching),
        detail=case.means,
        evidence=event_evidence(matching),
        fix=fix or fix_of(context, case, matching),
    )
    return replace(finding_of_record, severity=severity or case.only or record.severity)


def shown(context: RuleContext, subject: str, text: str, **values: str) -> Event:
    """A reading of the machine as an event, in the same form as a program's message."""
    return Event(kind="shown", source=source_of(context, subject), text=text, values=values)


def marked(context: RuleContext, concerned: Sequence[Gpu], *fields: str) -> Events:
    """These fields of GPUs as events, one for each GPU of which a source reported a value:
    `GPU 0: temperature celsius 91, power watts 220`."""
    values = []
    for gpu in concerned[: gpu_naming.MAX_NAMED]:
        texts = [_value_text(name, getattr(gpu, name)) for name in fields]
        if any(texts):
            label = f"GPU {gpu_naming.smi_index(gpu) or gpu.name}"
            values.append(shown(context, "gpus", f"{label}: {', '.join(filter(None, texts))}"))
    return tuple(values)


def _value_text(name: str, value: object) -> str:
    """A GPU's field with its value in words; "" for an unknown value, a False and an empty list."""
    words = name.replace("_", " ")
    if value is None or value is False or value == ():
        return ""
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return words if value is True else f"{words} {value}"


def of_gpus(
    context: RuleContext,
    cause: str,
    concerned: Sequence[Gpu],
    *fields: str,
    messages: Iterable[Event] = (),
    **options: Any,
) -> Finding:
    """The finding about some of the machine's GPUs, with messages and the values of these fields
    as evidence. `options` are those of `finding`."""
    names = gpu_naming.gpus_in_title(context, concerned)
    evidence = (*messages, *marked(context, concerned, *fields))
    # Some titles name the GPUs as `{who}`, others as `{gpus}`.
    return finding(context, cause, evidence, **{"who": names, "gpus": names, **options})


def seen(context: RuleContext, cause: str, subject: str, text: str, **options: Any) -> Finding:
    """The finding for one reading of the machine. `options` are those of `finding`."""
    return finding(context, cause, (shown(context, subject, text),), **options)


def title_of(context: RuleContext, message: Message, messages: Events) -> str:
    """The title, filled with the values of the first event that has all of them; without such an
    event the title for a machine about which nothing is known."""
    machine = {
        "torch": context.torch.version,
        "driver": context.driver.version,
        "gpus": gpu_naming.gpu_names(context) if gpus(context) else None,
    }
    of_machine = {name: value for name, value in machine.items() if value}
    for event in messages:
        try:
            title = message.title.format_map({**of_machine, **event.values})
        except KeyError:
            continue
        # An empty value would leave two spaces.
        return " ".join(title.split())
    return message.name


def fix_of(context: RuleContext, message: Message, messages: Events) -> Fix:
    """The fix of a message: from its own function, or its text and commands for this system."""
    if message.fix_for:
        return message.fix_for(context, message.text)
    if callable(message.commands):
        commands = message.commands(context)
    else:
        commands = _lines_for_target(context, message.commands, messages)
    looks = _lines_for_target(context, message.look, messages)
    return Fix(
        text=message.text,
        commands=commands,
        looks=paste.titled("check the current state", *looks),
        needs_root=message.needs_root or any("sudo " in line for line in commands),
        needs_reboot=message.needs_reboot or "sudo reboot" in commands,
    )


def _lines_for_target(context: RuleContext, commands: tuple[str, ...], messages: Events) -> Lines:
    """A record's commands in the form for this machine, with the values of the first event."""
    written = (_line_for_target(context, command, messages[0]) for command in commands)
    return tuple(chain.from_iterable(written))


def _line_for_target(context: RuleContext, command: str, event: Event) -> Lines:
    """A command with the event's values, for this target and its shell.

    Empty if the event lacks a value that the command needs, if the value is not plausible, or if
    it is a Linux command on Windows.
    """
    # A text may contain anything as a value, so only plain names are put into a command.
    plain = {name: value for name, value in event.values.items() if is_an_identifier(value)}
    try:
        program, *words = (word.format_map(plain) for word in shlex.split(command))
    # KeyError: the event lacks a plausible value. Otherwise, the signs in it are the shell's own.
    except (KeyError, IndexError, ValueError):
        return paste.posix(context, command) if "{" not in command else ()
    if writer := WRITERS.get(program):
        return writer(context, words)
    # A command without a value stays as it is written: its pipes and `$(…)` must not be quoted.
    if "{" not in command:
        return paste.posix(context, command)
    return () if on(context, "windows") else (paste.command(context, program, *words),)


def _gpusetup(context: RuleContext, words: list[str]) -> Lines:
    """A command of gpusetup; `install` gets the words that the machine needs."""
    # A new environment has its own Python, so the target's options are left out.
    if words[:1] != ["install"] or "--venv" in words:
        return (paste.command(context, "gpusetup", *words),)
    return (paste.gpusetup(context, *words[1:]),)


WRITERS: dict[str, Callable[[RuleContext, list[str]], Lines]] = {
    "pip": lambda context, words: (paste.pip(context, *words),),
    "python": lambda context, words: (paste.command(context, paste.python(context), *words),),
    "gpusetup": _gpusetup,
    "export": lambda context, words: tuple(
        paste.setting(context, *word.split("=", 1)) for word in words
    ),
    "package": lambda context, words: system_packages.system_package(context, words[0]),
    "unset": lambda context, words: (unsetting(words[0], context.os.family),),
}
"""The first word of a command in a record -> the function that writes the command for a target."""


def causes_shown_by_messages(context: RuleContext) -> Findings:
    """A finding for each cause whose message occurs and whose conditions hold."""
    kinds_shown = {event.kind for event in context.snapshot.events}
    for cause in CAUSES:
        # A function of another file decides about the first, and no message shows the others.
        if cause.by_check or not (cause.codes or kinds_shown.intersection(cause.kinds)):
            continue
        messages = [
            event
            for event in (*events(context, *cause.kinds), *cuda_errors(context, *cause.codes))
            if not (cause.but and has(event, cause.but))
        ]
        if messages and all(condition(context) for condition in cause.where):
            yield finding(context, cause.id, messages, weak=is_only_set(context, messages))


def is_only_set(context: RuleContext, messages: Iterable[Event]) -> bool:
    """Whether the messages only name a folder in a loader's variable, because of which nothing has
    failed."""
    has_failed = context.torch.import_error or context.snapshot.cuda_api.init_code == STUB_LIBRARY
    return not has_failed and all("folder" in message.values for message in messages)


STUB_LIBRARY = 34
"""cudaErrorStubLibrary."""


RULES = (causes_shown_by_messages,)
