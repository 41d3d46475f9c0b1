"""What one types, word for word: argument lists and settings, quoted for one shell.

Every command that an answer shows is a `Line`, and only this file makes one: of words, each of
which is quoted here, or of a text that stands in our own source. So no value of a machine or of a
report can act in the shell of whoever pastes it.

bash: POSIX quoting, `$'…'` for what cannot be printed. PowerShell: "double quotes" where cmd takes
the same, else 'single quotes', in which only quotes (the curly ones too) are doubled; a quoted
program needs `&` (about_Quoting_Rules, about_Operators), which cmd refuses.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import Literal, NewType

Line = NewType("Line", str)
Lines = tuple[Line, ...]
Shell = Literal["bash", "powershell"]
OWN_SYSTEM = "windows" if sys.platform == "win32" else "linux"
"""The system whose shell reads what is typed on this machine."""


def shell_for(family: str | None) -> Shell:
    """The shell in which a system's answers are written."""
    return "powershell" if family == "windows" else "bash"


def shell_line(argv: Sequence[str], family: str | None) -> Line:
    """A command as the system's own shell takes it.

    >>> shell_line(("C:/my py/python.exe", "-m", "pip"), "windows")
    '& "C:/my py/python.exe" -m pip'
    >>> shell_line(("/my py/python", "-m", "pip"), "linux")
    "'/my py/python' -m pip"
    """
    return line(argv, shell_for(family))


def own_line(*argv: str) -> Line:
    """A command for the person at this machine."""
    return shell_line(argv, OWN_SYSTEM)


def own_word(text: str) -> str:
    """One argument for the person at this machine."""
    return word(text, shell_for(OWN_SYSTEM))


def line(argv: Sequence[str], shell: Shell) -> Line:
    """An argument list as one line of a shell."""
    words = [word(argument, shell) for argument in argv]
    if words and shell == "powershell" and not re.fullmatch(A_COMMAND, words[0]):
        words.insert(0, "&")
    if words and shell == "bash" and is_shell_syntax(words[0]):
        words[0] = f"'{words[0]}'"
    return Line(" ".join(words))


def word(text: str, shell: Shell) -> str:
    """One argument, so that the shell hands on exactly this text."""
    return _for_bash(text) if shell == "bash" else _for_powershell(text)


def setting(name: str, value: str, shell: Shell) -> Line:
    """How a variable is set for this shell and what it starts.

    >>> setting("CUDA_HOME", "/opt/my cuda", "bash")
    "export CUDA_HOME='/opt/my cuda'"
    >>> setting("CUDA_HOME", "C:/my cuda", "powershell")
    "$env:CUDA_HOME = 'C:/my cuda'"
    """
    _check_variable_name(name)
    if shell == "bash":
        return Line(f"export {name}={_for_bash(value)}" if value else f"export {name}=")
    return Line(f"$env:{name} = {_in_single_quotes(value)}")


def unsetting(name: str, shell: Shell) -> Line:
    """How a variable is taken out of this shell.

    >>> [unsetting("A", shell) for shell in ("bash", "powershell")]
    ['unset A', 'Remove-Item Env:A']
    """
    _check_variable_name(name)
    return Line(f"unset {name}" if shell == "bash" else f"Remove-Item Env:{name}")


def prepending(name: str, folder: str, shell: Shell) -> Line:
    """How a folder is put before the others of a list like PATH.

    >>> prepending("PATH", "/usr/local/cuda/bin", "bash")
    'export PATH=/usr/local/cuda/bin"${PATH:+:$PATH}"'
    """
    _check_variable_name(name)
    if shell == "bash":
        return Line(f'export {name}={_for_bash(folder)}"${{{name}:+:${name}}}"')
    return Line(f"$env:{name} = {_in_single_quotes(folder + ';')} + $env:{name}")


