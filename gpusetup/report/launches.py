"""The command lines of a text that start a training on several GPUs by torch's old launcher."""

from __future__ import annotations

import re

from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Facts

OLD_LAUNCH = "old-launch"
"""The kind of event: a command line of `python -m torch.distributed.launch`, and no failure."""

COMMAND = lazy(
    r"(?P<variables>(?:[A-Z_]\w{0,40}=[\w.,:/-]{0,80} ){0,6})"
    r"(?:\S{0,120}[/\\])?python[\d.]{0,5}(?:\.exe)?\s(?:-[uEsO]\s){0,3}-m\s+torch\.distributed\.launch\s+(?P<arguments>\S.*)$"
)
MAX_LINES = 12
"""Lines of one command that ends each line with a backslash (or PowerShell's backtick)."""


def old_launches(text: Text) -> Facts:
    """The first such command, with what stands before and behind the launcher.

    >>> from gpusetup.report.cleaning import text_of
    >>> line = "$ python -m torch.distributed.launch --nproc_per_node=2 train.py"
    >>> next(old_launches(text_of(line))).values["arguments"]
    '--nproc_per_node=2 train.py'
    """
    if "torch.distributed.launch" not in text.low:
        return
    for number in range(len(text.lines)):
        if command := COMMAND.search(whole_command(text.lines[number : number + MAX_LINES])):
            values = {
                "variables": command["variables"].strip(),
                "arguments": command["arguments"].strip("`'\" "),
            }
            source = f"report, line {number + 1}"
            yield Event(kind=OLD_LAUNCH, values=values, source=source, text=command[0][:200])
            return


def whole_command(lines: tuple[str, ...]) -> str:
    """A command line with the lines that continue it.

    >>> whole_command(("torchrun \\\\", "  train.py", "done"))
    'torchrun train.py'
    """
    parts: list[str] = []
    for line in lines:
        continued = re.search(r"\s[\\`^]$", line)
        parts.append(line[: continued.start()] if continued else line)
        if not continued:
            break
    return " ".join(" ".join(parts).split())
