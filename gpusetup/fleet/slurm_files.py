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

import os
import re
import shlex
import shutil
from pathlib import Path

from gpusetup.errors import UsageError
from gpusetup.fleet.node_check import HARDWARE_FAULTS

IN_CONF = re.compile(r"/[\w./+@:,=~-]*")
"""Matches paths that slurm.conf can contain: its values end at a space, and `#` begins a comment.
"""
DRAIN_LIMIT = re.compile(r"[0-9]{1,6}|(?:[0-9]{1,2}|100)%")
"""Matches a number of nodes, or a percentage of a partition's nodes."""
DEFAULT_DRAIN_LIMIT = "20%"
"""Usually only a few percent of a cluster are faulty, and even a rack of eight nodes among 64 is
only 13 %. If more nodes fail at once, the cause is usually a deliberate change."""
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def files(
    folder: str,
    *,
    python: str,
    profile: str | None = None,
    drain_at_most: str = DEFAULT_DRAIN_LIMIT,
    prometheus: str | None = None,
) -> dict[str, str]:
    """Maps file names to the contents of the files that `fleet slurm` writes: two programs, and
    lines to add to slurm.conf.

    All paths are those on the nodes: of the programs' `folder`, the `python` with gpusetup, the
    `profile`, and the file of metrics. Raises UsageError for a folder that slurm.conf cannot name.
    """
    if not IN_CONF.fullmatch(folder):
        raise UsageError(
            f"slurm.conf cannot contain the path {folder!r}: it cannot quote such characters",
            hint="use a path of letters, digits and ./+@:,=~_- only, such as /etc/slurm/gpusetup",
        )
    check = [python, "-I", "-m", "gpusetup", "fleet", "check"]
    check += ["--profile", profile] if profile else []
    # Only the health program writes the metrics: two programs would overwrite each other's.
    check_with_metrics = [*check, "--prometheus", prometheus] if prometheus else check
    programs = Path(__file__).parent / "programs"
    texts = {path.name: path.read_text(encoding="utf-8") for path in programs.iterdir()}
    written = {"slurm.conf.gpusetup": texts["slurm.conf"].format(folder=folder)}
    for name, title, command in (
        ("prolog.sh", "Prolog of a job with GPUs", check),
        ("health.sh", "HealthCheckProgram: drains and resumes this node", check_with_metrics),
    ):
        parts = (
            "#!/bin/sh",
            f"# {title} (written by `gpusetup fleet slurm`).",
            *_settings(drain_at_most),
            f"check() {{ {shlex.join(command)}; }}",
            texts["node.sh"],
            texts[name],
        )
        written[name] = "\n".join(parts)
    return written


def _settings(drain_at_most: str) -> list[str]:
    """The lines at the beginning of both programs that set their variables."""
    # Slurm's programs may be in another folder, such as /opt/slurm/bin: the one on this machine.
    scontrol = shutil.which("scontrol")
    folders = [*SYSTEM_FOLDERS, *([shlex.quote(str(Path(scontrol).parent))] if scontrol else [])]
    lines = [
        "# Slurm sets no PATH for its programs.",
        f'PATH="${{PATH:+$PATH:}}"{":".join(folders)}',
        "# A share of the partition, or a number of nodes: more are never drained (0: none).",
        f"drain_at_most={shlex.quote(drain_at_most)}",
        "# What a reason begins with that counts among faults of the hardware.",
        f"hardware_faults='{'|'.join(HARDWARE_FAULTS)}'",
    ]
    if "SLURM_CONF" in os.environ:
        lines += [
            "# Where Slurm's configuration was when this file was written; slurmd may say another.",
            f'[ -n "$SLURM_CONF" ] || SLURM_CONF={shlex.quote(os.environ["SLURM_CONF"])}',
            "export SLURM_CONF",
        ]
    return lines
