"""Follows a page of the documentation as a reader does: saves its files, runs its commands.

A page is written so that nothing but copy and paste is needed:

- a fence with a title (```` ```yaml title="train.yaml" ````) is a file that the reader saves;
- a fence of `sh` holds commands, one a line, that the reader runs in the folder of these files;
- a fence of `text` right after it shows what the commands print. Each of its lines stands in their
  output, in this order; a line of `...` stands for lines that are left out.

A comment above a fence of commands says what the reader cannot see in it:

    <!-- exit: 1 -->               the last command ends with this exit code (0 without a comment)
    <!-- not run: 2 GB to load -->  a command that changes the reader's machine
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"

FENCE = re.compile(
    r"(?:^<!-- (?P<remark>[^>]*) -->\n)?"
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<body>.*?)"
    r"^```$",
    re.MULTILINE | re.DOTALL,
)
LIMIT_SECONDS = 240
"""For one command. The longest, a benchmark on a CPU, takes about a minute on a quiet machine."""


class Fence(NamedTuple):
    """One fenced block of a page, with the comment above it."""

    language: str
    title: str
    """The name of the file that the reader saves, or ""."""
    body: str
    remark: str

    @property
    def is_run(self) -> bool:
        return not self.remark.startswith("not run")

    @property
    def exit_code(self) -> int:
        """What the last command of the block ends with."""
        code = re.search(r"exit: (\d+)", self.remark)
        return int(code[1]) if code else 0


def fences(page: str) -> list[Fence]:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = []
    for match in FENCE.finditer(text):
        blocks.append(
            Fence(match["language"], match["title"] or "", match["body"], match["remark"] or "")
        )
    return blocks


def commands_of(block: Fence) -> list[str]:
    """The commands of a block: its lines without comments, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", block.body)
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def person_environment(home: Path) -> dict[str, str]:
    """What a person has who activated the environment with gpusetup: no colours, 100 columns."""
    programs = str(Path(sys.executable).parent)
    search_path = os.pathsep.join((programs, os.environ["PATH"]))
    return {
        **os.environ,
        "PATH": search_path,
        "VIRTUAL_ENV": str(Path(sys.prefix)),
        "XDG_CACHE_HOME": str(home / "cache"),
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }


def missing_lines(shown: str, printed: str) -> Iterator[str]:
    """The lines of an example that a command did not print, or not in this order."""
    rest = printed
    for line in shown.splitlines():
        wanted = line.strip()
        if not wanted or wanted in ("...", "…"):
            continue
        before, found_line, after = rest.partition(wanted)
        if found_line:
            rest = after
        else:
            yield line
            rest = before + after


def follow(page: str, folder: Path) -> list[str]:
    """Runs a page from its first line to its last; returns where a reader would have stopped."""
    stops: list[str] = []
    printed = ""
    environment = person_environment(folder)
    for block in fences(page):
        if block.title:
            (folder / block.title).write_text(block.body, encoding="utf-8")
        elif block.language == "sh":
            printed = ""
            if not block.is_run:
                continue
            commands = commands_of(block)
            for command in commands:
                answer = subprocess.run(
                    ["bash", "-c", command],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    encoding="utf-8",
                    timeout=LIMIT_SECONDS,
                    check=False,
                )
                printed += answer.stdout + answer.stderr
                expected = block.exit_code if command == commands[-1] else 0
                if answer.returncode != expected:
                    ending = f"exit {answer.returncode}, the page says {expected}"
                    stops.append(f"`{command}`: {ending}\n{answer.stdout}{answer.stderr}")
        elif block.language == "text" and printed:
            for line in missing_lines(block.body, printed):
                stops.append(f"the page shows a line that was not printed: {line}\n{printed}")
    return stops
