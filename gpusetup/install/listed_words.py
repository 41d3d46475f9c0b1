"""Requirements that a file lists: `requirements.txt`, `pyproject.toml`.

They are read as words of the command line, which judges each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput, UsageError
from gpusetup.install.credentials import without_logins
from gpusetup.install.settings.uv_config import parse_toml
from gpusetup.model.frozen import Frozen

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
    return _joined(words_of_file(Path(name)) for name in files)


def _joined(several: Iterable[Listed]) -> Listed:
    found = tuple(several)
    return Listed(
        words=tuple(word for one in found for word in one.words),
        notes=tuple(note for one in found for note in one.notes),
        hashed=next((one.hashed for one in found if one.hashed), None),
    )


def words_of_file(path: Path, depth: int = 0) -> Listed:
    """One file, by its name: a project, or a list of requirements."""
    try:
        text = named_file.text_of(named_file.read(path, MOST_BYTES), path)
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}") from problem
    if path.suffix == ".toml":
        return Listed(words=project_words(path, text))
    if depth > DEEPEST:
        raise BadInput(f"{path}: files name one another by `-r`, more than {DEEPEST} deep")
    lines = tuple(lines_of(text))
    empty = () if lines else (Listed(notes=(f"{path} lists no requirement",)),)
    return _joined((*empty, *(_line(path, line, depth) for line in lines)))


# --- a list of requirements ----------------------------------------------------------------------


def _line(path: Path, line: str, depth: int) -> Listed:
    named = re.match(r"(-[rec]|--(?:requirement|editable|constraint)(?=[ =]))[ =]*(.*)", line)
    if named and named[1] in ("-r", "--requirement"):
        return words_of_file(path.parent / named[2].strip(), depth=depth + 1)
    if named:
        raise UsageError(
            f"{path}: `{without_logins(line)}` {CANNOT[named[1].lstrip('-')[0]]}",
        )
    if line.startswith("-") and not line.startswith("--require-hashes"):
        said = without_logins(line)
        note = f"{path}: `{said}` is not taken: your own settings of uv or pip count"
        return Listed(notes=(note,))
    word, *options = re.split(r"(?:^|\s)--", line)
    hashed = any(one.startswith(("hash", "require-hashes")) for one in options)
    words = (word.strip(),) if word.strip() else ()
    return Listed(words=words, hashed=str(path) if hashed else None)


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
