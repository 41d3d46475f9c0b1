"""`gpusetup fleet slurm`: the programs that Slurm calls on a node, and how they are set up."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from gpusetup.commands.common import add_shared
from gpusetup.errors import UsageError
from gpusetup.render.console import Console
from gpusetup.system.refused import blocked_by_files

SUMMARY = (
    "`print` shows the prolog, the health program, and the lines for slurm.conf; `install --prefix "
    "DIR` writes them. No file of Slurm is changed. The health program drains a node with the "
    "reason after two failed checks, and resumes only nodes that it drained."
)
EXAMPLES = (
    "gpusetup fleet slurm print --profile /etc/gpusetup/h100x8.json",
    "gpusetup fleet slurm install --prefix /etc/slurm/gpusetup --profile /etc/gpusetup/h100x8.json",
)
PREFIX = "/etc/slurm/gpusetup"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=("print", "install"), help="show or write the files")
    parser.add_argument("--prefix", metavar="DIR", help=f"the folder of the files ({PREFIX})")
    add_shared(parser, "--profile")


def run(options: Namespace, out: Console) -> int:
    from gpusetup.fleet.slurm_files import files
    from gpusetup.install.switching.files import write_safely

    prefix = Path(options.prefix or PREFIX).absolute()
    written = files(sys.executable, str(prefix), options.profile)
    if options.what == "print":
        for name, text in written.items():
            out.text(f"# --- {prefix}/{name}\n{text}\n")
        return 0
    if not options.prefix:
        raise UsageError(
            "`install` writes programs into the folder of `--prefix`, and none is named",
            hint=f"`gpusetup fleet slurm install --prefix {PREFIX}`; `print` shows them",
        )
    with blocked_by_files("Cannot write"):
        prefix.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_safely(prefix / name, text)
            (prefix / name).chmod(0o755 if name.endswith(".sh") else 0o644)
            out.talk(f"wrote {prefix / name}")
    out.text(written["slurm.conf.gpusetup"])
    return 0
