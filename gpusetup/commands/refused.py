"""What is said about words and options that a command does not take."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from difflib import get_close_matches

from gpusetup.commands.foreign import index_meant, instead, value_meant
from gpusetup.commands.meant import option_line, options_meant, word_meant
from gpusetup.model.shell import own_word

OptionsOfEach = Callable[[], Iterable[tuple[str, Container[str]]]]
"""Every command with the names of its options, made when asked for."""


def said_plainly(message: str, options: Mapping[str, argparse.Action]) -> tuple[str, str | None]:
    """argparse's complaint in plain words, and what was probably meant."""
    named = re.match(r"argument ([^\s:]+)", message)
    name = named[1].split("/")[-1] if named else ""
    if given := re.search(r"ignored explicit argument '(.*)'", message):
        return f"`{name}` takes no value, so not {given[1]!r}", f"write `{name}` alone;"
    if number := re.search(r"invalid (float|int) value: '(.*)'", message):
        kind = "a number" if number[1] == "float" else "a whole number"
        digits = re.search(r"\d+(\.\d+)?" if number[1] == "float" else r"\d+", number[2])
        meant = f"did you mean `{name} {digits[0]}`?" if digits else None
        return f"argument {name}: {number[2]!r} is not {kind}", meant
    wrong = re.search(r"invalid choice: '([^']*)'", message)
    if wrong is None:
        return message, None
    known = [one.strip(" ')") for one in message.partition("(choose from")[2].split(",")]
    near = next(iter(get_close_matches(wrong[1], known, 1)), None)
    guess = f"did you mean `{near}`?" if near else None
    return message, _ended(value_meant(name, wrong[1], known)) or guess


def _ended(sentence: str | None) -> str | None:
    return sentence if sentence is None or sentence.endswith("?") else f"{sentence};"


# --- options --------------------------------------------------------------------------------------


def option_refused(
    name: str, value: str | None, parser: argparse.ArgumentParser, each: OptionsOfEach
) -> str | None:
    """What to do in place of an option that a command does not have."""
    options = parser._option_string_actions
    command = parser.prog.partition(" ")[2]
    if not command:
        return _before_the_command(name, each)
    if name in options:
        return f"options stand after the command: `{parser.prog} {name}`;"
    if name == "-V":
        return "`gpusetup -V` prints the version of gpusetup;"
    if way := index_meant(name, value, options) or instead(name, value, command):
        return _ended(way)
    return _nearest_options(name, parser)


def _before_the_command(name: str, each: OptionsOfEach) -> str | None:
    """An option without a command, or ahead of it: the first command that has it."""
    version = "`gpusetup -V` prints the version; " if name in ("-v", "-version", "--v") else ""
    for command, options in each():
        if name in options:
            return f"{version}options stand after a command: `gpusetup {command} {name}`;"
    near = get_close_matches(name, ("--help", "--version"), 1, 0.7)
    return f"did you mean `gpusetup {near[0]}`?" if near else None


def _nearest_options(name: str, parser: argparse.ArgumentParser) -> str | None:
    found = options_meant(name, parser._actions)
    lines = {option_line(action): action.help or "" for action in found}
    own = "`gpusetup --version` is about gpusetup itself; " if name == "--version" else ""
    if not lines:
        return own or None
    if len(lines) == 1:
        return f"{own}did you mean `{next(iter(lines))}`?"
    width = max(map(len, lines))
    listed = "".join(f"\n  {line:{width}}  {text}".rstrip() for line, text in lines.items())
    return f"{own}did you mean one of these?{listed}"


# --- words ----------------------------------------------------------------------------------------

SPACED = ("--gpu", "--for-gpu", "--model", "--os", "--gpu-mem")
"""Options whose values people write with a space."""


def word_refused(
    word: str, words: Sequence[str], parser: argparse.ArgumentParser, commands: Container[str]
) -> str | None:
    """What a bare word may mean where only options are taken."""
    from gpusetup.probe.saved import example_machines

    options = parser._option_string_actions
    if word in commands:
        return f"one command at a time: `gpusetup {word}`;"
    named = word_meant(word, options)
    sure = named is not None and named[0] in ("--torch", "--backend", "--report", "--from")
    if not sure and (whole := _cut_value(word, words)):
        return f"did you mean `{whole}`? A value with a space stands in quotes;"
    if word in example_machines() and "--from" in options:
        return f"did you mean `--from {word}`?"
    if named:
        return f"did you mean `{named[0]} {own_word(named[1])}`?"
    if "--report" in options and re.search(r"\s|://", word):
        return "`--report -` reads a text from standard input, `--report FILE` from a file;"
    return None


def _cut_value(word: str, words: Sequence[str]) -> str | None:
    """An option whose value had a space: `--model qwen3 8b`.

    >>> _cut_value("8b", ["--model", "qwen3", "8b"])
    "--model 'qwen3 8b'"
    """
    place = words.index(word) if word in words else 0
    if place < 2 or words[place - 2] not in SPACED:
        return None
    return f"{words[place - 2]} {own_word(f'{words[place - 1]} {word}')}"
