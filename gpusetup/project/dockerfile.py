"""Reads the lines of a Dockerfile that install packages, and the images that bring a torch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from gpusetup import named_file
from gpusetup.project.ask import MOST_BYTES, Ask
from gpusetup.project.conda_file import add_spec
from gpusetup.project.requirements import SHORT_NAMES, add_line, lines_of

INSTALLS = re.compile(
    r"(?:\S*/)?(?:(?:uv\s+)?pip3?|python[\d.]*\s+-m\s+(?:uv\s+)?pip)\s+install\s+(?P<pip>.*)"
    r"|(?:\S*/)?(?:conda|mamba|micromamba)\s+(?:install|create)\s+(?P<conda>.*)"
)
SHORT_OPTION = re.compile(r"-[UIqvy]*(?P<letter>[bcefinprtCP])=?(?P<value>.*)")
"""A short option that takes a value, alone (`-r`), joined (`-rmore.txt`) or after flags (`-Ur`)."""
LONG_OPTIONS = (
    *(*SHORT_NAMES, "--target", "--prefix", "--timeout", "--python", "--channel", "--name"),
    *("--retries", "--root", "--progress-bar", "--cache-dir", "--no-binary", "--only-binary"),
    *("--trusted-host", "--index-strategy"),
)
"""Options of pip, uv and conda that are followed by a value."""
VARIABLE = re.compile(r"\$\{(?P<braced>\w+)(?::-(?P<default>[^}]*))?\}|\$(?P<plain>\w+)")
LONGEST_COMMAND, LONGEST_INSTRUCTION = 20_000, 100_000
"""In characters: a stranger's variables may name others, and double the text with each line."""


def add_dockerfile(ask: Ask) -> None:
    """Add what the install lines of a Dockerfile ask for. Raises BadInput if it cannot be read."""
    text, file = named_file.read_text(ask.path, MOST_BYTES), Path(ask.path).name
    ask.brings_python = True
    variables: dict[str, str] = {}

    def value_of(found: re.Match[str]) -> str:
        return variables.get(found["braced"] or found["plain"], found["default"] or found[0])

    for number, line in lines_of(text):
        place = f"{file}, line {number}"
        word, _, rest = line.partition(" ")
        rest = VARIABLE.sub(value_of, rest.strip())[:LONGEST_INSTRUCTION]
        if word.upper() in ("ARG", "ENV"):
            for name, value in re.findall(r"""(\w+)[= ]["']?([^\s"']*)""", rest):
                variables.setdefault(name, value)
        elif word.upper() == "FROM":
            image = next((part for part in rest.split() if not part.startswith("--")), "")
            enter_image(ask, image)
        elif word.upper() == "RUN":
            # A `cd` or an activation stands before the command, so each command is looked at alone.
            for command in re.split(r"&&|\|\||;|\n", rest):
                installs = INSTALLS.search(command.strip()[:LONGEST_COMMAND])
                if installs:
                    add_command(ask, installs, place)
    if ask.image_torch and not any(one.name == "torch" for one in ask.requests):
        ask.add(f"torch=={ask.image_torch}", f"{file}, the image {ask.image}")
        cuda = re.search(r"cuda(\d+)\.(\d)", ask.image or "")
        ask.backend = f"cu{cuda[1]}{cuda[2]}" if cuda else ask.backend


def enter_image(ask: Ask, image: str) -> None:
    """Begin a stage with an image, whose name shows its Python, or the torch that it brings. An
    earlier stage's image does not reach the last one."""
    torch = re.search(r"(?:^|/)pytorch(?:/pytorch)?:(\d+\.\d+\.\d+)", image)
    of_nvidia = re.search(r"nvcr\.io/nvidia/(?:pytorch|nemo|tritonserver|tensorrt-llm)", image)
    ask.image = image if torch or of_nvidia else None
    ask.image_torch = torch[1] if torch else None
    python = re.search(r"(?:^|/)python:(\d+\.\d+)|python(3\.\d+)", image)
    if python and ask.image is None:
        ask.python = python[1] or python[2]


def add_command(ask: Ask, installs: re.Match[str], place: str) -> None:
    """Add what one command of pip, uv or conda installs."""
    text = installs["conda"] or installs["pip"] or ""
    try:
        words = iter(shlex.split(text))
    except ValueError:
        ask.unread.append(f"{place}: {text[:80]}")
        return
    folder = Path(ask.path).parent
    for option, value in options_and_packages(words):
        if installs["conda"] is not None:
            # No option of conda names a package: `-c` is a channel, where pip's is a constraint.
            if option is None:
                add_spec(ask, value, place)
        elif option in (None, "-r", "-c", "-i", "-f", "-e"):
            file = value.lstrip("/")
            # The path inside the image differs from the one beside the Dockerfile, the name does
            # not.
            if option in ("-r", "-c"):
                value = file if (folder / file).is_file() else Path(file).name
            add_line(ask, option or "", value, place, folder)


def options_and_packages(words: Iterator[str]) -> Iterator[tuple[str | None, str]]:
    """Yields each option with its value, by pip's short name, and each package with None."""
    for word in words:
        short = SHORT_OPTION.fullmatch(word)
        name, equal, value = word.partition("=")
        if short:
            yield f"-{short['letter']}", short["value"] or next(words, "")
        elif name in LONG_OPTIONS:
            yield SHORT_NAMES.get(name, name), value if equal else next(words, "")
        elif not word.startswith("-"):
            yield None, word
