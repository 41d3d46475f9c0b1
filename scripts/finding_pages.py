"""A page for each finding, and their index by what people see, in Markdown for the site.

The words are the record's. The commands are doctor's, for a text with one of the finding's messages
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
INSTALL = ("gpusetup install",)
COMMANDS: dict[str, tuple[str, ...]] = {
    "amd-gpu": (*INSTALL, 'sudo usermod -aG render,video "$USER"'),
    "companion-torch-mismatch": ("gpusetup install PACKAGE", "python -m pip check"),
    "container-hook-failed": (),
    "cuda-lib-missing": (),
    "gpu-check-failed": ("gpusetup verify -v",),
    "gpu-memory-taken": ("nvidia-smi", "kill 4711    # the PID that nvidia-smi lists"),
    "hardware-fault": (
        "sudo nvidia-bug-report.sh",
        "sudo nvidia-smi --gpu-reset -i 0    # the GPU's number in nvidia-smi",
    ),
    "input-bound": ("gpusetup monitor -- python train.py",),
    "install-unfinished": INSTALL,
    "invalid-device-ordinal": ("nvidia-smi -L",),
    "jetson-wrong-wheel": ("gpusetup doctor    # names the wheel for this JetPack",),
    "libcuda-missing": (),
    "library-missing": (),
    "mig-misconfigured": (
        "nvidia-smi -L",
        "export CUDA_VISIBLE_DEVICES=MIG-…    # the UUID of an instance",
    ),
    "nccl-duplicate-gpu": ("torchrun --nproc-per-node=gpu train.py",),
    "nccl-shm-error": (),
    "no-nvidia-gpu": ("gpusetup install --backend cpu",),
    "no-target": ("gpusetup doctor --python .venv/bin/python",),
    "no-wheel-for-platform": (),
    "python-no-wheel": (
        "uv venv --python 3.12 .venv-3.12",
        "gpusetup install --venv .venv-3.12",
    ),
    "rocm-wheel-on-nvidia": INSTALL,
    "shm-too-small": ("docker run --rm --gpus all --shm-size=8g IMAGE",),
    "torch-import-failed": INSTALL,
    "triton-missing-windows": ("python -m pip install triton-windows",),
}
"""The commands of the findings for which doctor's depend on more than a page can know."""
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
    """The whole page, from its title to the commands."""
    title = title_of(record)
    # Without a message, the name is the title already.
    name = "" if title == record.name else f"{record.name}. "
    meaning = f"{name}{record.means}".strip()
    head = [Block("h1", title), *([Block("p", meaning)] if meaning else ())]
    check = []
    if record.check:
        check = [Block("sh", record.check.command), Block("p", "prints")]
        check.append(Block("text", record.check.prints))
    elif look := [line.replace("{{", "{").replace("}}", "}") for line in typed(record.look)]:
        check = [Block("sh", "\n".join(look))]
    text, commands = record.text.rstrip(" :."), "\n".join(commands_of(record))
    if any(block.text == commands for block in check):
        commands = ""
    fix = [
        *([Block("h2", FIX_IT)] if text or commands else ()),
        *([Block("p", f"{text}.")] if text else ()),
        *([Block("sh", commands)] if commands else ()),
    ]
    words = sum(len(block.text.split()) for block in (*head, *check, *fix))
    words += len((OTHER_MESSAGES + CHECK_IT).split())
    others = []
    for line in headings_of(record.id)[1:]:
        words += len(line.split())
        if words > MOST_WORDS:
            break
        others.append(line)
    if others:
        check = [Block("p", OTHER_MESSAGES), Block("text", "\n".join(others)), *check]
    return [*head, *([Block("h2", CHECK_IT), *check] if check else ()), *fix]


def typed(commands: Iterable[str]) -> list[str]:
    """A record's commands that need no value of a message."""
    return [line for line in commands if not re.search(r"(?<!\{)\{\w", line)]


def commands_of(record: Cause) -> list[str]:
    """Doctor's commands for an example, without what is the example machine's own; the record's if
    no example has any."""
    if record.id in COMMANDS:
        return list(COMMANDS[record.id])
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
        lines.append("gpusetup resolve    # prints the same for pip, uv and conda")
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
    parts = []
    for kind, text in blocks(record):
        if kind in ("h1", "h2"):
            is_message = text in headings_of(record.id)
            parts.append(f"{'#' * int(kind[1])} {code_span(text) if is_message else text}")
        elif kind == "p":
            parts.append(_linked(text))
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


def _linked(text: str) -> str:
    """The text with links for the ids of findings, and `&lt;` for `<`, outside its code."""
    parts = re.split(r"(`[^`]*`)", text)
    pages = {record.id for record in shown()}
    for place, part in enumerate(parts):
        if not part.startswith("`"):
            parts[place] = ID.sub(
                lambda match: f"[{match[0]}]({match[0]}.md)" if match[0] in pages else match[0],
                part.replace("<", "&lt;"),
            )
    return "".join(parts)
