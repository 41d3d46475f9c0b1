"""Requirements that a file lists: `requirements.txt`, `pyproject.toml`.

They are read as words of the command line, which judges each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput, UsageError
from gpusetup.install.credentials import without_logins
from gpusetup.install.settings.uv_config import parse_toml
from gpusetup.model.frozen import Frozen
from gpusetup.report.cleaning.decode import decode, is_binary

MOST_BYTES = 1 << 20
DEEPEST = 5
"""How many files may name one another by `-r`."""


class Listed(Frozen):
    """What a file asks for, and what in it is not taken."""

    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hashed: str | None = None
    """The first file whose lines name hashes."""


def words_of_files(files: Sequence[str]) -> Listed:
    """Everything that `-r FILE` names.

    BadInput for what cannot be read; UsageError for what cannot be asked here.
    """
    found = [words_of_file(Path(name)) for name in files]
    named = zip(files, found, strict=True)
    empty = tuple(f"{name} lists no requirement" for name, one in named if not one.words)
    return Listed(
        words=tuple(word for one in found for word in one.words),
        notes=(*empty, *(note for one in found for note in one.notes)),
        hashed=next((one.hashed for one in found if one.hashed), None),
    )


def words_of_file(path: Path, depth: int = 0) -> Listed:
    """One file, by its name: a project, or a list of requirements."""
    text = _read(path)
    if path.suffix == ".toml":
        return Listed(words=project_words(path, text))
    return _requirements(path, text, depth)


def _read(path: Path) -> str:
    try:
        raw = named_file.read(path, MOST_BYTES)
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}") from problem
    # pip reads a list in Windows' own encoding too, as its editors write a comment there.
    is_list = path.suffix != ".toml" and not is_binary(raw)
    return decode(raw) if is_list else named_file.text_of(raw, path)


# --- a list of requirements ----------------------------------------------------------------------


def _requirements(path: Path, text: str, depth: int) -> Listed:
    if depth > DEEPEST:
        raise BadInput(f"{path}: files name one another by `-r`, more than {DEEPEST} deep")
    words: list[str] = []
    notes: list[str] = []
    hashed = None
    for line in lines_of(text):
        named = re.match(r"(-[rec]|--(?:requirement|editable|constraint)(?=[ =]))[ =]*(.*)", line)
        option = named[1] if named else ""
        if named and option in ("-r", "--requirement"):
            other = words_of_file(path.parent / named[2].strip(), depth=depth + 1)
            words += other.words
            notes += other.notes
            hashed = hashed or other.hashed
        elif named:
            raise UsageError(f"{path}: `{without_logins(line)}` {CANNOT[option.lstrip('-')[0]]}")
        elif line.startswith("--require-hashes"):
            hashed = str(path)
        elif line.startswith("-"):
            said = without_logins(line)
            notes.append(f"{path}: `{said}` is not taken: your own settings of uv or pip count")
        else:
            word, *options = re.split(r"\s--", line)
            words.append(word.strip())
            hashed = str(path) if any(one.startswith("hash") for one in options) else hashed
    return Listed(words=tuple(words), notes=tuple(notes), hashed=hashed)


CANNOT = {
    "e": "is a folder: name its pyproject.toml to gpusetup itself, by `-r`",
    "c": "is a list of constraints: write those that count into the requirements",
}


def lines_of(text: str) -> Iterator[str]:
    """The lines without comments; one that ends with a backslash goes on with the next.

    >>> list(lines_of("a  # b\\n\\n# d\\nc"))
    ['a', 'c']
    """
    for line in text.replace("\r\n", "\n").replace("\\\n", " ").splitlines():
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        if plain:
            yield plain


# --- a project -----------------------------------------------------------------------------------


def project_words(path: Path, text: str) -> tuple[str, ...]:
    """Its `dependencies`."""
    try:
        project = parse_toml(text).get("project")
    except ValueError as problem:
        raise BadInput(f"{path} is no TOML: {problem}") from problem
    if not isinstance(project, dict):
        raise BadInput(f"{path} has no [project] table", hint="`uv init` writes one")
    rows = project.get("dependencies", [])
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise BadInput(f"{path}: its dependencies are no list of requirements")
    return tuple(rows)
