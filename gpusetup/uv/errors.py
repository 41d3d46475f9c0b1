"""Turns a failure of uv into a gpusetup error, with uv's complete message and a hint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unreached, Unsatisfiable
from gpusetup.model.logins import without_logins
from gpusetup.system.processes import Output, how_it_ended
from gpusetup.uv.hosts import HostAddress
from gpusetup.uv.program import emptying_the_cache

QUESTION = "what-was-asked-for"
"""How uv calls our question in its sentences."""
NO = 1
"""uv's exit code where it finds no solution."""
COULD_NOT = 2
"""Its exit code for all that it could not do: reach an index, write a file."""
NO_SOLUTION = "No solution found"
NOT_FOUND = r"([\w.-]+) was not found in the package registry"
"""uv's words for a package that none of the indexes has in any version."""
REFUSING = re.compile(
    r"An index(?: URL)? \((\S+)\) (?:could not be queried|returned a)\D*(401|403)"
)
"""How uv names an index that wants another login; the package in question may be there."""
HINTS: dict[type[GpuSetupError], str] = {
    Unsatisfiable: "nothing was changed; name packages and versions that your index has; one "
    "without a wheel for this Python is built by `uv pip install --no-build-isolation NAME`",
    Unreached: "nothing was changed; uv's message says what it could not do",
    ToolFailed: "nothing was changed",
}
WAYS = {
    r"fetch|request|connect|dns|resolve host|timed? ?out|certificate|credential|proxy|download": (
        "nothing was changed; read uv's message above, check the network (proxy, certificates, "
        "~/.netrc), then run this again"
    ),
}
"""What uv's message speaks of, and the way on."""
FULL_DISK = r"no space|os error 28\b|quota|os error 122\b"
"""ENOSPC and EDQUOT, in words or by their numbers."""


def complaint(
    title: str,
    output: Output,
    no: type[GpuSetupError] = Unsatisfiable,
    *,
    notes: Sequence[str] = (),
    failures: Mapping[HostAddress, str] = {},
) -> GpuSetupError:
    """The error for a failed run of uv, with its complete message.

    Its exit code tells "no" from "could not"; `no` is the kind of its "no". `notes` are settings of
    the person that took part, because uv's sentence does not say where its constraints come from.
    `failures`: why hosts could not be reached, which uv, behind our proxy, cannot know.
    """
    # uv did not run to its end, so that it has no exit code of its own.
    if output.problem:
        return Blocked(f"{title}: {output.argv[0]}: {output.problem}", hint="nothing was changed")
    kinds: dict[int | None, type[GpuSetupError]] = {NO: no, COULD_NOT: Unreached}
    kind = kinds.get(output.exit, ToolFailed)
    if kind is no and not is_no(output):
        kind = Unreached
    message = f"{title}: {said_by(output)}"
    message += "".join(f"\n  cause: {host}: {why}" for host, why in failures.items())
    # A limit of the person may be why there is no solution.
    if kind is no and notes:
        message += "".join(f"\n  {note}" for note in notes)
    return kind(message, hint=hint_for(kind, message))


def is_no(output: Output) -> bool:
    """Whether uv really found no solution, from every index that could have one.

    It ends in the same way where it cannot read a page, and where an index refuses to answer.
    """
    text = output.stderr or output.stdout
    if NO_SOLUTION not in text:
        return False
    refusing = REFUSING.findall(" ".join(text.split()))
    return all(code == "403" and is_torchs_own(url) for url, code in refusing)


def names_not_found(message: str) -> tuple[str, ...]:
    """The packages that uv found on no index, from its message.

    >>> names_not_found("Because mine was not found in the package registry and you require mine")
    ('mine',)
    """
    names = re.findall(NOT_FOUND, " ".join(message.split()))
    return tuple(dict.fromkeys(names))


def is_torchs_own(url: str) -> bool:
    """Whether an index is torch's own, which says 403 of what it does not have."""
    return url.startswith(INDEX_ROOT)


def hint_for(kind: type[GpuSetupError], message: str) -> str:
    """The hint for this kind of error; it speaks of the network or the disk only if uv's message
    does."""
    # Only such an error has many causes; the others say by themselves what to change.
    if issubclass(kind, Unreached):
        # uv says so of a disk while it fetches, too: this is the narrower pattern.
        if re.search(FULL_DISK, message, re.IGNORECASE):
            way = f"make room on that disk ({emptying_the_cache()}), then run this again"
            return f"nothing was changed; {way}"
        for pattern, way in WAYS.items():
            if re.search(pattern, message, re.IGNORECASE):
                return way
    return HINTS[kind]


def said_by(output: Output) -> str:
    """What the program printed, without logins, or how it ended if it printed nothing."""
    text = output.stderr or output.stdout
    message = sentence(text)
    if not message:
        name = Path(output.argv[0]).name
        message = f"{name} said nothing: {how_it_ended(output.exit or 0)}"
    # The question is a project for uv; for the person it is what they typed.
    message = re.sub(rf"{QUESTION}\s+depends\s+on", "you require", message)
    return without_logins(message)


def sentence(text: str) -> str:
    """The text that a program printed after its first `error: `, without colours; the whole text if
    there is none.

    >>> sentence("Resolved 1 package\\nerror: Failed to fetch `x`\\n  cause: 503\\n")
    'Failed to fetch `x`\\n  cause: 503'
    """
    # Colours of a terminal are no part of a sentence.
    plain = re.sub(r"\x1b\[[\d;]*m", "", text).strip()
    start = re.search(r"(?m)^error: ", plain)
    if start is None:
        return plain
    return plain[start.end() :]


def explanation(text: str) -> str:
    """uv's reasons why no versions go together, on one line and without the frame that uv draws.

    >>> explanation("  No solution found:\\n  ╰─▶ Because a==1 depends on b==2,\\n      it fails.")
    'Because a==1 depends on b==2, it fails.'
    """
    without_frame = re.sub("[\\u00d7╰─▶├│]", " ", text)
    line = " ".join(without_frame.split())
    start = line.find("Because ")
    return line[start:] if start > 0 else line
