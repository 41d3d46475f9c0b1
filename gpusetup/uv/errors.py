"""Turns a failure of uv into a gpusetup error: the cause first, then uv's message and a hint."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unreached, Unsatisfiable
from gpusetup.model.logins import without_logins
from gpusetup.system.processes import Output, how_it_ended
from gpusetup.uv.program import emptying_the_cache

QUESTION = "what-was-asked-for"
"""The name of the request's project. uv's messages contain it where they mean the request."""
EXIT_NO_SOLUTION = 1
EXIT_FAILED = 2
"""uv's exit code if something else fails, such as connecting to an index or writing a file."""
NO_SOLUTION = "No solution found"
MOST_LETTERS, MOST_LINES = 500, 120
"""How much of uv's text is read: the letters of a line and the lines. An index's owner decides on
names and reasons in it, which may be of any length."""
CAUSE_LETTERS = 120
"""The maximum length of an error's first line."""
NOT_FOUND = re.compile(
    r"(?<![\w.-])([\w.-]{1,200}) was not found in the (?:package registry|provided package loc)"
)
"""uv's message for a package that no index, or no folder of wheels, has in any version."""
NO_WHEEL = re.compile(
    r"(?<![\w.-])([\w.-]{1,200})((?:[=<>!~]=?[\w.*+!]{1,60},?){0,4})"
    r" ha(?:s|ve) no (?:usable )?wheels"
)
"""uv's message for releases of a package that exist only as source (`jieba==0.42 has no usable
wheels`), or only as wheels for other Pythons or platforms."""
NEEDS_WHEEL = re.compile(r"Wheels are required for `([\w.-]{1,200})`")
"""uv's hint for a package that it may not build."""
NO_RELEASE = r"(?:no version of {0}(?![\w.-])|(?<![\w.-]){0}[=<>]\S{{0,60}} has no wheels with)"
"""uv's messages for a package without such a release or a file of it for this Python or system."""
NOT_ANSWERED = re.compile(
    r"\b(?:401 Unauthorized|403 Forbidden|407 Proxy)|has invalid metadata|not found in the cache"
    r"|network was disabled"
)
"""uv's messages for an index that refuses access, that shows a broken file, or that a setting
forbids to ask. It may still have the package."""


def uv_error(
    title: str, output: Output, no_solution: type[GpuSetupError] = Unsatisfiable
) -> GpuSetupError:
    """The error for a failed run of uv: the cause in the first line, then uv's message.

    uv's exit code tells whether there is no solution or uv failed otherwise; `no_solution` is the
    error class for the first case.
    """
    # uv did not start or did not end in time, so it has no exit code.
    if output.problem:
        return Blocked(f"{title}: {output.argv[0]}: {output.problem}", hint="nothing was changed")
    text = message_of(output)
    error_class: type[GpuSetupError] = ToolFailed
    if output.exit == EXIT_FAILED:
        error_class = Unreached
    elif output.exit == EXIT_NO_SOLUTION:
        # uv also ends with 1 if an index does not answer, and then says so in other words.
        is_unanswered = NO_SOLUTION not in text or NOT_ANSWERED.search(" ".join(text.split()))
        error_class = Unreached if is_unanswered else no_solution
    return error_class(f"{cause(text)}\n  {title}: {text}", hint=hint_for(error_class))


def cause(text: str) -> str:
    """The cause in a text of uv, in one line of at most CAUSE_LETTERS.

    >>> cause("No solution found\\n  cause: Because jieba==1 has no usable wheels and you require")
    'jieba==1 has no wheel for this machine'
    >>> cause("Failed to fetch: http://i/x/\\n  cause: tcp connect error\\n  cause: refused")
    'Failed to fetch: http://i/x/: refused'
    """
    without_wheel, unknown = names_without_wheel(text), names_not_found(text)
    if without_wheel:
        line = f"{without_wheel[0]} has no wheel for this machine"
    elif unknown:
        line = f"No index has {', '.join(unknown)}"
    elif NO_SOLUTION not in text:
        first, *others = [row.strip() for row in text.split("\n") if row.strip()]
        reasons = [row for row in others if row.startswith("cause: ")]
        # uv lists the causes from the outermost to the innermost.
        line = f"{first}: {reasons[-1].removeprefix('cause: ')}" if reasons else first
    else:
        line = explanation(text).removeprefix("Because ")
    return line if len(line) <= CAUSE_LETTERS else f"{line[: CAUSE_LETTERS - 3]}..."


