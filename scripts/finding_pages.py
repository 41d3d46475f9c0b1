"""A page for each finding, and their index by what people see, in Markdown for the site.

The words are the record's, unless docs/contributing/finding-pages.md has others: a page has to be
right on every machine. Further commands are doctor's, for a text with one of the finding's messages
and the output of its check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gpusetup.catalog.file import load_catalog
from gpusetup.causes import containers, extensions, parallel
from gpusetup.causes.layers import Layer
from gpusetup.causes.record import Cause
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.explanations import records
from gpusetup.model.finding import Finding, command_lines
from gpusetup.report.read import read_bytes

ROOT = Path(__file__).resolve().parent.parent
MESSAGES = ROOT / "web" / "messages.json"
PARTS = ROOT / "docs" / "contributing" / "finding-pages.md"
SYSTEM = "OS: Ubuntu 24.04.1 LTS (x86_64)"
"""The line of `python -m torch.utils.collect_env` that names the system of the examples."""
MACHINE = """Nvidia driver version: 570.133.07
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5070 Ti
PyTorch version: 2.6.0+cu124 in /home/me/venv
"""
"""What a text must show besides before a change of torch can be recommended."""
CHECK_IT = "Check first"
FIX_IT = "How to fix it"
OTHER_MESSAGES = "Other messages of this cause:"
MOST_WORDS = 130
"""Of a page: a longer one leaves out further messages that lead to it."""
NO_PAGE = ("ok", "unknown", "report-cut", "report-empty", "rule-broken")
"""Answers about the text that doctor read: nobody searches for them."""
SEEN = {
    **dict.fromkeys((Layer.UNFINISHED, Layer.PLATFORM, Layer.INSTALL), "pip, uv or conda stops"),
    Layer.LIBRARIES: "An import fails, or a library is missing",
    Layer.WHEEL: "torch is not the build for this GPU",
    Layer.RUNNING: "A program runs on the CPU, out of memory, slowly or wrongly",
    **dict.fromkeys((Layer.PROCESS, Layer.READINESS), "CUDA does not start"),
}
"""The layer of a cause -> what the user of a program sees."""
BUILDS = "A package does not compile"
DISTRIBUTED = "Several GPUs"
ENDS_THE_SHELL = ("sudo reboot", "wsl.exe --shutdown")
"""Nothing that is pasted after these commands runs."""
OF_ONE_MACHINE = (
    (r"linux-headers-[\w.+~-]+", 'linux-headers-"$(uname -r)"'),
    (r"/\S+/bin/python\b", "python"),
)
"""What names the example machine in a command, and what to type on any other one."""
GROUPS = (
    *dict.fromkeys(SEEN.values()),
    BUILDS,
    DISTRIBUTED,
    "nvidia-smi or the driver fails, or the GPU is faulty",
    "A container, a pod or WSL has no GPU",
    "AMD, Intel and Apple",
)


def group_of(record: Cause) -> str:
    """The group of the index that a finding stands in."""
    layer = record.layer
    if layer is Layer.BOUNDARY or record in containers.CAUSES:
        return "A container, a pod or WSL has no GPU"
    if layer in (Layer.HARDWARE, Layer.DRIVER):
        return "nvidia-smi or the driver fails, or the GPU is faulty"
    if layer is Layer.NO_GPU:
        return "AMD, Intel and Apple"
    if record in parallel.CAUSES:
        return DISTRIBUTED
    if record in extensions.CAUSES and layer is Layer.INSTALL:
        return BUILDS
    return SEEN.get(layer or Layer.RUNNING, SEEN[Layer.RUNNING])


@cache
def shown() -> tuple[Cause, ...]:
    """The records that have a page, in the order of precedence."""
    return tuple(record for record in records() if record.id not in NO_PAGE)


# --- what people search for -----------------------------------------------------------------------


class SearchedMessage(NamedTuple):
    """A message as a program prints it, and the finding that it shows."""

    finding: str
    message: str
    beside: str = ""
    """What else stood in the text, if the message alone does not decide."""

    @property
    def line(self) -> str:
        """The message on one line."""
        return " ".join(self.message.split())


@cache
def messages() -> tuple[SearchedMessage, ...]:
    """Every row of `web/messages.json`, in the file's order."""
    rows = json.loads(MESSAGES.read_text(encoding="utf-8"))
    return tuple(SearchedMessage(**row) for row in rows)


def headings_of(id: str) -> tuple[str, ...]:
    """The messages that lead to this finding's page, each once.

    Several findings may share a message; then the page of the one that it shows without further
    words has it, so that a search leads to the usual cause.
    """
    homes: dict[str, str] = {}
    for row in sorted(messages(), key=lambda row: bool(row.beside)):
        homes.setdefault(row.line, row.finding)
    return tuple(line for line, home in homes.items() if home == id)


def title_of(record: Cause) -> str:
    """The message that people search for, else the record's name."""
    return next(iter(headings_of(record.id)), record.name)


# --- what a page says -----------------------------------------------------------------------------


@cache
def written() -> dict[tuple[str, str], str]:
    """The parts of pages written in Markdown: id and `check` or `fix` -> the part."""
    id, part = "", ""
    lines: dict[tuple[str, str], list[str]] = {}
    for line in PARTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            id, part = line.removeprefix("## "), ""
        elif line in ("### check", "### fix"):
            part = line.removeprefix("### ")
            lines[id, part] = []
        elif id and part:
            lines[id, part].append(line)
    return {place: "\n".join(text).strip() for place, text in lines.items()}


