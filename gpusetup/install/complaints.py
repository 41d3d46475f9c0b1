"""What uv, pip or conda said when it failed, as an error of ours."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unreached, Unsatisfiable
from gpusetup.install.credentials import without_credentials, without_logins
from gpusetup.install.packages import what_is_missing
from gpusetup.system.processes import Output

BROKEN = (
    r"invalid metadata|does not match given name|does not match given version|Received some "
    r"unexpected (JSON|HTML)|not a valid (JSON|HTML)|Metadata field|inconsistent (name|version)|"
    r"does not match filename|malformed wheel|[Ww]heel is invalid|Unsupported `Content-Type`|"
    r"Invalid zip|Failed to extract archive|invalid package format|metadata for the wrong package"
)
"""What an index hands out is not what it says."""
COMPLAINTS: tuple[tuple[str, type[GpuSetupError]], ...] = (
    (r"No space left on device|File too large|quota exceeded|os error (27|28|122)\b|"
     r"Errno (27|28|122)\b|not enough space", Blocked),
    (r"Permission denied|os error 13\b|Errno 13\b|Read-only file system|Access is denied", Blocked),
    (r"externally.managed", Blocked),
    (BROKEN, Unreached),
    (r"timed out|[Tt]imeout|operation timed", Unreached),
    (r"\b(429|5\d\d) (Too Many|Internal|Bad Gateway|Service|Server|Gateway)|"
     r"status code[:]? (429|5\d\d)", Unreached),
    (r"[Cc]onnection (error|refused|reset|aborted)|error sending request|dns error|"
     r"Failed to fetch|Max retries|NewConnectionError|certificate|Could not connect|"
     r"Hash mismatch|DO NOT MATCH THE HASHES", Unreached),
    (r"No solution found|No matching distribution|Could not find a version|ResolutionImpossible|"
     r"has no wheels|because .* was not found in the package registry", Unsatisfiable),
)  # fmt: skip
"""What uv's or pip's complaint holds -> what it means for the user; first match."""


def complaint(title: str, output: Output, packages: Sequence[str] = ()) -> GpuSetupError:
    """The error for a program that failed: what it was to do, and its own last words."""
    text = plain_lines(output.stderr or output.stdout)
    flat = " ".join(text.replace("│", " ").split())  # uv breaks its sentences into lines
    if wanted := re.search(LOGIN, flat):
        return Unreached(
            f"{without_credentials(wanted[1])}: the index wants a user name and a password "
            f"({wanted[2]})",
            hint="nothing was changed; put them into ~/.netrc or the index's URL "
            "(they are never printed or stored)",
        )
    kind = next((kind for pattern, kind in COMPLAINTS if re.search(pattern, flat)), ToolFailed)
    if output.problem:
        return Blocked(f"{title}: {output.argv[0]}: {output.problem}", hint="nothing was changed")
    reason = without_logins(last_words(text)) or how_it_ended(output)
    known = BROKEN_HINT if re.search(BROKEN, flat) else HINTS.get(kind)
    return kind(f"{title}: {reason}", hint=what_is_missing(reason, packages) or known)


def how_it_ended(output: Output) -> str:
    """How a program ended that printed nothing, for its error.

    >>> how_it_ended(Output(argv=("/usr/bin/uv", "pip"), exit=-9))
    'uv was ended by SIGKILL'
    """
    program = Path(output.argv[0]).name
    if output.exit is not None and output.exit < 0:
        return f"{program} was ended by {signal.Signals(-output.exit).name}"
    return f"{program} ended with {output.exit} and said nothing"


LOGIN = r"index URL \((\S+)\) could not be queried due to a lack of .*?credentials \((40[137])"
"""How uv says, below a `No solution found`, that an index did not let it in."""


BROKEN_HINT = (
    "nothing was changed; the file on the index is broken: name another version, or tell who runs "
    "the index"
)
HINTS: dict[type[GpuSetupError], str] = {
    Unreached: "nothing was changed; try again, check the way to that host (proxy, certificates)",
    Blocked: "nothing was changed; mend that, then run this again",
    Unsatisfiable: "nothing was changed; name packages and versions that your index has",
    ToolFailed: "nothing was changed",
}


def plain_lines(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def last_words(text: str) -> str:
    """The lines that say why, on one line: from the first `error`, without help texts.

    >>> last_words("Resolved 1 package\\nerror: Failed to fetch `x`\\n  Caused by: 503\\n")
    'Failed to fetch `x`: 503'
    >>> last_words("error: x says 2.0. If this\\n  is intentional, set\\n `UV_SKIP=1`.")
    'x says 2.0.'
    """
    lines = [line.strip(" │╰╭─▶\u00d7\t") for line in text.splitlines() if line.strip(" ^~\t")]
    start = next(
        (i for i, line in enumerate(lines) if re.match(r"(?i)error\b|No solution", line)), None
    )
    chosen = lines[-3:] if start is None else lines[start : start + 8]
    causes = [line for line in chosen if not line.startswith(("hint", "help"))]
    words = [re.sub(r"(?i)^(error|(caused by|cause)):\s*", "", line).rstrip(":") for line in causes]
    whole = re.sub(ON_PURPOSE, "", ": ".join(words))
    return whole if len(whole) <= LONGEST else f"{words[0][:LONGEST]}: ...: {words[-1][-LONGEST:]}"


LONGEST = 400
ON_PURPOSE = r",?[\s:]*If[\s:]+this[\s:]+is[\s:]+intentional[^`]{0,40}`[^`]*`\.?"
"""uv's advice to take a wheel that lies, wherever the width of a terminal breaks it."""
