"""Reads words of the command line that are not package names: requirements files, scripts, and the
index."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gpusetup import named_file
from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.errors import UsageError
from gpusetup.model.logins import without_logins
from gpusetup.model.shell import own_line, own_setting, own_word

# --- scripts --------------------------------------------------------------------------------------

SUFFIXES = (".py", ".pyw")


def is_script(word: str) -> bool:
    """Whether a word is a Python script that exists; otherwise it may be a package such as
    `discord.py`."""
    return word.lower().endswith(SUFFIXES) and Path(word).is_file()


def refuse_scripts(words: Iterable[str]) -> None:
    """Raise UsageError if a word is an existing script, because an index may have a package with
    that name."""
    for word in filter(is_script, words):
        raise UsageError(
            f"{word!r} is a script here, not a package",
            hint=f"`gpusetup install --project {own_word(word)}` prints the lines for its metadata",
        )


def refuse_missing_scripts(words: Iterable[str]) -> None:
    """Raise UsageError if a word looks like a script, but no such file exists: a package on an
    index may have that name."""
    for word in words:
        if word.lower().endswith(SUFFIXES) and not is_script(word):
            raise UsageError(
                f"There is no script {word!r} here",
                hint=f"check its path; `uv add {own_word(word)}` adds a package of that name",
            )


# --- the index ------------------------------------------------------------------------------------

URL = re.compile(r"https?://([^/@\s]*@)?(\[[\da-fA-F:.]+\]|[^\[\]/\s]+)(/\S*)?")


def index_root_of(named: str | None) -> str:
    """The root URL of torch's indexes, from `--index`, GPUSETUP_INDEX or the default, in this
    order. Raises UsageError if it is not such a URL.

    >>> index_root_of("https://mirror.example/whl/")
    'https://mirror.example/whl'
    """
    root = named or os.environ.get("GPUSETUP_INDEX") or INDEX_ROOT
    shown = without_logins(root)
    if not URL.fullmatch(root):
        raise UsageError(
            f"`--index {shown}` is not an http or https URL",
            hint="it is the part before the backend: `https://download.pytorch.org/whl`",
        )
    if found := re.fullmatch(rf"(.+?)/({LABEL})(/torch\w*)?/*", shown, re.IGNORECASE):
        raise UsageError(
            f"`--index {shown}` ends with a backend; the index is the part before it",
            hint=f"did you mean `--index {found[1]} --backend {found[2].lower()}`?",
        )
    return root.rstrip("/")


# --- requirements.txt -----------------------------------------------------------------------------

MOST_BYTES = 1 << 20
OTHER_FILE = r"(?:-r|--requirement)[\s=]*(.+)"
CONSTRAINTS = r"(?:-c|--constraint)[\s=]*(.+)"
EDITABLE = r"(?:-e|--editable)\b"
"""Matches the beginning of a line with pip's option for an editable install."""


def words_of_files(
    files: Iterable[str], talk: Callable[[str], None], *, installs: bool
) -> Iterator[str]:
    """Yields the requirements in the files of `-r FILE`, and in the files that these name.

    Raises BadInput if a file cannot be read, and UsageError for a line that gpusetup does not
    support.
    """
    # A file may name itself, or another one that was already read.
    read: set[str] = set()
    waiting = list(map(Path, files))
    while waiting:
        path = waiting.pop(0)
        plain_path = os.path.realpath(path)
        if plain_path in read:
            continue
        read.add(plain_path)
        text = named_file.read_text_once(path, MOST_BYTES)
        if installs and re.search(r"--(hash|require-hashes)", text):
            raise UsageError(
                f"{path} names hashes, but gpusetup may choose files with other hashes",
                hint="install torch first by `gpusetup install`, then run `uv pip install "
                "--require-hashes -r` with this file",
            )
        for line in lines_of(text):
            other_file = re.fullmatch(OTHER_FILE, line)
            if not line.startswith("-"):
                yield line.partition(" --")[0].strip()
            elif other_file:
                waiting.append(path.parent / other_file[1])
            elif not line.startswith("--require-hashes"):
                refuse_if_needed(path, line)
                talk(f"{_not_taken(path, line)}: your own settings of uv or pip count")


def refuse_if_needed(path: Path, line: str) -> None:
    """Raise UsageError if a line of a requirements file changes which packages are installed in a
    way that gpusetup does not support. Such a line names constraints that uv's settings do not
    contain yet, or a folder with source code."""
    constraints = re.fullmatch(CONSTRAINTS, line)
    if constraints:
        file = os.path.realpath(path.parent / constraints[1])
        # Constraints apply if this variable of uv names their file. Spaces separate the files in
        # it.
        applied = os.environ.get("UV_CONSTRAINT", "").split()
        if file not in map(os.path.realpath, applied):
            command = own_setting("UV_CONSTRAINT", " ".join((*applied, file)))
            raise UsageError(
                _not_taken(path, line),
                hint=f"`{command}` applies these constraints; then run this again",
            )
    elif re.match(EDITABLE, line):
        command = own_line("uv", "pip", "install", "-r", str(path))
        raise UsageError(_not_taken(path, line), hint=f"`gpusetup install` first, then `{command}`")


def _not_taken(path: Path, line: str) -> str:
    return f"{path}: `{without_logins(line)}` is not taken"


def lines_of(text: str) -> Iterator[str]:
    """Yields the non-empty lines of a text, without comments. A line that ends in a backslash is
    joined with the next one.

    >>> list(lines_of("a  # b\\n\\n# d\\nc"))
    ['a', 'c']
    """
    for line in text.replace("\r\n", "\n").replace("\\\n", " ").splitlines():
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        if plain:
            yield plain
