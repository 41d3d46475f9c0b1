"""The engine for machines without a scheduler: host names from a file, reached over ssh.

Source: ssh(1) of OpenSSH 9.
"""

from __future__ import annotations

from shlex import quote

from gpusetup.errors import UsageError
from gpusetup.fleet.engines.engine import Engine, require_program
from gpusetup.fleet.names import SAFE, expanded
from gpusetup.fleet.work import NodeWork, script
from gpusetup.named_file import read_text

MOST_BYTES = 8 << 20
"""The largest size of a host file."""
SSH = ("ssh", "-n", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15")
"""`BatchMode` keeps ssh from asking for a password."""


class Hosts(Engine):
    """Runs the work on each host over an ssh connection."""

    title = "Connecting over ssh to each of"
    extra_seconds = 30.0
    """To allow for connecting and disconnecting."""

    def __init__(self, work: NodeWork, file: str) -> None:
        """`file`: one host, or one range in brackets, per line; `#` begins a comment."""
        hosts: list[str] = []
        for line in read_text(file, MOST_BYTES).splitlines():
            # Anything after a host name is ignored, for example `slots=8` for mpirun.
            words = line.partition("#")[0].split()
            if words:
                hosts += expanded(words[0])
        # The name becomes part of a command, so it must be safe.
        if not hosts or not all(map(SAFE.fullmatch, hosts)):
            raise UsageError(
                f"{file} contains no host name, or an invalid one",
                hint="write one host per line",
            )
        require_program("ssh")
        # Without a scheduler, it is unknown which hosts are busy, so all count as idle.
        super().__init__(work, dict.fromkeys(hosts, ""), file)

    def command(self, node: str) -> tuple[str, ...]:
        # `sh` is named, because the login shell may have another syntax (fish, tcsh). `--` ends the
        # options, because a host name could look like one.
        return (*SSH, "--", node, f"sh -c {quote(script(self.work))}")
