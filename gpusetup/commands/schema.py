"""`gpusetup schema COMMAND`: the JSON schema of a command's answer."""

from __future__ import annotations

import argparse
import json

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
    from gpusetup.commands.documents import ANSWERS
    from gpusetup.model.codec import json_schema

    known = sorted(ANSWERS)
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
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpusetup.{options.about}/1",
        **json_schema(ANSWERS[options.about]),
    }
    out.script(json.dumps(schema, indent=1) + "\n")
    return 0
