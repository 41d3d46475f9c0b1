"""Machines without a scheduler: a file of host names, asked by ssh.

Source: ssh(1) of OpenSSH 9.
"""

from __future__ import annotations

from shlex import join

from gpusetup.errors import UsageError
from gpusetup.fleet.engines.engine import Engine, FleetRequest, require_program
from gpusetup.fleet.nodes import SAFE, expanded
from gpusetup.fleet.work import ssh_command
from gpusetup.named_file import read_text
from gpusetup.system.processes import Output, run

MOST_BYTES = 8 << 20
"""The largest file of hosts."""
SSH = ("ssh", "-n", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--")
"""Asks nobody for a password."""
CONNECT_SECONDS = 30.0
"""How much longer than its own limit a host is waited for: to connect and to part."""


class Hosts(Engine):
    """An ssh to each host."""

    title = "hosts"

    def __init__(self, request: FleetRequest, file: str) -> None:
        hosts = hosts_in(read_text(file, MOST_BYTES), file)
        require_program("ssh")
        super().__init__(request, dict.fromkeys(hosts, ""), file)
        self.command, self.extra_seconds = ssh_command(self.work), CONNECT_SECONDS

    def plan_for(self, node: str) -> str:
        return join((*SSH, node, self.command))

    def ask(self, node: str) -> Output:
        return run((*SSH, node, self.command), timeout=self.work.limit + CONNECT_SECONDS)


def hosts_in(text: str, what: str) -> tuple[str, ...]:
    """The hosts of a file: one or several a line, ranges in brackets, `#` begins a comment.

    What follows a host's name (`slots=8`, as mpirun reads it) is passed over.

    >>> hosts_in("n[1-2] slots=8\\nlogin  # by hand\\n", "hosts")
    ('n1', 'n2', 'login')
    """
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    found = [name for words in lines if words for name in expanded(words[0])]
    if not found or not all(map(SAFE.fullmatch, found)):
        raise UsageError(
            f"{what} names no host, or has an impossible host name", hint="write one host a line"
        )
    return tuple(dict.fromkeys(found))
