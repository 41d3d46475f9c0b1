"""`gpusetup snapshot`: the record of this machine, redacted for sharing."""

from __future__ import annotations

import argparse

from gpusetup.commands.common import add_machine_options, gather
from gpusetup.render.console import Console

SUMMARY = """Print the record of this machine that all the other commands can be replayed from
(`--from FILE`). User and host names, serial numbers, tokens and passwords are taken out, the home
folder is `~`, and GPUs have aliases instead of their UUIDs."""

EXAMPLES = (
    "gpusetup snapshot --output machine.json",
    "gpusetup doctor --from machine.json",
    "gpusetup snapshot --keep-private",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_machine_options(parser)
    parser.add_argument(
        "--deep", action="store_true", help="also ask `nvidia-smi`, and import torch in the target"
    )
    parser.add_argument(
        "--keep-private",
        action="store_true",
        help="keep names, home folders and UUIDs as they are",
    )


def run(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.model.codec import to_json
    from gpusetup.probe.saved import dump_snapshot
    from gpusetup.redaction import redact

    snapshot = gather(options, out, deep=options.deep)
    shared = snapshot if options.keep_private else redact(snapshot)
    out.json_text(to_json(shared) + "\n" if out.json else dump_snapshot(shared))
    return 0
