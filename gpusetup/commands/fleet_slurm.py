"""`gpusetup fleet slurm`: the programs that Slurm calls on a node, and how they are set up."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from shlex import quote
from shutil import which

from gpusetup.commands.common import add_shared
from gpusetup.render.console import Console
from gpusetup.system.refusals import blocked_by_files

SUMMARY = (
    "Writes the prolog, the health program, and the lines for slurm.conf into a folder. No file of "
    "Slurm is changed. The health program drains a node with the reason after two failed checks, "
    "and resumes only nodes that it drained. Neither program ever takes more than a share of a "
    "partition out of service: a check that fails on all nodes at once is usually a change that "
    "somebody made."
)
EXAMPLES = (
    "gpusetup fleet slurm /etc/slurm/gpusetup",
    "gpusetup fleet slurm /etc/slurm/gpusetup --profile /etc/gpusetup/h100x8.json",
    "gpusetup fleet slurm /etc/slurm/gpusetup --drain-at-most 10%",
)


def drain_limit(text: str) -> str:
    """A share of a partition (`20%`) or a number of nodes, as it is typed."""
    from gpusetup.fleet.slurm_files import DRAIN_LIMIT

    if not DRAIN_LIMIT.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is neither a share, 20%, nor a number of nodes, 4")
    return text


def configure(parser: ArgumentParser) -> None:
    from gpusetup.fleet.slurm_files import DEFAULT_DRAIN_LIMIT

    parser.add_argument(
        "folder",
        metavar="DIR",
        help="the folder to write to; it must have the same path on each node",
    )
    add_shared(parser, "--profile")
    parser.add_argument(
        "--drain-at-most",
        metavar="SHARE",
        type=drain_limit,
        default=DEFAULT_DRAIN_LIMIT,
        help="drain no more nodes of a partition than this share or number, one at least; 0: none "
        f"(default: {DEFAULT_DRAIN_LIMIT})".replace("%", "%%"),
    )
    parser.add_argument(
        "--node-python",
        metavar="PATH",
        help="the Python on the nodes that has gpusetup (default: the same path as here)",
    )
    add_shared(parser, "--prometheus", "--history")


def run(options: Namespace, out: Console) -> int:
    from gpusetup.fleet.slurm_files import SlurmSetup, files
    from gpusetup.install.switching.files import write_safely

    folder = Path(options.folder).absolute()
    python = options.node_python or sys.executable
    scontrol = which("scontrol")
    setup = SlurmSetup(
        folder=str(folder),
        python=python,
        profile=options.profile,
        drain_at_most=options.drain_at_most,
        prometheus=options.prometheus,
        history=options.history,
        scontrol_folder=str(Path(scontrol).parent) if scontrol else None,
    )
    written = files(setup)
    with blocked_by_files("Cannot write"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_safely(folder / name, text)
            (folder / name).chmod(0o755 if name.endswith(".sh") else 0o644)
            out.talk(f"wrote {folder / name}")
    out.talk(_about_python(python, options, folder))
    out.text(written["slurm.conf.gpusetup"])
    return 0


def _about_python(python: str, options: Namespace, folder: Path) -> str:
    """Which Python each node needs, and how to name another."""
    if options.node_python:
        return (
            f"Each node needs gpusetup in {python}: try `{quote(python)} -m gpusetup fleet check`"
        )
    return (
        f"Each node needs gpusetup in {python}, the Python of this machine. If the nodes have it "
        f"elsewhere: `gpusetup fleet slurm {quote(str(folder))} --node-python PATH`"
    )