def lines(*texts: str) -> Lines:
    """Lines that stand in our own source, word for word (a test looks that they do)."""
    return tuple(Line(text) for text in texts)


def filled(pattern: str, **values: str) -> Line:
    """A line of bash that stands in our source, with one quoted word in each `{place}`.

    >>> filled("echo {text} | sudo tee {file}", text="a b", file="/etc/x.conf")
    "echo 'a b' | sudo tee /etc/x.conf"
    """
    return Line(pattern.format_map({name: _for_bash(value) for name, value in values.items()}))


def with_words(before: Line, words: Sequence[str], family: str | None) -> Line:
    """A command with some more words.

    >>> with_words(lines("gpusetup install")[0], ("--yes",), "linux")
    'gpusetup install --yes'
    """
    return Line(" ".join((before, *(word(argument, shell_for(family)) for argument in words))))


ASSIGNED = r"""(\w+)=((?:'[^']*'|"(?:[^"\\]|\\.)*"|[^\s'"])*)"""


def settings_in_powershell(text: str) -> Line:
    """A line of our own that sets variables in bash, as PowerShell sets them.

    >>> settings_in_powershell("export A=b  # run it again"), settings_in_powershell("ls")
    ("$env:A = 'b'  # run it again", 'ls')
    """
    what, mark, remark = text.partition("  #")
    found = re.findall(ASSIGNED, what) if what.startswith("export ") else []
    typed = "; ".join(setting(name, value, "powershell") for name, value in found)
    return Line(f"{typed}{mark}{remark}" if typed else text)


def in_a_cell(line: str) -> Line:
    """A line of bash as a notebook's cell takes it: a shell of `!` ends with its line, so that
    variables and folders are changed in the notebook's own process.

    >>> in_a_cell(Line("nvidia-smi -L")), in_a_cell(Line("export A='b c'"))
    ('!nvidia-smi -L', '%env A=b c')
    >>> print(in_a_cell(Line('export PATH=/usr/local/cuda/bin"${PATH:+:$PATH}"')))
    import os; os.environ["PATH"] = "/usr/local/cuda/bin:" + os.environ.get("PATH", "")
    >>> print(in_a_cell(Line("unset A")))
    import os; os.environ.pop("A", None)
    """
    if line.startswith("cd "):
        return Line(f"%{line}")
    if re.fullmatch(r"unset \w+", line):
        return Line(f'import os; os.environ.pop("{line.removeprefix("unset ")}", None)')
    found = re.findall(ASSIGNED, line) if line.startswith("export ") else []
    if len(found) != 1 or "$(" in line:
        return Line(f"!{line}")
    name, value = found[0]
    first = value.partition(f'"${{{name}:+:${name}}}"')
    if first[1]:
        folder = "".join(shlex.split(first[0]))
        old = f'os.environ.get("{name}", "")'
        return Line(f'import os; os.environ["{name}"] = "{folder}:" + {old}')
    return Line(f"%env {name}={''.join(shlex.split(value))}")


def sets_a_variable(line: str) -> bool:
    """Whether a line changes a variable of the shell that it is typed into.

    >>> sets_a_variable("unset A"), sets_a_variable("$env:A = 'x'"), sets_a_variable("sudo reboot")
    (True, True, False)
    """
    return line.startswith(("export ", "unset ", "$env:", "Remove-Item Env:"))


RESERVED = frozenset(
    ("if", "then", "elif", "else", "fi", "for", "do", "done", "while", "until")
) | frozenset(("case", "esac", "in", "function", "select", "time", "coproc"))


def is_shell_syntax(quoted: str) -> bool:
    """Whether bash takes an unquoted word in a program's place for something else.

    >>> is_shell_syntax("A=b"), is_shell_syntax("time"), is_shell_syntax("ls")
    (True, True, False)
    """
    name, sign, _ = quoted.partition("=")
    return quoted in RESERVED or (bool(sign) and is_variable_name(name.removesuffix("+")))


