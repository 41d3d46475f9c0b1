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
"""The name of the request's project. uv's messages contain it where they mean the request."""
NO = 1
"""uv's exit code if it finds no solution."""
COULD_NOT = 2
"""uv's exit code if something else fails, such as connecting to an index or writing a file."""
NO_SOLUTION = "No solution found"
NOT_FOUND = r"([\w.-]+) was not found in the package registry"
"""uv's message for a package that no index has in any version."""
REFUSING = re.compile(
    r"An index(?: URL)? \((\S+)\) (?:could not be queried|returned a)\D*(401|403)"
)
"""uv's message for an index that refuses access. The index may still have the package."""
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
"""Maps a pattern in uv's message to advice."""
FULL_DISK = r"no space|os error 28\b|quota|os error 122\b"
"""ENOSPC and EDQUOT, by their messages or their numbers."""


def complaint(
    title: str,
    output: Output,
    no: type[GpuSetupError] = Unsatisfiable,
    *,
    notes: Sequence[str] = (),
    failures: Mapping[HostAddress, str] = {},
) -> GpuSetupError:
    """The error for a failed run of uv, with its complete message.

    uv's exit code tells whether there is no solution or uv failed otherwise; `no` is the error
    class for the first case. `notes` list the user's settings that limit versions, because uv does
    not say where its constraints come from. `failures` maps hosts to the reasons why gpusetup's
    proxy could not reach them; uv only sees that the proxy failed.
    """
    # uv did not run to its end, so it has no exit code.
    if output.problem:
        return Blocked(f"{title}: {output.argv[0]}: {output.problem}", hint="nothing was changed")
    kinds: dict[int | None, type[GpuSetupError]] = {NO: no, COULD_NOT: Unreached}
    kind = kinds.get(output.exit, ToolFailed)
    if kind is no and not is_no(output):
        kind = Unreached
    message = f"{title}: {said_by(output)}"
    message += "".join(f"\n  cause: {host}: {why}" for host, why in failures.items())
    # The user's own limits may be the reason why there is no solution.
    if kind is no and notes:
        message += "".join(f"\n  {note}" for note in notes)
    return kind(message, hint=hint_for(kind, message))


def is_no(output: Output) -> bool:
    """Whether uv really found no solution, and every index that could have one responded.

    uv also ends with this message if it cannot read a page, or if an index refuses to answer.
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
    """Whether an index is torch's own, which returns status 403 for a package that it does not
    have."""
    return url.startswith(INDEX_ROOT)


def hint_for(kind: type[GpuSetupError], message: str) -> str:
    """The hint for this kind of error. It only mentions the network or the disk if uv's message
    does."""
    # `Unreached` has many causes, so search uv's message for them. For the other kinds, the message
    # already says what to change.
    if issubclass(kind, Unreached):
        # Check for a full disk first: uv reports it as a failed download, which would match below
        # too.
        if re.search(FULL_DISK, message, re.IGNORECASE):
            way = f"make room on that disk ({emptying_the_cache()}), then run this again"
            return f"nothing was changed; {way}"
        for pattern, way in WAYS.items():
            if re.search(pattern, message, re.IGNORECASE):
                return way
    return HINTS[kind]


def said_by(output: Output) -> str:
    """The text that the program printed, without logins. If the program printed nothing, the text
    says how it ended."""
    text = output.stderr or output.stdout
    message = sentence(text)
    if not message:
        name = Path(output.argv[0]).name
        message = f"{name} said nothing: {how_it_ended(output.exit or 0)}"
    # To uv, the request is a project; to the user, it is what they typed.
    message = re.sub(rf"{QUESTION}\s+depends\s+on", "you require", message)
    return without_logins(message)


def sentence(text: str) -> str:
    """Returns the text that a program printed after its first `error: `, without colours; the whole
    text if there is none.

    >>> sentence("Resolved 1 package\\nerror: Failed to fetch `x`\\n  cause: 503\\n")
    'Failed to fetch `x`\\n  cause: 503'
    """
    # Remove the terminal's colour codes from the text.
    plain = re.sub(r"\x1b\[[\d;]*m", "", text).strip()
    start = re.search(r"(?m)^error: ", plain)
    if start is None:
        return plain
    return plain[start.end() :]


def explanation(text: str) -> str:
    """uv's reasons why no versions work together, on one line and without the frame that uv draws.

    >>> explanation("  No solution found:\\n  ╰─▶ Because a==1 depends on b==2,\\n      it fails.")
    'Because a==1 depends on b==2, it fails.'
    """
    without_frame = re.sub("[\\u00d7╰─▶├│]", " ", text)
    line = " ".join(without_frame.split())
    start = line.find("Because ")
    return line[start:] if start > 0 else line
