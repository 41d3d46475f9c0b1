"""Command lines for users to type: arguments and settings, quoted for a particular shell.

Every command that an answer shows is a `Line`, and only this file creates lines: either from words,
each of which is quoted here, or from text in our own source code. Therefore a value from a machine
or report cannot act in the shell of the user who pastes the command.

In bash, we use POSIX quoting. In PowerShell, we use "double quotes" if cmd reads the text the same
way. Otherwise we use 'single quotes', inside which only quotes (also curly ones) must be doubled.
In PowerShell, a quoted program name needs a `&` before it (about_Quoting_Rules, about_Operators),
which cmd does not accept.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import NewType

Line = NewType("Line", str)
Lines = tuple[Line, ...]
OWN_SYSTEM = "windows" if sys.platform == "win32" else "linux"
"""The operating system whose shell reads what the user types on this machine."""


def shell_line(argv: Sequence[str], family: str | None) -> Line:
    """A command with its arguments as one line, quoted for the system's shell: PowerShell on
    Windows, otherwise bash. It is empty for no arguments.

    >>> shell_line(("C:/my py/python.exe", "-m", "pip"), "windows")
    '& "C:/my py/python.exe" -m pip'
    >>> shell_line(("/my py/python", "-m", "pip"), "linux")
    "'/my py/python' -m pip"
    """
    if not argv:
        return Line("")
    program, *arguments = (word(argument, family) for argument in argv)
    if family == "windows" and not re.fullmatch(A_COMMAND, program):
        program = f"& {program}"
    return Line(" ".join((program, *arguments)))


def own_line(*argv: str) -> Line:
    """A command quoted for the shell of this machine."""
    return shell_line(argv, OWN_SYSTEM)


def own_word(text: str) -> str:
    """One argument quoted for the shell of this machine."""
    return word(text, OWN_SYSTEM)


def word(text: str, family: str | None) -> str:
    """One argument, quoted so that the program receives exactly this text."""
    return _for_powershell(text) if family == "windows" else _for_bash(text)


def setting(name: str, value: str, family: str | None) -> Line:
    """The line that sets an environment variable in the system's shell and for programs started
    from it.

    >>> setting("CUDA_HOME", "/opt/my cuda", "linux")
    "export CUDA_HOME='/opt/my cuda'"
    >>> setting("CUDA_HOME", "C:/my cuda", "windows")
    "$env:CUDA_HOME = 'C:/my cuda'"
    """
    _check_variable_name(name)
    if family == "windows":
        return Line(f"$env:{name} = {_in_single_quotes(value)}")
    # `export A=` needs no quotes, with which `_for_bash` would write an empty value.
    quoted = _for_bash(value) if value else ""
    return Line(f"export {name}={quoted}")


def unsetting(name: str, family: str | None) -> Line:
    """The line that removes an environment variable from the system's shell.

    >>> [unsetting("A", family) for family in ("linux", "windows")]
    ['unset A', 'Remove-Item Env:A']
    """
    _check_variable_name(name)
    return Line(f"Remove-Item Env:{name}" if family == "windows" else f"unset {name}")


def prepending(name: str, folder: str, family: str | None) -> Line:
    """The line that puts a folder at the front of a list of folders such as PATH.

    >>> prepending("PATH", "/usr/local/cuda/bin", "linux")
    'export PATH=/usr/local/cuda/bin"${PATH:+:$PATH}"'
    """
    _check_variable_name(name)
    if family == "windows":
        first_entry = _in_single_quotes(folder + ";")
        return Line(f"$env:{name} = {first_entry} + $env:{name}")
    # If the list is empty, add no colon, because an empty entry means the working folder.
    old_entries = f'"${{{name}:+:${name}}}"'
    return Line(f"export {name}={_for_bash(folder)}{old_entries}")


def lines(*texts: str) -> Lines:
    """Lines from our own source code, unchanged. A test makes sure that they come from there."""
    return tuple(map(Line, texts))


def filled(pattern: str, **values: str) -> Line:
    """A bash line from our source code, with each `{place}` replaced by a quoted value.

    >>> filled("echo {text} | sudo tee {file}", text="a b", file="/etc/x.conf")
    "echo 'a b' | sudo tee /etc/x.conf"
    """
    quoted = {name: _for_bash(value) for name, value in values.items()}
    return Line(pattern.format_map(quoted))


def settings_in_powershell(text: str) -> Line:
    """A bash line from our source code that sets a variable, translated to PowerShell; any other
    line stays as it is, because these commands are the same in both shells.

    >>> settings_in_powershell("export A=b  # run it again"), settings_in_powershell("ls")
    ("$env:A = 'b'  # run it again", 'ls')
    """
    return Line(re.sub(r"^export (\w+)=(\S+)", r"$env:\1 = '\2'", text))


def in_a_cell(line: str) -> Line | None:
    """A bash line in the form for a notebook cell; None if it would have no effect there.

    Each `!` line runs in a new shell, so variables must be changed in the notebook's own process.

    >>> in_a_cell("nvidia-smi -L"), in_a_cell("export A=b"), in_a_cell("unset A")
    ('!nvidia-smi -L', '%env A=b', None)
    """
    # A cell cannot answer the question that `gpusetup install` asks.
    if line.startswith("gpusetup install"):
        return Line(f"!{line} --yes")
    # `%env` takes its value as it is, without quotes and `$NAME`; a comment may follow.
    if set_variable := re.match(r"export (\w+=[\w./:+-]*)(?:  #|$)", line):
        return Line(f"%env {set_variable[1]}")
    is_lost = line.startswith(("cd ", "export ", "unset "))
    return None if is_lost else Line(f"!{line}")


def _check_variable_name(name: str) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(f"not a variable's name: {name!r}")


# --- bash ----------------------------------------------------------------------------------------

ACTS_IN_DOUBLE_QUOTES = frozenset('"$`\\!')


def _for_bash(text: str) -> str:
    """One argument quoted for bash. A leading `~/` stays outside the quotes, so that bash expands
    it.

    >>> print(_for_bash("print('a')"), _for_bash("~/my env/x"))
    "print('a')" ~/'my env/x'
    """
    path_below_home = text.removeprefix("~/")
    if text.startswith("~/") and path_below_home:
        return "~/" + shlex.quote(path_below_home)
    # Do not use shlex: it would write `'it'"'"'s'`, which is hard to read.
    if "'" in text and ACTS_IN_DOUBLE_QUOTES.isdisjoint(text):
        return f'"{text}"'
    return shlex.quote(text)


# --- PowerShell ----------------------------------------------------------------------------------

LETTER = r"[^\W\u02b0-\u02ff]"
"""A letter of any script, a digit or `_`, but no character that a program may read as a quote
(`\u02ba`)."""

BARE_IN_POWERSHELL = rf"(?:{LETTER}|[./\\:])(?:{LETTER}|[./\\:=+-])*|--?[A-Za-z][A-Za-z0-9-]*"
"""A word that needs no quotes, because it contains no operator, comma, brace, `$`, `@`, `#` or
quote."""

A_COMMAND = rf"[A-Za-z.~\\/](?:{LETTER}|[./\\:+-])*"
"""A program's name that needs no `&`, because it contains no quotes and does not begin with a
digit."""

SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b"
"""Each of these characters ends a text in single quotes. Doubled, it stands for itself."""


IN_DOUBLE_QUOTES = rf"(?:{LETTER}|[- ./\\:;,()\[\]{{}}=+*<>|&?@#'~^])+"
"""A text that stays unchanged in double quotes in PowerShell and cmd, because it contains no `"`,
`$`, `%` or `!`."""


def _for_powershell(text: str) -> str:
    """One argument quoted for PowerShell and, if possible, also for cmd, because users paste into
    either.

    >>> print(_for_powershell("torch>=2.6"), _for_powershell("it's"), _for_powershell("a.b"))
    "torch>=2.6" "it's" a.b
    >>> print(_for_powershell("a$b c"), _for_powershell("100% it's"))
    'a$b c' '100% it''s'
    """
    if re.fullmatch(BARE_IN_POWERSHELL, text):
        return text
    if re.fullmatch(IN_DOUBLE_QUOTES, text):
        return f'"{_escaped_for_windows(text)}"'
    return _in_single_quotes(_escaped_for_windows(text))


def _in_single_quotes(text: str) -> str:
    """A text in single quotes for PowerShell.

    >>> _in_single_quotes("it's")
    "'it''s'"
    """
    doubled = re.sub(f"[{SINGLE_QUOTES}]", r"\g<0>\g<0>", text)
    return f"'{doubled}'"


def _escaped_for_windows(text: str) -> str:
    """The text, with quotes escaped for a Windows program, and with backslashes before a quote or
    at the end escaped too. A Windows program splits its command line itself, and PowerShell before
    7.3 does not escape arguments for it (about_Parsing, "Passing arguments").

    >>> print(_escaped_for_windows('say "x"'), _escaped_for_windows("C:/my dir" + chr(92)))
    say \\"x\\" C:/my dir\\\\
    """
    # Backslashes need escaping only before a quote, and at the end, where PowerShell adds a quote.
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)
    return re.sub(r"(\\+)$", r"\1\1", escaped)
