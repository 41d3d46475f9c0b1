"""A kernel's log as `dmesg` and `journalctl -k` print it, bare of levels and clocks."""

from __future__ import annotations

import re

from gpusetup.model.patterns import lazy

PREFIX = lazy(
    r"""
    (?: <\d{1,3}> | \w+\s*:\w+\s*:\s )?                             # dmesg's level
    (?: \w{3}\ +\d{1,2}\ [\d:]{8}\ \S{1,64}\ kernel:\ )?            # journald's clock
    (?: \[ [^\]\n]{5,40} \]\s? ){0,2}                               # the kernel's own, its caller
    """,
    re.VERBOSE,
)


def bare_lines(log: str) -> list[str]:
    """
    >>> bare_lines("[   12.512345] NVRM: x\\nNov 20 06:03:41 node-1 kernel: [ 1.123456] nvidia: y")
    ['NVRM: x', 'nvidia: y']
    """
    return [PREFIX.sub("", line, count=1) for line in log.splitlines()]
