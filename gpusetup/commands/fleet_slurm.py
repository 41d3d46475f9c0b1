"""`gpusetup fleet slurm`: the programs that Slurm calls on a node, and how they are set up."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpusetup.commands.common import add_shared
from gpusetup.render.console import Console
from gpusetup.system.refusals import blocked_by_files

SUMMARY = (
    "Writes the prolog, the health program, and the lines for slurm.conf into a folder. No file of "
    "Slurm is changed. The health program drains a node with the reason after two failed checks, "
    "and resumes only nodes that it drained."
)
EXAMPLES = (
    "gpusetup fleet slurm /etc/slurm/gpusetup",
    "gpusetup fleet slurm /etc/slurm/gpusetup --profile /etc/gpusetup/h100x8.json",
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="the folder to write to; it must have the same path on each node",
    )
    add_shared(parser, "--profile")


def run(options: Namespace, out: Console) -> int:
    from gpusetup.fleet.slurm_files import files
    from gpusetup.install.switching.files import write_safely

    folder = Path(options.folder).absolute()
    written = files(sys.executable, str(folder), options.profile)
    with blocked_by_files("Cannot write"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_safely(folder / name, text)
            (folder / name).chmod(0o755 if name.endswith(".sh") else 0o644)
            out.talk(f"wrote {folder / name}")
    out.talk(f"These files call {sys.executable}, which must be at this path on each node")
    out.text(written["slurm.conf.gpusetup"])
    return 0
