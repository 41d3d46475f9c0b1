"""Reads the metadata block of a script (PEP 723), and makes the lines to add to it.

A block consists of comment lines between `# /// script` and `# ///`, which contain TOML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen
from gpusetup.project.ask import Ask
from gpusetup.project.pyproject import table as table_in
from gpusetup.project.pyproject import with_list
from gpusetup.uv.toml import parse_toml

MOST_BYTES = 1 << 20
START, END = "# /// script", "# ///"


class Script(Frozen):
    """A script's relation to torch, according to its metadata block and its imports."""

    has_block: bool = False
    family: tuple[str, ...] = ()
    """Which of torch and its companions are in its dependencies or imports."""
    tables: tuple[str, ...] = ()
    """uv's tables that the block already contains."""


def read_script(path: str) -> Script:
    """Read a script's metadata block and imports. Raises BadInput if it has two metadata blocks, or
    one that is not valid TOML."""
    text = named_file.read_text(path, MOST_BYTES)
    blocks = list(blocks_of(text))
    imported = family_imported(text)
    if len(blocks) > 1:
        raise BadInput(
            f"{path} has {len(blocks)} blocks of metadata, and PEP 723 allows one",
            hint=f"join them into one, from `{START}` to `{END}`",
        )
    if not blocks:
        return Script(family=imported)
    try:
        document = parse_toml(blocks[0])
    except (ValueError, RecursionError) as problem:
        raise BadInput(f"the metadata block of {path} is not valid TOML: {problem}") from problem
    ask = with_list(Ask(path=path, kind="script"), document.get("dependencies"), path)
    uv = table_in(table_in(document, "tool"), "uv")
    return Script(
        has_block=True,
        family=(*ask.family, *imported),
        tables=("[tool.uv.sources]",) if "sources" in uv else (),
    )


IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(.{0,300})", re.MULTILINE)


def family_imported(text: str) -> tuple[str, ...]:
    """The names of torch and its companions that a script imports. The script is only searched, not
    run.

    >>> family_imported("import torch, torchvision.transforms as T\\nfrom torch import nn")
    ('torch', 'torchvision')
    """
    names: set[str] = set()
    for statement in IMPORT.findall(text):
        modules = statement.partition(" import ")[0]
        names.update(re.findall(r"(?:^|,)[ \t]*(\w+)", modules))
    return tuple(name for name in FAMILY if name in names)


def blocks_of(text: str) -> Iterator[str]:
    r"""Yields the TOML text of each metadata block in a script.

    >>> list(blocks_of("# /// script\n# dependencies = []\n# ///\nimport torch\n"))
    ['dependencies = []']
    """
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        if lines[number].rstrip() != START:
            number += 1
            continue
        comments = []
        for line in lines[number + 1 :]:
            if not re.match(r"#( |$)", line):
                break
            comments.append(line)
        ends = [place for place, line in enumerate(comments) if line.rstrip() == END]
        if ends:
            yield "\n".join(line[2:] for line in comments[: ends[-1]])
        number += 1 + len(comments)


def block_lines(
    script: Script, tables: Iterable[str], requirements: Iterable[str], python: str
) -> Iterator[str]:
    """Yields the lines to add to a script, with the tables as comments. If the script has no
    metadata block, the lines form a complete one."""
    commented = [f"# {line}".rstrip() for line in tables]
    if script.has_block:
        yield "#"
        yield from commented
        return
    yield START
    yield f'# requires-python = ">={python.rstrip("t")}"'
    yield f"# dependencies = {json.dumps(list(requirements))}"
    yield "#"
    yield from commented
    yield END
