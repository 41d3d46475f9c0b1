"""`gpusetup help [COMMAND]`: what `--help` prints, asked for in a word."""

from __future__ import annotations

import argparse

from gpusetup.commands.common import no_document
from gpusetup.render.console import Console

SUMMARY = "Print the help of a command, or of gpusetup itself."
JSON = ""
EXAMPLES = ("gpusetup help", "gpusetup help install")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("about", metavar="COMMAND", nargs="?", help="doctor, resolve, install, ...")


def run(options: argparse.Namespace, out: Console) -> int:
    no_document(options)
    from gpusetup.commands.parser import COMMANDS, build_parser, child_of, no_such_command

    if options.about is not None and options.about not in COMMANDS:
        raise no_such_command(options.about)
    parser = build_parser(options.about)
    out.text((child_of(parser, options.about) if options.about else parser).format_help())
    return 0
