"""What uv said when it failed, as an error of ours: its own words, whole, and one hint."""

from __future__ import annotations

import re
from pathlib import Path

from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unreached, Unsatisfiable
from gpusetup.install.credentials import without_logins
from gpusetup.system.processes import Output, how_it_ended

NO = 1
"""uv's exit code where it finds no solution."""
COULD_NOT = 2
"""Its exit code for all that it could not do: reach an index, write a file."""
HINTS: dict[type[GpuSetupError], str] = {
    Unsatisfiable: "nothing was changed; name packages and versions that your index has; one "
    "without a wheel for this Python is built by `uv pip install --no-build-isolation NAME`",
    Unreached: "nothing was changed; read its message, check the network (proxy, certificates, "
    "~/.netrc) and the free disk space, then run this again",
    ToolFailed: "nothing was changed",
}


def complaint(title: str, output: Output, no: type[GpuSetupError] = Unsatisfiable) -> GpuSetupError:
    """The error for a uv that failed: its exit code tells "no" from "could not". `no`: the kind
    of its "no"."""
    if output.problem:
        return Blocked(f"{title}: {output.argv[0]}: {output.problem}", hint="nothing was changed")
    kinds: dict[int | None, type[GpuSetupError]] = {NO: no, COULD_NOT: Unreached}
    kind = kinds.get(output.exit, ToolFailed)
    return kind(f"{title}: {said_by(output)}", hint=HINTS[kind])


def said_by(output: Output) -> str:
    """All that it said, or how it ended without a word."""
    ended = f"{Path(output.argv[0]).name} said nothing: {how_it_ended(output.exit or 0)}"
    return without_logins(sentence(output.stderr or output.stdout) or ended)


def sentence(text: str) -> str:
    """All that a program says from its first `error:` on.

    >>> sentence("Resolved 1 package\\nerror: Failed to fetch `x`\\n  cause: 503\\n")
    'Failed to fetch `x`\\n  cause: 503'
    """
    plain = re.sub(r"\x1b\[[\d;]*m", "", text).strip()
    found = re.search(r"(?m)^error: ", plain)
    return plain[found.end() :] if found else plain
