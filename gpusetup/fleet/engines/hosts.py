"""The engine for machines without a scheduler: host names from a file, reached over ssh.

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
"""The largest size of a host file."""
SSH = ("ssh", "-n", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--")
"""`BatchMode` keeps ssh from asking for a password."""
CONNECT_SECONDS = 30.0
"""How many seconds beyond the work's own limit we wait for a host, to allow for connecting and
disconnecting."""


class Hosts(Engine):
    """Runs the work on each host over an ssh connection."""

    title = "hosts"

    def __init__(self, request: FleetRequest, file: str) -> None:
        text = read_text(file, MOST_BYTES)
        hosts = hosts_in(text, file)
        require_program("ssh")
        # Without a scheduler, it is unknown which hosts are busy, so all count as idle.
        states = dict.fromkeys(hosts, "")
        super().__init__(request, states, file)
        self.command = ssh_command(self.work)
        self.extra_seconds = CONNECT_SECONDS

    def plan_for(self, node: str) -> str:
        """The ssh command for one host."""
        words = self._words(node)
        return join(words)

    def ask(self, node: str) -> Output:
        words = self._words(node)
        # Allow extra time beyond the host's own limit for connecting and disconnecting.
        seconds = self.work.limit + CONNECT_SECONDS
        return run(words, timeout=seconds)

    def _words(self, node: str) -> tuple[str, ...]:
        """The words of the ssh command for one host; the work is a single argument for the host's
        login shell."""
        command = self.command
        # `--` ends the options, because a host name could look like an option.
        return (*SSH, node, command)


def hosts_in(text: str, what: str) -> tuple[str, ...]:
    """The host names in a file with one host, or one range in brackets, per line; `#` begins a
    comment.

    Anything after a host name is ignored, for example `slots=8` for mpirun.

    >>> hosts_in("n[1-2] slots=8\\nlogin  # by hand\\n", "hosts")
    ('n1', 'n2', 'login')
    """
    hosts: list[str] = []
    for line in text.splitlines():
        without_comment = line.partition("#")[0]
        words = without_comment.split()
        if words:
            hosts += expanded(words[0])
    # The name becomes part of a command, so it must be safe.
    has_unsafe_name = any(not SAFE.fullmatch(host) for host in hosts)
    if has_unsafe_name or not hosts:
        raise UsageError(
            f"{what} names no host, or has an impossible host name", hint="write one host a line"
        )
    without_duplicates = dict.fromkeys(hosts)
    return tuple(without_duplicates)
