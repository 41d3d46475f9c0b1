"""`gpusetup agents`: what a coding agent without the MCP server should know, for AGENTS.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpusetup.commands.common import no_document
from gpusetup.render.console import Console

SUMMARY = """Print some forty lines for AGENTS.md, CLAUDE.md or a rules file: what a coding agent
runs instead of reinstalling or compiling PyTorch, with the exact commands and exit codes."""

JSON = ""
EXAMPLES = ("gpusetup agents", "gpusetup agents >> AGENTS.md")
TEXT = Path(__file__).resolve().parent.parent / "data" / "agents.md"


def configure(parser: argparse.ArgumentParser) -> None:
    """It takes nothing of its own."""


def run(options: argparse.Namespace, out: Console) -> int:
    no_document(options)
    out.script(TEXT.read_text(encoding="utf-8"))
    return 0
