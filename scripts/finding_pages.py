"""A page for each finding, and their index by message: HTML for the page in the browser, Markdown
for the site.

The words are the record's. The commands are doctor's, for a text with one of the finding's messages
and the output of its check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from finding_page_texts import CHECKS, COMMANDS, WORDS

from gpusetup.catalog.file import load_catalog
from gpusetup.causes import containers, extensions, parallel
from gpusetup.causes.layers import Layer
from gpusetup.causes.record import Cause
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.explanations import records
from gpusetup.model.finding import Finding, command_lines
from gpusetup.report.read import read_bytes

MESSAGES = Path(__file__).resolve().parent.parent / "web" / "messages.json"
SYSTEM = "OS: Ubuntu 24.04.1 LTS (x86_64)"
"""The line of `python -m torch.utils.collect_env` that names the system of the examples."""
MACHINE = """Nvidia driver version: 570.133.07
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 5070 Ti
PyTorch version: 2.6.0+cu124 in /home/me/venv
"""
"""What a text must show besides before a change of torch can be recommended."""
CHECK_IT = "Check that this is your problem"
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
WITHOUT_COMMANDS = (
    "container-hook-failed", "cuda-lib-missing", "libcuda-missing", "library-not-mapped",
    "nccl-shm-error",
)  # fmt: skip
"""Doctor's commands for them depend on which message was printed, so they are not a page's."""
ENDS_THE_SHELL = ("sudo reboot", "wsl.exe --shutdown")
"""Nothing that is pasted after these commands runs."""
OF_ONE_MACHINE = (
    (r"linux-headers-\S+", "linux-headers-$(uname -r)"),
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
    layer = record.place[0] if record.place else None
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


class Block(NamedTuple):
    """A part of a page: a heading, a paragraph or lines of code."""

    kind: str
    """`h1`, `h2`, `p`, `sh` for commands, `text` for an output."""
    text: str


def blocks(record: Cause) -> list[Block]:
    """The whole page, from its title to the next step."""
    found = None if record.id in WITHOUT_COMMANDS else example_of(record)
    fix = found.fix if found else None
    # Where a text does not show what a change needs, doctor's words ask for that first.
    is_complete = fix is not None and not any(need.state != "read" for need in fix.needs)
    text = fix.text if fix and is_complete else record.text
    lines = [str(line) for line in command_lines(fix)]
    if not lines and not callable(record.commands):
        # No text shows this finding with commands, but they are the same on every machine.
        lines = [line for line in record.commands if "{" not in line]
    lines.sort(key=ENDS_THE_SHELL.__contains__)
    if any(line.startswith("gpusetup install") for line in lines):
        # Which build fits is known on the machine only: no version of the example's.
        lines = [line for line in lines if "torch==" not in line]
        lines = [
            re.sub("gpusetup install (?!--venv).*", "gpusetup install", line) for line in lines
        ]
        lines.append("gpusetup resolve    # prints the same for pip, uv and conda")
        text = record.text or record.name
    commands = COMMANDS.get(record.id) or "\n".join(dict.fromkeys(lines))
    for example, anywhere in OF_ONE_MACHINE:
        commands = re.sub(example, anywhere, commands)
    text = WORDS.get(record.id, text).rstrip(" :.")
    check = [Block("h2", CHECK_IT)]
    if how := record.check or CHECKS.get(record.id):
        check += [Block("sh", how.command), Block("p", "prints"), Block("text", how.prints)]
    rest = [
        *([Block("h2", FIX_IT)] if text or commands else ()),
        *([Block("p", f"{text}.")] if text else ()),
        *([Block("sh", commands)] if commands else ()),
    ]
    title = title_of(record)
    # Without a message, the name is the title already.
    name = "" if title == record.name else f"{record.name}. "
    meaning = f"{name}{record.means}".strip()
    head = [Block("h1", title), *([Block("p", meaning)] if meaning else ())]
    words = sum(len(block.text.split()) for block in (*head, *check, *rest))
    words += len(OTHER_MESSAGES.split())
    messages = []
    for line in headings_of(record.id)[1:]:
        longer = words + len(line.split())
        if longer <= MOST_WORDS:
            words = longer
            messages.append(line)
    if messages:
        check[1:1] = [Block("p", OTHER_MESSAGES), Block("text", "\n".join(messages))]
    return [*head, *(check if len(check) > 1 else ()), *rest]


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
    parts = []
    for kind, text in blocks(record):
        if kind in ("h1", "h2"):
            is_message = text in headings_of(record.id)
            parts.append(f"{'#' * int(kind[1])} {code_span(text) if is_message else text}")
        elif kind == "p":
            parts.append(_linked(text, "[{0}]({0}.md)", "&lt;"))
        else:
            # The fence is longer than any run of backticks in it.
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
            parts.append(f"{fence}{kind}\n{text}\n{fence}")
    parts.insert(1, f"Finding: [`{record.id}`](index.md)")
    return "\n\n".join(parts) + "\n"


def code_span(message: str) -> str:
    """A message as code in Markdown, whatever it contains.

    >>> code_span("a `b`"), code_span("a b")
    ('`` a `b` ``', '`a b`')
    """
    line = " ".join(message.split())
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def _linked(text: str, link: str, less: str = "<") -> str:
    """The text with links for the ids of findings, and `less` for `<`, outside its code."""
    parts = re.split(r"(`[^`]*`)", text)
    pages = {record.id for record in shown()}
    for place, part in enumerate(parts):
        if not part.startswith("`"):
            parts[place] = ID.sub(
                lambda match: link.format(match[0]) if match[0] in pages else match[0],
                part.replace("<", less),
            )
    return "".join(parts)


# --- HTML, for the page in the browser ------------------------------------------------------------

FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self'; \
img-src data:; base-uri 'none'; form-action 'none'">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{about}">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="../page.css">
</head>
<body class="article">
<nav aria-label="Pages"><a href="../index.html">gpusetup</a> · <a href="index.html">All messages\
</a></nav>
<main>
{body}</main>
<footer><p>From gpusetup's records; catalog of {as_of}.</p></footer>
</body>
</html>
"""
ABOUT = "What error messages of CUDA, PyTorch, docker and the NVIDIA driver mean, and what to type"
HINT = """<p class="hint"><a href="../index.html#report">Paste what your machine printed</a>.</p>
"""
LONGEST_TITLE = 110
"""Of the browser's tab; the page's own heading has the whole message."""
LONGEST_DESCRIPTION = 300


