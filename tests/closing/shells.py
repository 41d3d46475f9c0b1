"""How a shell reads a line: bash by `shlex`, PowerShell by its documented argument mode.

A line becomes the commands that would run, each with its words; a line that the shell would take
otherwise than it is meant (a path with a blank at its head, `>=` outside of quotes) is refused.
"""

from __future__ import annotations

import re
import shlex


class Refused(Exception):
    """The shell does not take the line, or a program does not take its words."""


Commands = tuple[tuple[str, ...], ...]
"""The words of each command of a line, as its program gets them."""


def read_line(line: str, family: str | None) -> Commands:
    """The commands of one line in the shell of that system."""
    return by_powershell(line) if family == "windows" else by_bash(line)


JOINS = {";", "&&", "|"}
REFUSED_BY_BASH = {"&", "||", "(", ")", "<", ">", "|&", ">>", "<<"}


SUBSTITUTED = (
    ("stat -c %G /dev/nvidia", "video"),
    ("uname -r", "6.8.0-generic"),
    ("rpm -E %fedora", "43"),
)
"""The beginning of a command -> what it prints."""


def substituted(line: str) -> str:
    """A line with what its `$(…)` print; nested ones are part of the outer command.

    >>> substituted("a $(uname -r) b")
    'a 6.8.0-generic b'
    """
    before, opened, rest = line.partition("$(")
    if not opened:
        return line
    depth, place = 1, 0
    while depth and place < len(rest):
        depth += {"(": 1, ")": -1}.get(rest[place], 0)
        place += 1
    inner = rest[: place - 1]
    printed = next((said for begins, said in SUBSTITUTED if inner.startswith(begins)), None)
    if depth or printed is None:
        raise Refused(f"bash: what does $({inner}) print?")
    return before + printed + substituted(rest[place:])


def by_bash(line: str) -> Commands:
    """
    >>> [*by_bash("sudo a 'b c' && echo x | sudo tee /y")]
    [('sudo', 'a', 'b c'), ('echo', 'x'), ('sudo', 'tee', '/y')]
    >>> by_bash("pip install torch>=2.6")
    Traceback (most recent call last):
    closing.shells.Refused: bash: `>` in pip install torch>=2.6
    """
    line = substituted(line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError as problem:
        raise Refused(f"bash: {problem} in {line}") from problem
    for word in words:
        if word in REFUSED_BY_BASH and f"'{word}'" not in line:
            raise Refused(f"bash: `{word}` in {line}")
    return _split(words, line)


def _split(words: list[str], line: str) -> Commands:
    commands: list[tuple[str, ...]] = []
    current: list[str] = []
    for word in [*words, ";"]:
        if word not in JOINS:
            current.append(word)
            continue
        if current:
            commands.append(tuple(current))
        current = []
    if not commands:
        raise Refused(f"no command in {line!r}")
    return tuple(commands)


# PowerShell, about_Parsing: the first word of a statement decides. A quoted string or a variable
# there makes it an expression (which prints, and runs nothing) unless `&` stands before it.

TOKEN = re.compile(
    r"""\s*(?:
        (?P<single>'(?:[^']|'')*')
      | (?P<double>"(?:[^"`]|`.|"")*")
      | (?P<operator>&&|\|\||[|;&])
      | (?P<bare>(?:`.|[^\s'"|;&])+)
    )""",
    re.VERBOSE,
)
ACTS = re.compile(r"[<>(){}]|^[@#]|,")
"""What is no part of a bare word in argument mode: redirection, blocks, splatting, lists."""


def by_powershell(line: str) -> Commands:
    r"""
    >>> [*by_powershell("& 'C:\\my env\\python.exe' -m pip list; $env:A = \"1\"")]
    [('C:\\my env\\python.exe', '-m', 'pip', 'list'), ('$env:A', '=', '1')]
    >>> by_powershell('"C:\\my env\\python.exe" -m pip list')
    Traceback (most recent call last):
    closing.shells.Refused: PowerShell prints a string: "C:\my env\python.exe" -m pip list
    """
    words: list[str] = []
    place, starts, called = 0, True, False
    while line[place:].strip():
        found = TOKEN.match(line, place)
        if found is None:
            raise Refused(f"PowerShell does not read {line[place:]!r}")
        place = found.end()
        kind, text = found.lastgroup, found.group(found.lastgroup or 0)
        if kind == "operator":
            if text == "&" and starts:
                called = True
                continue
            if text in ("&&", "||", "&"):
                raise Refused(f"Windows PowerShell has no {text}: {line}")
            words.append(text)
            starts, called = True, False
            continue
        if starts and kind != "bare" and not called:
            raise Refused(f"PowerShell prints a string: {line}")
        words.append(_plain(kind, text, line))
        starts = False
    return _split(words, line)


def _plain(kind: str | None, text: str, line: str) -> str:
    if kind == "single":
        return text[1:-1].replace("''", "'")
    if kind == "double":
        if "$" in text.replace("`$", ""):
            raise Refused(f"PowerShell replaces a variable in {text}: {line}")
        return re.sub(r"`(.)", r"\1", text[1:-1].replace('""', '"'))
    if ACTS.search(text):
        raise Refused(f"PowerShell takes {text} apart: {line}")
    return re.sub(r"`(.)", r"\1", text)
