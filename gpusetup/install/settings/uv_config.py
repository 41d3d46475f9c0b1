"""The little that is read of uv's files: whether the guard wrote one, and the form of TOML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HEAD = "# gpusetup guard"
"""How a `uv.toml` begins that the guard wrote: it is for other installers than us."""


def names_settings(project: Path) -> bool:
    """Whether a project's file has settings of uv."""
    try:
        return "uv" in parse_toml(project.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError):
        return False


def is_guard(path: Path) -> bool:
    """Whether the guard wrote a file."""
    try:
        if not path.is_file():
            return False
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


def parse_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    import tomli

    return dict(tomli.loads(text))
