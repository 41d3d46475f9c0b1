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
from gpusetup.project.ask import MOST_BYTES, Ask
from gpusetup.project.pyproject import add_list, table
from gpusetup.uv.toml import parse_toml

START, END = "# /// script", "# ///"
IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(.{0,300})", re.MULTILINE)


def read_script(path: str) -> Ask:
    """What a script asks for by its metadata block and its imports; `has_project` says whether it
    has a block. The script is only searched, not run.

    Raises BadInput if it has two metadata blocks, or one that is not valid TOML.
    """
    text = named_file.read_text(path, MOST_BYTES)
    ask, blocks = Ask(path=path, kind="script"), list(blocks_of(text))
    if len(blocks) > 1:
        raise BadInput(
            f"{path} has {len(blocks)} blocks of metadata, and PEP 723 allows one",
            hint=f"join them into one, from `{START}` to `{END}`",
        )
    for block in blocks:
        try:
            document = parse_toml(block)
        except ValueError as problem:
            message = f"the metadata block of {path} is not valid TOML: {problem}"
            raise BadInput(message) from problem
        ask.has_project = True
        add_list(ask, document.get("dependencies"), path)
        if "sources" in table(table(document, "tool"), "uv"):
            ask.tables.append("[tool.uv.sources]")
    for statement in IMPORT.findall(text):
        modules = statement.partition(" import ")[0]
        for name in {*re.findall(r"(?:^|,)[ \t]*(\w+)", modules)} & {*FAMILY}:
            ask.add(name, path)
    return ask


def blocks_of(text: str) -> Iterator[str]:
    r"""Yields the TOML text of each metadata block in a script, which ends at the last `# ///` of
    its comment lines.

    >>> list(blocks_of("# /// script\n# dependencies = []\n# ///\nimport torch\n"))
    ['dependencies = []']
    """
    comments: list[str] | None = None
    for line in (*text.splitlines(), ""):
        is_comment = re.match(r"#( |$)", line) is not None
        if comments is not None and not is_comment:
            ends = [place for place, one in enumerate(comments) if one.rstrip() == END]
            if ends:
                yield "\n".join(one[2:] for one in comments[: ends[-1]])
            comments = None
        elif comments is not None:
            comments.append(line)
        elif line.rstrip() == START:
            comments = []


def block_lines(
    ask: Ask, tables: Iterable[str], requirements: Iterable[str], python: str
) -> Iterator[str]:
    """Yields the lines to add to a script, with the tables as comments. If the script has no
    metadata block, the lines form a complete one."""
    if not ask.has_project:
        yield START
        yield f'# requires-python = ">={python.rstrip("t")}"'
        yield f"# dependencies = {json.dumps(list(requirements))}"
    yield "#"
    yield from (f"# {line}".rstrip() for line in tables)
    if not ask.has_project:
        yield END
