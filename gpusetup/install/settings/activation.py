"""The scripts that activate an environment: they also name the guard's constraints file for uv,
which reads no setting of an environment, and take it back when it is deactivated.

Pure: a script's bytes in, its bytes out. What stands between the two marks is ours.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

BEGIN, END = "gpusetup guard: from here", "gpusetup guard: to here"


class Script(NamedTuple):
    """How one shell's script is changed."""

    comment: str
    quoted: Callable[[str], str]
    sets: str
    """Stands at the end; `{file}` is the file, `{named}` how uv's list names it."""
    opens: str = ""
    """The line after which `restores` stands: where `deactivate` begins."""
    restores: str = ""


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _csh(text: str) -> str:
    return "'" + text.replace("'", "'\\''").replace("!", "\\!") + "'"


def _powershell(text: str) -> str:
    return "'" + re.sub("(['\u2018\u2019\u201a\u201b])", r"\1\1", text) + "'"


def _cmd(text: str) -> str:
    return text.replace("%", "%%")


POSIX = Script(
    comment="#",
    quoted=shlex.quote,
    opens=r"deactivate ?\(\) ?\{",
    restores="""\
    if [ -n "${_GPUSETUP_GUARD:-}" ] ; then
        if [ "${UV_CONSTRAINT:-}" = "$_GPUSETUP_GUARD" ] ; then
            unset UV_CONSTRAINT
            if [ -n "${_OLD_UV_CONSTRAINT:-}" ] ; then
                export UV_CONSTRAINT="$_OLD_UV_CONSTRAINT"
            fi
        fi
        unset _OLD_UV_CONSTRAINT _GPUSETUP_GUARD
    fi
""",
    sets="""\
if [ -f {file} ] ; then
    case " ${UV_CONSTRAINT:-} " in
        *" "{named}" "*) ;;
        *)
            _OLD_UV_CONSTRAINT="${UV_CONSTRAINT:-}"
            export UV_CONSTRAINT={named}"${UV_CONSTRAINT:+ $UV_CONSTRAINT}"
            _GPUSETUP_GUARD="$UV_CONSTRAINT" ;;
    esac
fi
""",
)
FISH = Script(
    comment="#",
    quoted=_fish,
    opens=r"function deactivate\b[^\r\n]*",
    restores="""\
    if set -q _GPUSETUP_GUARD
        if test "$UV_CONSTRAINT" = "$_GPUSETUP_GUARD"
            set -e UV_CONSTRAINT
            if test -n "$_OLD_UV_CONSTRAINT"
                set -gx UV_CONSTRAINT "$_OLD_UV_CONSTRAINT"
            end
        end
        set -e _GPUSETUP_GUARD
        set -e _OLD_UV_CONSTRAINT
    end
""",
    sets="""\
if test -f {file}; and not contains -- {named} (string split " " -- "$UV_CONSTRAINT")
    set -g _OLD_UV_CONSTRAINT "$UV_CONSTRAINT"
    set -gx UV_CONSTRAINT (string trim -- {named}" $UV_CONSTRAINT")
    set -g _GPUSETUP_GUARD "$UV_CONSTRAINT"
end
""",
)
CSH = Script(
    comment="#",
    quoted=_csh,
    sets="""\
if ( -f {file} && ! $?_OLD_UV_CONSTRAINT ) then
    if ( ! $?UV_CONSTRAINT ) setenv UV_CONSTRAINT ''
    set _OLD_UV_CONSTRAINT="$UV_CONSTRAINT:q"
    setenv UV_CONSTRAINT {named}" $UV_CONSTRAINT:q"
endif
""",
)
CSH_ALIAS = "alias deactivate '"
CSH_RESTORES = (
    "test $?_OLD_UV_CONSTRAINT != 0 && setenv UV_CONSTRAINT "
    '"$_OLD_UV_CONSTRAINT:q" && unset _OLD_UV_CONSTRAINT; '
)
"""csh has no functions: `deactivate` is one line, and ours stands in it."""
POWERSHELL = Script(
    comment="#",
    quoted=_powershell,
    opens=r"function global:deactivate ?\([^\r\n]*\) ?\{",
    restores="""\
    if (Test-Path variable:global:_GPUSETUP_GUARD) {
        if ($env:UV_CONSTRAINT -eq $global:_GPUSETUP_GUARD) {
            $env:UV_CONSTRAINT = $global:_OLD_UV_CONSTRAINT
        }
        Remove-Variable -Scope global -Name _GPUSETUP_GUARD, _OLD_UV_CONSTRAINT
    }
""",
    sets="""\
if ((Test-Path -LiteralPath {file}) -and -not (Test-Path variable:global:_GPUSETUP_GUARD)) {
    $global:_OLD_UV_CONSTRAINT = $env:UV_CONSTRAINT
    $env:UV_CONSTRAINT = ({named} + " " + $env:UV_CONSTRAINT).Trim()
    $global:_GPUSETUP_GUARD = $env:UV_CONSTRAINT
}
""",
)
CMD = Script(
    comment="@rem",
    quoted=_cmd,
    sets="""\
@if not defined _GPUSETUP_GUARD @set "_OLD_UV_CONSTRAINT=%UV_CONSTRAINT%"
@if exist "{file}" @set "UV_CONSTRAINT={named} %_OLD_UV_CONSTRAINT%"
@if exist "{file}" @set "_GPUSETUP_GUARD=1"
""",
)
CMD_RESTORES = CMD._replace(
    sets="""\
@if defined _GPUSETUP_GUARD @set "UV_CONSTRAINT=%_OLD_UV_CONSTRAINT%"
@set "_OLD_UV_CONSTRAINT="
@set "_GPUSETUP_GUARD="
"""
)
SCRIPTS = {
    "activate": POSIX,
    "activate.fish": FISH,
    "activate.csh": CSH,
    "Activate.ps1": POWERSHELL,
    "activate.ps1": POWERSHELL,
    "activate.bat": CMD,
    "deactivate.bat": CMD_RESTORES,
}
"""By file name, as venv, virtualenv and uv call them."""
FOLDERS = ("bin", "Scripts")
SIGNED = b"# SIG # Begin signature block"
"""A script with it may be run for its signature alone, which a change would break."""


