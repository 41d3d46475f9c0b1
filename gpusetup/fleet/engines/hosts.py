"""Machines without a scheduler: a file of host names, asked by ssh.

Source: ssh(1) of OpenSSH 9.
"""

from __future__ import annotations

from gpusetup.errors import UsageError
from gpusetup.fleet.names import MOST_NAMES, SAFE, expanded

MOST_BYTES = 8 << 20
"""Of a file of hosts."""
CONNECT_SECONDS = 15
END_SECONDS = 30.0
"""So much longer than its limit a host is waited for: to connect and to part."""


def hosts_in(text: str, what: str) -> tuple[str, ...]:
    """The hosts of a file: one or several a line, ranges in brackets, `#` begins a comment.

    What follows a host's name (`slots=8`, as mpirun reads it) is passed over.

    >>> hosts_in("n[1-2] slots=8\\nlogin  # by hand\\n", "hosts")
    ('n1', 'n2', 'login')
    """
    found: list[str] = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            found += expanded(words[0])
    for name in found:
        if not SAFE.fullmatch(name):
            raise UsageError(f"{what}: {name[:80]!r} is no host name", hint="write one host a line")
    if not found or len(found) > MOST_NAMES:
        raise UsageError(f"{what} names {len(found)} hosts", hint="write one host a line")
    return tuple(dict.fromkeys(found))


def ssh_words(host: str, command: str) -> tuple[str, ...]:
    """A command on a host, which asks nobody for a password.

    >>> " ".join(ssh_words("n1", "true"))
    'ssh -n -T -o BatchMode=yes -o ConnectTimeout=15 -- n1 true'
    """
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}")
    return ("ssh", "-n", "-T", *options, "--", host, command)
