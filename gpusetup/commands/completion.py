"""`gpusetup completion SHELL`: a completion script for bash, zsh or tcsh. The home of `shtab`."""

from __future__ import annotations

import argparse

from gpusetup.render.console import Console

SUMMARY = "Print a completion script; put it where your shell looks for one."
EXAMPLES = (
    "gpusetup completion bash > ~/.local/share/bash-completion/completions/gpusetup",
    "gpusetup completion zsh > ~/.zfunc/_gpusetup",
)
SHELLS = ("bash", "zsh", "tcsh")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write for")


def run(options: argparse.Namespace, out: Console) -> int:
    import shtab

    from gpusetup.commands.parser import build_parser

    out.script(shtab.complete(build_parser(), options.shell))
    return 0
