"""`gpusetup mcp`: the same answers for assistants."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpusetup.commands.common import add_shared
from gpusetup.errors import Blocked
from gpusetup.model.shell import own_line
from gpusetup.render.console import Console

SUMMARY = """Answers an AI assistant over the Model Context Protocol on stdin and stdout, with the
tools diagnose, read_report, resolve, plan and explain. The assistant's program starts this command.
Answers have no private data and a limited length. It changes nothing."""

EXAMPLES = (
    "gpusetup mcp",
    "gpusetup mcp --python .venv",
    "gpusetup mcp --agents >> AGENTS.md",
)
TEXT = Path(__file__).resolve().parent.parent / "data" / "agents.md"
NEEDS = "mcp>=2.3"


def configure(parser: ArgumentParser) -> None:
    add_shared(parser, "--python")
    parser.add_argument(
        "--agents",
        action="store_true",
        help="print instructions for coding agents without MCP, for AGENTS.md",
    )


def run(options: Namespace, out: Console) -> int:
    if options.agents:
        out.script(TEXT.read_text(encoding="utf-8"))
        return 0
    try:
        from gpusetup.assistants.server import serve
    except ModuleNotFoundError as problem:
        raise Blocked(
            "`gpusetup mcp` needs the package mcp, which is not installed here",
            hint=f"`{own_line('uv', 'pip', 'install', '--python', sys.executable, NEEDS)}`",
        ) from problem
    if sys.stdin.isatty():
        out.talk("An assistant's program starts this and talks to it; Ctrl-C ends it.")
    serve(options.python)
    return 0