def pages() -> Iterator[tuple[str, str]]:
    """Every page with its place below the built folder."""
    yield "findings/index.html", index()
    for record in shown():
        yield f"findings/{record.id}.html", page(record)


def page(record: Cause) -> str:
    """The page of one finding."""
    first, *others = (_in_html(block) for block in blocks(record))
    id_line = f'<p>Finding: <span class="id">{record.id}</span></p>\n'
    title = title_of(record)
    if len(title) > LONGEST_TITLE:
        title = f"{title[:LONGEST_TITLE].rsplit(' ', 1)[0]} …"
    body = "".join((first, id_line, *others, HINT))
    return _frame(f"{title}: cause and fix", f"{record.name}. {record.means}", body)


def _in_html(block: Block) -> str:
    kind, text = block
    if kind in ("h1", "h2"):
        return f"<{kind}>{escape(text)}</{kind}>\n"
    if kind in ("sh", "text"):
        return f'<pre tabindex="0">{escape(text)}</pre>\n'
    linked = _linked(escape(text, quote=False), '<a class="id" href="{0}.html">{0}</a>')
    coded = re.sub("`([^`]*)`", r"<code>\1</code>", linked)
    return f"<p>{coded}</p>\n"


def index() -> str:
    """The messages by where they come from, each with the id of its finding."""
    title = "Error messages of CUDA, PyTorch and the NVIDIA driver"
    body = f'<h1>{title}</h1>\n<p>{ABOUT}. <a href="../index.html">Paste your own</a>.</p>\n'
    for group in GROUPS:
        rows = set()
        for record in shown():
            if group_of(record) == group:
                rows |= {
                    f'<li><a href="{record.id}.html">{escape(name)}</a> '
                    f'<span class="source id">{record.id}</span></li>\n'
                    for name in headings_of(record.id) or (record.name,)
                }
        body += f'<h2>{group}</h2>\n<ul class="plain">\n{"".join(sorted(rows))}</ul>\n'
    return _frame(title, ABOUT, body)


def _frame(title: str, about: str, body: str) -> str:
    return FRAME.format(
        title=escape(title),
        about=escape(about[:LONGEST_DESCRIPTION]),
        as_of=load_catalog().as_of,
        body=body,
    )
