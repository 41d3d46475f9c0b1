"""`gpusetup schema COMMAND`: the JSON schema of a command's answer."""

from __future__ import annotations

import argparse
from importlib import resources

from gpusetup.errors import UsageError
from gpusetup.render.console import Console

SUMMARY = "Print the JSON schema of a command's answer."
JSON = ""
EXAMPLES = ("gpusetup schema doctor", "gpusetup schema error")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "about", metavar="COMMAND", nargs="?", help="doctor, resolve, install, ...; none: list them"
    )


def run(options: argparse.Namespace, out: Console) -> int:
    folder = resources.files("gpusetup") / "data" / "schemas"
    known = sorted(file.name.removesuffix(".json") for file in folder.iterdir())
    if options.about is None and options.json:
        raise UsageError(
            "`gpusetup schema` without a command lists names, and has no JSON document",
            hint="name a command: `gpusetup schema doctor`",
        )
    if options.about is None:
        out.text("".join(f"{name}\n" for name in known))
        return 0
    if options.about not in known:
        raise UsageError(f"No schema for {options.about!r}", hint=f"one of: {', '.join(known)}")
    out.script((folder / f"{options.about}.json").read_text(encoding="utf-8"))
    return 0
