"""What a uv project's file was before `gpusetup guard --project --write`, kept beside it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from gpusetup.errors import BadInput, Blocked
from gpusetup.install.guard import put
from gpusetup.install.project_file import read_project, write_project
from gpusetup.install.switching.files import read_json_object

SCHEMA = "gpusetup.project-undo/1"


def record_of(path: Path) -> Path:
    """
    >>> record_of(Path("a/pyproject.toml")).name
    'pyproject.toml.gpusetup-undo.json'
    """
    real = Path(os.path.realpath(path))
    return real.with_name(f"{real.name}.gpusetup-undo.json")


def remember(path: Path, before: str, after: str) -> None:
    """Keep what the file was; a second guard keeps what was there before the first."""
    place, kept = record_of(path), _kept(path)
    first = kept[0] if kept and kept[1] == _sha(before) else before
    row = {"schema": SCHEMA, "before": first, "after": _sha(after)}
    put(place, (json.dumps(row) + "\n").encode(), 0o600)


def take_back(path: Path) -> bool:
    """Put the file back as it was; False where there is no record. `Blocked`, and nothing changed,
    where the file is not as the guard left it."""
    kept = _kept(path)
    if kept is None:
        return False
    before, after = kept
    now = read_project(path)
    if now != before and _sha(now) != after:
        raise Blocked(
            f"{path} was changed after `gpusetup guard --project --write`",
            hint="take the pins out of `constraint-dependencies` by hand, then delete "
            f"{record_of(path)}",
        )
    write_project(path, before)
    record_of(path).unlink(missing_ok=True)
    return True


def _kept(path: Path) -> tuple[str, str] | None:
    """The former text, and the digest of what the guard wrote."""
    place = record_of(path)
    if not os.path.lexists(place):
        return None
    row = read_json_object(place) or {}
    before, after = row.get("before"), row.get("after")
    if row.get("schema") != SCHEMA or not (isinstance(before, str) and isinstance(after, str)):
        raise BadInput(
            f"{place} is no record of `gpusetup guard`", hint="see what it is, then delete it"
        )
    return before, after


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
