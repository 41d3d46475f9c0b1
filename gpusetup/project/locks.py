"""Reads what a lock pins: uv.lock, pylock.toml (PEP 751) and poetry.lock."""

from __future__ import annotations

from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.project.ask import Ask
from gpusetup.project.pyproject import list_in, table, text_in
from gpusetup.project.requirements import with_request
from gpusetup.project.words import named_index, requested
from gpusetup.uv.toml import parse_toml

MOST_BYTES = 32 << 20
"""A lock of a thousand packages with all their files has a few megabytes."""


def read_lock(path: str) -> Ask:
    """What a lock pins. Raises BadInput if it cannot be read or is no TOML."""
    try:
        document = parse_toml(named_file.read_text_once(path, MOST_BYTES))
    except ValueError as problem:
        raise BadInput(f"{path} is not valid TOML: {problem}") from problem
    ask = Ask(path=path, kind="lock", python=text_in(document, "requires-python"))
    name = Path(path).name
    # uv and Poetry call their list `package`, PEP 751 calls it `packages`.
    for row in (*list_in(document, "package"), *list_in(document, "packages")):
        version = text_in(row, "version") if isinstance(row, dict) else None
        if version is None:
            continue
        source = table(row, "source")
        # The project itself and its workspace stand in the lock, too.
        if "editable" in source or "virtual" in source:
            continue
        url = text_in(source, "registry") or text_in(row, "index")
        index = named_index(url, name) if url else None
        request = requested(f"{row.get('name')}=={version}", f"{name}, {row.get('name')}")
        if request is None:
            continue
        ask = with_request(ask, request)
        if request.is_family and index and index.backend and index not in ask.indexes:
            ask = replace(ask, indexes=(*ask.indexes, index))
    return ask