def with_uv_constraint(name: str, raw: bytes, file: Path, named: str) -> bytes | None:
    """A script that also sets `UV_CONSTRAINT`; `raw` itself where it does, None where it is not
    written as we know it, or is signed."""
    script = SCRIPTS[name]
    if SIGNED in raw or any(ord(letter) < 32 for letter in str(file)):
        return None
    text = without_ours(name, raw.decode("utf-8", "surrogateescape"))
    end = "\r\n" if "\r\n" in text else "\n"
    opened = _with_restoring(script, text, end)
    if opened is None:
        return None
    body = _filled(script.sets, file=script.quoted(str(file)), named=script.quoted(named))
    gap = "" if opened.endswith("\n") else end
    changed = opened + gap + _marked(script, body, end)
    return changed.encode("utf-8", "surrogateescape")


def _with_restoring(script: Script, text: str, end: str) -> str | None:
    """The script whose `deactivate` takes the variable back; None where it has no such place."""
    if script is CSH:
        head, found, tail = text.partition(CSH_ALIAS)
        return head + found + CSH_RESTORES + tail if found else None
    if not script.opens:
        return text
    found_at = re.search(rf"(?m)^{script.opens}\r?\n", text)
    if found_at is None:
        return None
    ours = _marked(script, script.restores, end, "    ")
    return text[: found_at.end()] + ours + text[found_at.end() :]


def _marked(script: Script, body: str, end: str, indent: str = "") -> str:
    lines = (
        f"{indent}{script.comment} {BEGIN}",
        *body.splitlines(),
        f"{indent}{script.comment} {END}",
    )
    return "".join(line + end for line in lines)


def _filled(pattern: str, **values: str) -> str:
    return re.sub(r"\{(file|named)\}", lambda found: values[found[1]], pattern)


def without_ours(name: str, text: str) -> str:
    """The script without what we put there.

    >>> without_ours("activate", f"a\\n# {BEGIN}\\nb\\n# {END}\\n")
    'a\\n'
    """
    comment = re.escape(SCRIPTS[name].comment)
    block = rf"(?ms)^[ ]*{comment} {BEGIN}\r?\n.*?^[ ]*{comment} {END}(?:\r?\n|\Z)"
    return re.sub(block, "", text).replace(CSH_RESTORES, "")
