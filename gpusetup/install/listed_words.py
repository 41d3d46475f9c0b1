"""Requirements that a file lists: `requirements.txt`.

They are read as words of the command line, which judges each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import UsageError
from gpusetup.install.credentials import without_logins
from gpusetup.model.frozen import Record

MOST_BYTES = 1 << 20
ELSEWHERE = re.compile(r"-(-requirement|-editable|-constraint|[rec])\b")
"""How a line begins that names another file or folder."""


class Listed(Record):
    """What files ask for, and what in them is not taken."""

    words: list[str] = []
    notes: list[str] = []
    hashed: str | None = None
    """The first file whose lines name hashes."""


def words_of_files(files: Sequence[str]) -> Listed:
    """Everything that `-r FILE` names: a list of requirements.

    BadInput for what cannot be read; UsageError for what cannot be asked here.
    """
    found = Listed()
    for path in map(Path, files):
        text = named_file.read_text(path, MOST_BYTES)
        if path.suffix == ".toml":
            raise UsageError(
                f"{path} is a project, not a list of requirements",
                hint=f"`uv pip compile {path} -o requirements.txt` writes one",
            )
        if re.search(r"--(hash|require-hashes)", text):
            found.hashed = found.hashed or str(path)
        for line in lines_of(text):
            said = f"{path}: `{without_logins(line)}` is not taken"
            if ELSEWHERE.match(line):
                raise UsageError(
                    said,
                    hint="pass that file with its own `-r`; write constraints into the file of "
                    "requirements",
                )
            if not line.startswith("-"):
                found.words.append(line.partition(" --")[0].strip())
            elif not line.startswith("--require-hashes"):
                found.notes.append(f"{said}: your own settings of uv or pip count")
    return found


def lines_of(text: str) -> Iterator[str]:
    """The lines without comments; one that ends with a backslash goes on with the next.

    >>> list(lines_of("a  # b\\n\\n# d\\nc"))
    ['a', 'c']
    """
    for line in text.replace("\r\n", "\n").replace("\\\n", " ").splitlines():
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        if plain:
            yield plain
