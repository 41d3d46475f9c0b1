"""The little that is read of uv's files: whether only the guard wrote one, and the form of TOML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

MARK = "# gpusetup guard"
"""How the lines begin that stand around what the guard wrote."""


def is_guard(path: Path) -> bool:
    """Whether the guard wrote a file, and nobody else: it is for other installers than us."""
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, ValueError):
        return False
    return text.startswith(MARK) and text.rstrip().rpartition("\n")[2] == f"{MARK}: to here"


def parse_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.loads(text)
    import tomli

    return dict(tomli.loads(text))
