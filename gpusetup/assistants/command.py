"""`gpusetup mcp`: lets AI assistants use gpusetup."""

from __future__ import annotations

import sys
from pathlib import Path

from gpusetup.commands.common import PYTHON
from gpusetup.commands.question import CommandQuestion, switch
from gpusetup.commands.reply import Reply
from gpusetup.errors import Blocked
from gpusetup.model.shell import own_line
from gpusetup.render.console import Console

SUMMARY = """Lets an AI assistant use gpusetup over the Model Context Protocol on stdin and stdout,
with the tools diagnose, read_report, resolve, plan and explain. You don't start this command
yourself; the program that runs the assistant does. Answers contain no private data and have a
limited length. No tool changes anything."""

EXAMPLES = (
    "gpusetup mcp",
    "gpusetup mcp --python .venv",
    "gpusetup mcp --agents >> AGENTS.md",
)
TEXT = Path(__file__).resolve().parent.parent / "data" / "agents.md"
NEEDS = "mcp>=2.3"
"""The requirement of the extra `mcp` (pyproject.toml)."""


class Question(CommandQuestion):
    python: str | None = PYTHON
    agents: bool = switch("print instructions for coding agents without MCP, for AGENTS.md")


def run(question: Question, out: Console) -> Reply:
    """Serve an assistant until it closes stdin, or print the instructions."""
    if question.agents:
        out.script(TEXT.read_text(encoding="utf-8"))
        return Reply()
    try:
        # Imported here because `mcp` is an extra that most users do not install.
        from gpusetup.assistants.server import serve
    except ModuleNotFoundError as problem:
        install_mcp = own_line("uv", "pip", "install", "--python", sys.executable, NEEDS)
        raise Blocked(
            "`gpusetup mcp` needs the package mcp, which is not installed here",
            hint=f"`{install_mcp}`",
        ) from problem
    if sys.stdin.isatty():
        out.talk("An assistant's program starts this and talks to it; Ctrl-C ends it.")
    serve(question.python)
    return Reply()
