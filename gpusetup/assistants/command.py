"""`gpusetup mcp`: the same answers for assistants, and the token with which one may install."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from gpusetup.errors import Blocked, UsageError
from gpusetup.model.shell import own_line
from gpusetup.render.console import Console
from gpusetup.render.language import plain

SUMMARY = """Answer an assistant over the Model Context Protocol on stdin and stdout: diagnose,
read_report, resolve, plan, explain and install. The assistant's program starts it; answers are
redacted and bounded. It installs nothing unless it was started with `--allow-install` and a person
ran `gpusetup mcp token` in a terminal for the plan that was shown."""

JSON = ""
EXAMPLES = (
    "gpusetup mcp",
    "gpusetup mcp --python .venv --allow-install",
    "gpusetup mcp token",
)
NEEDS = "mcp>=2.3"


def configure(parser: argparse.ArgumentParser) -> None:
    from gpusetup.commands.common import add_timeout

    parser.add_argument(
        "what",
        nargs="?",
        choices=("serve", "token"),
        default="serve",
        help="serve (default); token: in a terminal, agree to the plan that an assistant shows",
    )
    parser.add_argument(
        "--python", metavar="PATH", help="the target interpreter, or its environment's folder"
    )
    parser.add_argument(
        "--allow-install",
        action="store_true",
        help="the install tool installs, with a token that a person got for that plan",
    )
    parser.add_argument(
        "--keep-private",
        action="store_true",
        help="answers name users, hosts, folders and UUIDs as they are",
    )
    add_timeout(parser)


def run(options: argparse.Namespace, out: Console) -> int:
    return _token(out) if options.what == "token" else _serve(options, out)


def _serve(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.assistants.tools import Setting

    try:
        from gpusetup.assistants.server import serve
    except ModuleNotFoundError as problem:
        raise Blocked(
            "`gpusetup mcp` needs the package mcp, which is not installed here",
            hint=f"`{way_to_have_it(Path(sys.prefix), sys.executable)}`",
        ) from problem
    if sys.stdin.isatty():
        out.talk("An assistant's program starts this and talks to it; Ctrl-C ends it.")
    serve(
        Setting(
            python=options.python,
            keep_private=options.keep_private,
            allow_install=options.allow_install,
            timeout=options.timeout,
        )
    )
    return 0


def way_to_have_it(prefix: Path, python: str) -> str:
    """The command that adds the package to where gpusetup is installed, by what made that place.

    >>> way_to_have_it(Path("/home/me/.local/share/pipx/venvs/gpusetup"), "python")
    "pipx inject gpusetup 'mcp>=2.3'"
    """
    if (prefix / "uv-receipt.toml").exists():
        return own_line("uv", "tool", "install", "--with", NEEDS, "gpusetup")
    if {"pipx", "venvs"} <= set(prefix.parts):
        return own_line("pipx", "inject", prefix.name, NEEDS)
    if importlib.util.find_spec("pip") is None:
        return own_line("uv", "pip", "install", "--python", python, NEEDS)
    return own_line(python, "-m", "pip", "install", NEEDS)


def _token(out: Console) -> int:
    """Show the newest plan that waits, ask, and give the token."""
    from gpusetup.assistants import permits

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "A token is given to a person at a terminal", hint="run it in one yourself"
        )
    waiting = permits.waiting()
    if not waiting:
        out.talk("No plan waits: the assistant calls its install tool first.")
        return 1
    permit = waiting[0]
    out.text(f"{plain(permit.screen).rstrip()}\n\n  gpusetup {plain(' '.join(permit.words))}\n\n")
    sys.stderr.write("An assistant asks to install this. Type yes to agree: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        out.talk("No token was made.")
        return 1
    minutes = int(permits.HOLDS_SECONDS // 60)
    out.talk(f"For this plan, once, within {minutes} minutes:")
    out.text(f"{permits.agree(permit)}\n")
    return 0