def check_of(record: Cause) -> str:
    """The command with which people see whether they have this cause, and what it prints."""
    part = written().get((record.id, "check"), "")
    if "```" in part:
        return part
    if record.check:
        command, prints = fenced(record.check.command, "sh"), fenced(record.check.prints, "text")
        return f"{command}\n\n{part or 'If this is the cause, it prints:'}\n\n{prints}"
    look = [line.replace("{{", "{").replace("}}", "}") for line in typed(record.look)]
    return fenced("\n".join(look), "sh") if look else ""


def fix_of(record: Cause) -> str:
    """What to do, with the commands."""
    part = written().get((record.id, "fix"), "")
    text = record.text.rstrip(" :.")
    if part.startswith("```"):
        return f"{text}.\n\n{part}"
    if part:
        return part
    commands = "\n".join(commands_of(record))
    paragraphs = [f"{text}."] if text else []
    if commands and commands not in check_of(record):
        paragraphs.append(fenced(commands, "sh"))
    return "\n\n".join(paragraphs)


def fenced(text: str, language: str) -> str:
    """Lines of code as a block of Markdown. The fence is longer than any run of backticks in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return f"{fence}{language}\n{text}\n{fence}"


def typed(commands: Iterable[str]) -> list[str]:
    """A record's commands that need no value of a message."""
    return [line for line in commands if not re.search(r"(?<!\{)\{\w", line)]


def commands_of(record: Cause) -> list[str]:
    """Doctor's commands for an example, without what is the example machine's own; the record's if
    no example has any."""
    found = example_of(record)
    lines = [str(line) for line in command_lines(found.fix if found else None)]
    if not lines and not callable(record.commands):
        lines = typed(record.commands)
    if any(line.startswith("gpusetup install") for line in lines):
        # Which build fits is known on the machine only: no version of the example's.
        lines = [line for line in lines if "torch==" not in line]
        lines = [
            re.sub("gpusetup install (?!--venv).*", "gpusetup install", line) for line in lines
        ]
        lines.append("gpusetup resolve    # or only print the commands for pip, uv and conda")
    for example, anywhere in OF_ONE_MACHINE:
        lines = [re.sub(example, anywhere, line) for line in lines]
    lines = sorted(dict.fromkeys(lines), key=ENDS_THE_SHELL.__contains__)
    if any(word in line for line in lines for word in (" apt ", "ubuntu-drivers")):
        lines.insert(0, "# On Ubuntu; for another system, gpusetup doctor prints its commands.")
    return lines


def example_of(record: Cause) -> Finding | None:
    """The finding in a text that shows it, with commands if a text brings them; None if no text
    does."""
    first: Finding | None = None
    check = record.check
    checked = f"$ {check.command}\n{check.prints}" if check else ""
    shown = [f"{m.message}\n{m.beside}" for m in messages() if m.finding == record.id]
    for text in (*shown, *(row.example for row in record.rows), ""):
        for context in ("", checked, MACHINE):
            words = f"{text}\n{SYSTEM}\n{context}"
            diagnosis = diagnose(read_bytes(words.encode()), load_catalog())
            for finding in diagnosis.findings:
                if finding.id != record.id:
                    continue
                if finding.fix and finding.fix.commands:
                    return finding
                first = first or finding
    return first


# --- Markdown, for the site -----------------------------------------------------------------------

ID = re.compile(r"(?<![\w/-])[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?![\w/-])")


def markdown_index() -> str:
    """The findings by what people see, for the end of `docs/findings/index.md`."""
    parts = []
    for group in GROUPS:
        ids = sorted(record.id for record in shown() if group_of(record) == group)
        parts.append(f"## {group}\n\n" + "".join(f"- [{id}]({id}.md)\n" for id in ids))
    return "\n".join(parts)


def markdown(record: Cause) -> str:
    """The page of one finding."""
    title = title_of(record)
    is_message = title in headings_of(record.id)
    heading = code_span(title) if is_message else title
    # Without a message, the name is the title already.
    meaning = f"{record.name}. {record.means}" if is_message else record.means
    parts = [f"# {heading}", f"Finding: [`{record.id}`](index.md)", _linked(meaning.strip())]
    check, fix = check_of(record), fix_of(record)
    if check:
        parts += [f"## {CHECK_IT}", _linked(check)]
    if fix:
        parts += [f"## {FIX_IT}", _linked(fix)]
    words = len(" ".join(parts).split()) + len(OTHER_MESSAGES.split())
    others = []
    for line in headings_of(record.id)[1:]:
        words += len(line.split())
        if words > MOST_WORDS:
            break
        others.append(line)
    if others:
        parts[3:3] = [OTHER_MESSAGES, fenced("\n".join(others), "text")]
    return "\n\n".join(filter(None, parts)) + "\n"


def code_span(message: str) -> str:
    """A message as code in Markdown, whatever it contains.

    >>> code_span("a `b`"), code_span("a b")
    ('`` a `b` ``', '`a b`')
    """
    line = " ".join(message.split())
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def _linked(text: str) -> str:
    """Markdown with links for the ids of findings, and `&lt;` for `<`, outside its code and its
    links."""
    parts = re.split(r"(?s)(```.*?```|`[^`]*`|\[[^]]*\]\([^)]*\)|<http[^>]*>)", text)
    pages = {record.id for record in shown()}
    # Every second part is code or a link.
    for place in range(0, len(parts), 2):
        parts[place] = ID.sub(
            lambda match: f"[{match[0]}]({match[0]}.md)" if match[0] in pages else match[0],
            parts[place].replace("<", "&lt;"),
        )
    return "".join(parts)