def names_not_found(message: str) -> tuple[str, ...]:
    """The packages that uv found on no index, from its message.

    >>> names_not_found("Because mine was not found in the package registry and you require mine")
    ('mine',)
    """
    return tuple(dict.fromkeys(NOT_FOUND.findall(" ".join(message.split()))))


def names_without_wheel(message: str) -> tuple[str, ...]:
    """The packages that have no wheel here, from uv's message, with the version that is required if
    it is exact.

    >>> names_without_wheel("versions of jieba have no usable wheels and a==1.0 has no wheels with")
    ('jieba', 'a==1.0')
    """
    text = " ".join(message.split())
    without_version = [(name, "") for name in NEEDS_WHEEL.findall(text)]
    requirements = {}
    # NO_WHEEL comes last, because a name with a version replaces the same name without one.
    for name, versions in (*without_version, *NO_WHEEL.findall(text)):
        exact = versions if versions.startswith("==") else ""
        # An index's owner may have written any text that looks like a name.
        with suppress(InvalidRequirement):
            requirement = Requirement(f"{name}{exact}")
            requirements[requirement.name] = str(requirement)
    return tuple(requirements.values())


def lacks(message: str, name: str) -> bool:
    """Whether uv's message says that the index has no such release of a package, or no file of it
    for this Python and platform."""
    text = " ".join(message.split())
    is_missing = name in names_not_found(text)
    return is_missing or re.search(NO_RELEASE.format(re.escape(name)), text) is not None


def hint_for(error: type[GpuSetupError]) -> str:
    """The hint for an error of this class: whether other packages, the network or nothing helps."""
    if error is Unsatisfiable:
        return (
            "nothing was changed; use packages and versions that your index has, or build what "
            "has no wheel for this Python: `uv pip install --no-build-isolation NAME`"
        )
    if error is Unreached:
        return (
            "nothing was changed; read the message above, check the network (proxy, certificates, "
            f"~/.netrc) or the disk ({emptying_the_cache()}), then run this again"
        )
    return "nothing was changed"


def message_of(output: Output) -> str:
    """The text that uv printed from its first line with `error:` on, or all of it without one, but
    not its colours and logins. If uv printed nothing, the text says how it ended."""
    lines = (output.stderr or output.stdout).strip().split("\n")
    # uv may warn of hundreds of files before its error.
    start = next((number for number, line in enumerate(lines) if line.startswith("error:")), 0)
    # Cut first, so that no pattern runs over a text of any length.
    text = "\n".join(shortened(line) for line in lines[start : start + MOST_LINES])
    # What an index sends may contain colours, although uv itself prints none (NO_COLOR).
    text = re.sub(r"\x1b\[[\d;]{0,20}m", "", text).strip().removeprefix("error: ")
    if not text:
        return f"{Path(output.argv[0]).name} printed no message: {how_it_ended(output.exit or 0)}"
    # To uv, the request is a project; to the user, it is what they typed.
    return without_logins(re.sub(rf"{QUESTION} depends on", "you require", text))


def shortened(line: str) -> str:
    """A line with at most MOST_LETTERS. A URL that would be cut is left out, because without its
    host a login in it is no longer recognised."""
    if len(line) <= MOST_LETTERS:
        return line.rstrip()
    cut = line[:MOST_LETTERS]
    before, _, last_word = cut.rpartition(" ")
    return f"{before if '://' in last_word else cut} ..."


def explanation(text: str) -> str:
    """uv's reasons why no versions work together, on one line and without the frame that uv draws.

    >>> explanation("  No solution found:\\n  ╰─▶ Because a==1 depends on b==2,\\n      it fails.")
    'Because a==1 depends on b==2, it fails.'
    """
    line = " ".join(re.sub("[\\u00d7╰─▶├│]", " ", text).split())
    # uv's reasons begin with this word, after its title.
    _, because, reasons = line.partition("Because ")
    return because + reasons if because else line
