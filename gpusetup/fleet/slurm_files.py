"""Writes the programs that Slurm runs on each node. Each is a short shell script around `fleet
check`, from its parts in `programs/`.

A node is drained after two failed checks in a row, and resumed after two successful ones, but only
if its reason is still one that gpusetup set. A node that someone else took out of service is left
alone.

There is a limit: at most a given share of a partition is drained, because an outdated profile would
fail every node at once. Hardware faults have a separate share, which such a profile cannot use up.
slurmctld keeps the count, because it stores each node's reason. So the count survives reboots,
needs no shared folder, and is visible in `sinfo -R`. slurmctld also dates all reasons with the same
clock, so nodes that fail at the same moment agree on which of them are within the limit.

For a node whose prolog failed, slurmctld only writes `Prolog error` into the reason. If the health
program's own check fails too, it replaces that text with its own reason.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from gpusetup.errors import UsageError
from gpusetup.fleet.node_check import HARDWARE_FAULTS
from gpusetup.model.frozen import Frozen

IN_CONF = re.compile(r"/[\w./+@:,=~-]*")
"""Matches paths that slurm.conf can contain: its values end at a space, and `#` begins a comment.
"""
DRAIN_LIMIT = re.compile(r"[0-9]{1,6}|(?:[0-9]{1,2}|100)%")
"""Matches a number of nodes, or a percentage of a partition's nodes."""
DEFAULT_DRAIN_LIMIT = "20%"
"""Usually only a few percent of a cluster are faulty, and even a rack of eight nodes among 64 is
only 13 %. If more nodes fail at once, the cause is usually a deliberate change."""

SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class SlurmSetup(Frozen):
    """The settings of the programs that Slurm runs on each node."""

    folder: str
    """The folder of the programs, which has the same path on each node."""
    python: str
    """The path of the Python on the nodes in which gpusetup is installed."""
    profile: str | None = None
    drain_at_most: str = DEFAULT_DRAIN_LIMIT
    """A percentage of a partition, such as `20%`, or a number of nodes."""
    prometheus: str | None = None
    """A file on each node for the metrics of the health program's check."""
    scontrol_folder: str | None = None
    """The folder of Slurm's commands, if this machine has them."""
    slurm_conf: str | None = None
    """The path in SLURM_CONF, if Slurm's configuration is not in its usual place."""


def files(setup: SlurmSetup) -> dict[str, str]:
    """Maps file names to the contents of the files that `fleet slurm` writes: two programs, and
    lines to add to slurm.conf.

    Raises UsageError for a folder that slurm.conf cannot name.
    """
    if not IN_CONF.fullmatch(setup.folder):
        raise UsageError(
            f"slurm.conf cannot name files in {setup.folder!r}: it has no quotes for such "
            "characters",
            hint="a path of letters, digits and ./+@:,=~_- only, as /etc/slurm/gpusetup",
        )
    profile = ("--profile", setup.profile) if setup.profile else ()
    # Only the health program writes the metrics, because two programs would overwrite each other's.
    metrics = ("--prometheus", setup.prometheus) if setup.prometheus else ()
    health_title = "HealthCheckProgram: drains and resumes this node"
    return {
        "prolog.sh": _program(setup, "prolog.sh", "Prolog of a job with GPUs", profile),
        "health.sh": _program(setup, "health.sh", health_title, (*profile, *metrics)),
        "slurm.conf.gpusetup": _text("slurm.conf").format(folder=setup.folder),
    }


def _text(name: str) -> str:
    return (Path(__file__).parent / "programs" / name).read_text(encoding="utf-8")


def _program(setup: SlurmSetup, name: str, title: str, check_options: tuple[str, ...]) -> str:
    """A program: its settings, the shell functions that both programs share, and its own part."""
    check = shlex.join((setup.python, "-I", "-m", "gpusetup", "fleet", "check", *check_options))
    folders = [
        *SYSTEM_FOLDERS,
        *([shlex.quote(setup.scontrol_folder)] if setup.scontrol_folder else []),
    ]
    lines = [
        "#!/bin/sh",
        f"# {title} (written by `gpusetup fleet slurm`).",
        "# Slurm sets no PATH for its programs.",
        f'PATH="${{PATH:+$PATH:}}"{":".join(folders)}',
        "# A share of the partition, or a number of nodes: more are never drained (0: none).",
        f"drain_at_most={shlex.quote(setup.drain_at_most)}",
        "# What a reason begins with that counts among faults of the hardware.",
        f"hardware_faults='{'|'.join(HARDWARE_FAULTS)}'",
    ]
    if setup.slurm_conf is not None:
        lines += [
            "# Where Slurm's configuration was when this file was written; slurmd may say another.",
            f'[ -n "$SLURM_CONF" ] || SLURM_CONF={shlex.quote(setup.slurm_conf)}',
            "export SLURM_CONF",
        ]
    lines += [
        "# The Python with gpusetup. Is it elsewhere on this node? Change the path here, or run",
        "# `gpusetup fleet slurm DIR --node-python PATH` again.",
        f"check() {{ {check}; }}",
    ]
    return "\n".join((*lines, _text("node.sh"), _text(name)))
