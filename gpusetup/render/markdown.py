"""A reply for a thread: what the screen says as Markdown, in which foreign text does not act."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from gpusetup.model.marks import APART
from gpusetup.render.language import HEADING, MARKS, Row, plain
from gpusetup.render.text import judged, machine_facts

if TYPE_CHECKING:
    from gpusetup.model.documents import DoctorAnswer

LONGEST = 300
SPECIAL = re.compile(r"[\\`*\[\]<>#|~@&$]|(?<![^\W_])_|_(?![^\W_])|^[-+=]")
"""What acts as Markdown inside a line (an underscore only at the edge of a word), or begins one."""


NAMING = re.compile(r"(?<=[@#])(?=\w)|(?<=\bGH)(?=-\d)", re.IGNORECASE)
"""Where GitHub reads a person or a thread, backslash or not, and tells them: github/markup#1168."""


def escaped(text: str) -> str:
    """Foreign text in one line that Markdown shows as it is, and that names nobody and no thread.

    >>> escaped("<b>[x](y)</b>\\n# me")
    '\\\\<b\\\\>\\\\[x\\\\](y)\\\\</b\\\\> \\\\# me'
    >>> escaped("@you #2 GH-3")
    '\\\\@\\u2060you \\\\#\\u20602 GH\\u2060-3'
    >>> escaped("CUDA_HOME (error 2) __init__")
    'CUDA_HOME (error 2) \\\\_\\\\_init\\\\_\\\\_'
    """
    return _inert(" ".join(plain(text).split())[:LONGEST])


def _inert(line: str) -> str:
    return SPECIAL.sub(lambda found: f"\\{found.group()}", NAMING.sub(APART, line))


def prose(text: str) -> str:
    """Our own sentence, in which code stands between backticks; all else is shown as it is.

    >>> prose("Run `a_b` on 2>1")
    'Run `a_b` on 2\\\\>1'
    """
    line = " ".join(plain(text).split())[: 3 * LONGEST]
    if line.count("`") % 2:
        return escaped(text)
    parts = re.findall("`[^`]*`|[^`]+", line)
    return "".join(part if part[0] == "`" else _inert(part) for part in parts)


def fenced(lines: list[str], language: str = "") -> list[str]:
    """A code block whose fence is longer than any run of backticks in it.

    >>> fenced(["a ``` b"])
    ['````', 'a ``` b', '````']
    """
    cleaned = [" ".join(plain(line).split()) for line in lines]
    longest = max(map(len, re.findall("`+", "\n".join(cleaned))), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *cleaned, fence]


WHAT_IT_IS = (
    "`gpusetup` reads what a machine or a text shows and installs the torch that fits. It is on no "
    "package index yet: `pip install .` in a clone of its repository installs it. All other "
    "commands above work without it."
)


def doctor_markdown(answer: DoctorAnswer) -> str:
    """All that the screen says, then the machine, and what to report if that does not help."""
    first, *rows = judged(answer).lines
    name, colon, said = re.sub(r"^[^\w\s] ", "", first).partition(": ")
    language = "powershell" if answer.snapshot.os.family == "windows" else "sh"
    lines = [f"**{escaped(name)}**{colon}{prose(said)}", *_drawn(rows, language)]
    told = machine_facts(answer)
    read = [f"{name} {told[name]}" for name in READ if told[name] != "unknown"]
    known = " / ".join(read).removeprefix("system ")
    lines += ["", escaped(f"read: {known}")] if known else []
    lines += ["", WHAT_IT_IS, "", _asks_for(answer)]
    return "\n".join(lines) + "\n"


READ = ("system", "driver", "GPU", "torch", "Python")
"""Rows of the machine that a reply repeats."""
SIGNS = {mark: severity.value for severity, (mark, _) in MARKS.items()}


def _drawn(rows: Iterable[Row], language: str) -> Iterator[str]:
    """The rows of a screen: what is typed and what was read in blocks, all else as a line each.

    >>> from gpusetup.render.language import BUT, command, marked
    >>> [*_drawn((command("nvidia-smi"), marked(BUT, "shm-too-small", "64 MiB", indent=2)), "sh")]
    ['```sh', 'nvidia-smi', '```', '', '- warning shm-too-small: 64 MiB']
    """
    before = "the verdict"
    for kind, group in groupby(rows, lambda row: "read" if row.source else "typed" * row.whole):
        if kind:
            found = [(row.source, row.strip().removesuffix(f"  ({row.source})")) for row in group]
            told = [f"{who}: {said}"[:LONGEST] if who else said for who, said in found]
            yield from fenced(told, "" if kind == "read" else language)
            before = "```"
            continue
        for row in group:
            line = _line(row)
            if line.startswith("- ") and before == "```":
                yield ""
            if line or before:
                yield line
            before = line


def _line(row: Row) -> str:
    """A heading as a sentence that ends in a colon; a finding as an item of a list."""
    text = row.strip()
    if any(role == HEADING for _, role in row.parts):
        return f"{text}:"
    if text[:1] in SIGNS and text[1:2] == " ":
        return f"- {SIGNS[text[0]]} {prose(text[2:])}"
    return prose(text)


def _asks_for(answer: DoctorAnswer) -> str:
    """What to report next: the machine's own record, or from afar what shows as much."""
    still = "If it still fails" if answer.cause == "ok" else "If that does not help"
    machine = answer.snapshot
    if machine.origin != "report":
        return f"{still}, post the output of `gpusetup snapshot`."
    if answer.cause == "unknown":
        first = f", and the output of `{answer.next_reading}`, or of `gpusetup snapshot`"
        return f"Please post the whole error{first if answer.next_reading else ''}."
    lacks = ["`python -m torch.utils.collect_env`"] * (machine.torch.version is None)
    lacks += ["`nvidia-smi`"] * (machine.driver.version is None)
    whole = "`gpusetup snapshot`" + (f", or of {' and '.join(lacks)}" if lacks else "")
    return f"{still}, post the whole error and the output of {whole}."
