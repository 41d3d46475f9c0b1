"""`gpusetup fleet slurm`: writes the programs that Slurm calls on a node, and the lines that set
them up."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote

from gpusetup.commands.common import PROFILE, PROMETHEUS
from gpusetup.commands.question import NEEDED, CommandQuestion, argument, option
from gpusetup.commands.reply import Reply
from gpusetup.errors import UsageError
from gpusetup.fleet.slurm_files import DEFAULT_DRAIN_LIMIT, DRAIN_LIMIT
from gpusetup.render.console import Console
from gpusetup.system.refusals import blocked_by_files

SUMMARY = """Writes a prolog, a health program, and the lines for slurm.conf into a folder, without
changing Slurm's own files. After two failed checks, the health program drains the node and gives
the reason; it only resumes nodes that it drained itself. The two programs never take more nodes of
a partition out of service than `--drain-at-most` allows, because a check that fails on all nodes at
once usually points to a change, not to broken nodes."""
EXAMPLES = (
    "gpusetup fleet slurm /etc/slurm/gpusetup",
    "gpusetup fleet slurm /etc/slurm/gpusetup --profile /etc/gpusetup/h100x8.json",
    "gpusetup fleet slurm /etc/slurm/gpusetup --drain-at-most 10%",
)


class Question(CommandQuestion):
    folder: str = argument(
        "the folder to write to; it must have the same path on each node",
        default=NEEDED,
        metavar="DIR",
    )
    profile: str | None = PROFILE
    drain_at_most: str = option(
        "drain at most this share (20%) or number (4) of a partition's nodes, but at least one; "
        f"0 drains none (default: {DEFAULT_DRAIN_LIMIT})".replace("%", "%%"),
        default=DEFAULT_DRAIN_LIMIT,
        metavar="SHARE",
    )
    node_python: str | None = option(
        "path of the Python with gpusetup on the nodes (default: the same path as here)",
        metavar="PATH",
    )
    prometheus: str | None = PROMETHEUS


def run(question: Question, out: Console) -> Reply:
    """Write the programs into the folder, and reply with the lines for slurm.conf."""
    from gpusetup.fleet.slurm_files import files
    from gpusetup.install.switching.files import write_safely

    _require_usable_files(question)
    folder = Path(question.folder)
    python = question.node_python or sys.executable
    written = files(
        question.folder,
        python=python,
        profile=question.profile,
        drain_at_most=question.drain_at_most,
        prometheus=question.prometheus,
    )
    with blocked_by_files("Cannot write"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_safely(folder / name, text)
            (folder / name).chmod(0o755 if name.endswith(".sh") else 0o644)
            out.talk(f"wrote {folder / name}")
    out.talk(
        f"Each node needs gpusetup in {python} (for another Python, use `--node-python PATH`). To "
        f"test a node, run there `{quote(python)} -m gpusetup fleet check`"
    )
    return Reply(screen=written["slurm.conf.gpusetup"])


def _require_usable_files(question: Question) -> None:
    """Raise UsageError or BadInput for a path, limit or profile that would fail on every node."""
    from gpusetup.fleet.node_check import MOST_BYTES, read_profile
    from gpusetup.named_file import read_text

    paths = {
        "DIR": question.folder,
        "--profile": question.profile,
        "--prometheus": question.prometheus,
    }
    for name, path in paths.items():
        if path is not None and not Path(path).is_absolute():
            raise UsageError(
                f"{name} {path!r} is relative, but slurmd runs the programs in another folder",
                hint="use an absolute path such as /etc/slurm/gpusetup",
            )
    if not DRAIN_LIMIT.fullmatch(question.drain_at_most):
        raise UsageError(
            f"--drain-at-most {question.drain_at_most!r} is not a percentage or a number of nodes",
            hint="for example 20%, or 4",
        )
    if question.profile:
        # If the profile cannot be read, no node would ever be drained, and nobody would notice.
        read_profile(read_text(question.profile, MOST_BYTES), question.profile)
