"""Finds commands that start a training on several GPUs with torch's old launcher."""

from __future__ import annotations

from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Facts

OLD_LAUNCH = "old-launch"
"""The kind of event for a command line with `python -m torch.distributed.launch`. It does not mean
a failure."""

# `NCCL_DEBUG=INFO python3 -u -m torch.distributed.launch --nproc_per_node=2 train.py`.
COMMAND = lazy(
    r"(?P<variables>(?:[A-Z_]\w{0,40}=[\w.,:/-]{0,80} ){0,6})"
    r"(?:\S{0,120}[/\\])?python[\d.]{0,5}(?:\.exe)?\s(?:-[uEsO]\s){0,3}-m\s+torch\.distributed\.launch\s+(?P<arguments>\S.*)$"
)
# The end of a line that continues on the next: a backslash, PowerShell's backtick or cmd's caret.
CONTINUED = lazy(r"\s[\\`^]$")
MAX_LINES = 12
"""At most this many lines are read as one command."""
SHOWN_CHARACTERS = 200
"""At most this many characters of the command are quoted as evidence."""


def old_launches(text: Text) -> Facts:
    """The first command with `torch.distributed.launch`: the variables before it, and its
    arguments.

    >>> from gpusetup.report.cleaning import text_of
    >>> line = "$ python -m torch.distributed.launch --nproc_per_node=2 train.py"
    >>> next(old_launches(text_of(line))).values["arguments"]
    '--nproc_per_node=2 train.py'
    """
    if "torch.distributed.launch" not in text.low:
        return
    for index in range(len(text.lines)):
        command_line = whole_command(text.lines[index : index + MAX_LINES])
        command = COMMAND.search(command_line)
        if command is None:
            continue
        values = {
            "variables": command["variables"].strip(),
            "arguments": command["arguments"].strip("`'\" "),
        }
        yield Event(
            kind=OLD_LAUNCH,
            values=values,
            source=line_source(index + 1),
            text=command[0][:SHOWN_CHARACTERS],
        )
        return


def whole_command(lines: tuple[str, ...]) -> str:
    """The first line, joined with the lines that continue it.

    >>> whole_command(("torchrun \\\\", "  train.py", "done"))
    'torchrun train.py'
    """
    parts: list[str] = []
    for line in lines:
        continued = CONTINUED.search(line)
        if continued is None:
            parts.append(line)
            break
        parts.append(line[: continued.start()])
    # The command's pattern expects single spaces between words.
    return " ".join(" ".join(parts).split())