def is_speakable(line: Line) -> bool:
    """Whether a line can be read aloud: it holds no value with control codes or the like.

    >>> is_speakable(line(("ls", "a b"), "bash")), is_speakable(line(("ls", "a\\nb"), "bash"))
    (True, False)
    """
    return not re.search(r"(?<![^\s=:+(])\$'|\[char\[\]\]\(\d", line)


def is_variable_name(text: str) -> bool:
    """Whether a shell takes it for a variable's name.

    >>> is_variable_name("CUDA_HOME"), is_variable_name("2D"), is_variable_name("")
    (True, False, False)
    """
    return text.isascii() and text.isidentifier()


def _check_variable_name(name: str) -> None:
    if not is_variable_name(name):
        raise ValueError(f"not a variable's name: {name!r}")


# --- bash ----------------------------------------------------------------------------------------

ACTS_IN_DOUBLE_QUOTES = frozenset('"$`\\!')


def _for_bash(text: str) -> str:
    """
    >>> print(_for_bash("print('a')"), _for_bash("~/my env/x"), _for_bash("a\\nb"))
    "print('a')" ~/'my env/x' $'\\x61\\x0a\\x62'
    """
    if not text.isprintable():  # byte by byte: a lone surrogate was one that is no UTF-8 (PEP 383)
        written = text.encode("utf-8", "surrogateescape").hex()
        return "$'" + re.sub("..", r"\\x\g<0>", written) + "'"
    if text.startswith("~/") and len(text) > 2:
        return "~/" + shlex.quote(text[2:])
    if "'" in text and not ACTS_IN_DOUBLE_QUOTES & set(text):
        return f'"{text}"'
    return shlex.quote(text)


# --- PowerShell ----------------------------------------------------------------------------------

LETTER = r"[^\W\u02b0-\u02ff]"
"""A letter of any script, a digit, `_`: none that a program may read as a quote (`\u02ba`)."""

BARE_IN_POWERSHELL = rf"(?:{LETTER}|[./\\:])(?:{LETTER}|[./\\:=+-])*|--?[A-Za-z][A-Za-z0-9-]*"
"""What PowerShell takes as one plain word: no operator, comma, brace, `$`, `@`, `#` or quote."""

A_COMMAND = rf"[A-Za-z.~\\/](?:{LETTER}|[./\\:+-])*"
"""What PowerShell takes as a program's name without `&`: no quote, and no number in front."""

SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b"
"""All of these end a text in single quotes, and each is doubled to stand for itself."""


IN_DOUBLE_QUOTES = rf"(?:{LETTER}|[- ./\\:;,()\[\]{{}}=+*<>|&?@#'~^])+"
"""What stands for itself in double quotes, in PowerShell and in cmd: none of `"`, `$`, `%`, `!`."""


def _for_powershell(text: str) -> str:
    """In double quotes where cmd takes the same: people paste into either.

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
    """
    >>> _in_single_quotes("it's"), _in_single_quotes("a" + chr(10))
    ("'it''s'", '(-join [char[]](97,10))')
    """
    if text.isprintable():
        return "'" + "".join(c * 2 if c in SINGLE_QUOTES else c for c in text) + "'"
    units = text.encode("utf-16-le", "surrogatepass")
    codes = (units[at] + 256 * units[at + 1] for at in range(0, len(units), 2))
    return f"(-join [char[]]({','.join(map(str, codes))}))"


def _escaped_for_windows(text: str) -> str:
    """A program of Windows splits its own command line: `"` and a backslash at the end of a word
    are escaped for that, as PowerShell before 7.3 does not (about_Parsing, "Passing arguments").

    >>> print(_escaped_for_windows('say "x"'), _escaped_for_windows("C:/my dir" + chr(92)))
    say \\"x\\" C:/my dir\\\\
    """
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)
    return re.sub(r"(\\+)$", r"\1\1", escaped)
