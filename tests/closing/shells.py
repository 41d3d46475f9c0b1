"""How PowerShell reads a line, by its documented argument mode.

A line becomes the commands that would run, each with its words; a line that the shell would take
otherwise than it is meant (a path with a blank at its head, `>=` outside of quotes) is refused.
"""

from __future__ import annotations

import re


class Refused(Exception):
    """The shell does not take the line, or a program does not take its words."""


Commands = tuple[tuple[str, ...], ...]
"""The words of each command of a line, as its program gets them."""


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


JOINS = {";", "|"}


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
