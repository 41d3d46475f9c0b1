"""What conda keeps of an environment's past: its revisions, and the one that `--undo` goes back to.

Every change by conda, mamba or micromamba is a revision in `conda-meta/history`. Only conda itself
is trusted to bring one back: mamba took `--revision` for years and did nothing
(https://github.com/mamba-org/mamba/issues/803), and micromamba learned it in 2025.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from gpusetup import __version__
from gpusetup.errors import BadInput, Blocked
from gpusetup.install.switching.files import read_json_object, refuse_newer, write_safely
from gpusetup.install.switching.journal import CONDA_UNDO, read_state
from gpusetup.model.finding import Step
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import own_line

CONDA_SECONDS = 3600.0
RECORD_BYTES = 64 << 20
"""More than that no record of a package has; it lists every file."""


class CondaUndo(Frozen):
    """What brings an environment back to where it was before conda installed torch."""

    schema: Literal["gpusetup.conda-undo/1"] = "gpusetup.conda-undo/1"
    gpusetup: str = __version__
    revision: int
    """The one to go back to."""
    reached: int
    """The one that the installation ended in."""
    before: Mapping[str, str]
    after: Mapping[str, str]
    packages: Mapping[str, str]
    """Every package that was there, to compare with what has come back."""
    channels: tuple[str, ...] = ()
    """Where they came from."""


def records(prefix: str) -> dict[str, dict[str, Any]]:
    """Every package that conda has put into an environment: name -> its record."""
    found = {}
    for path in sorted(Path(prefix, "conda-meta").glob("*.json")):
        record = read_json_object(path, RECORD_BYTES) or {}
        if isinstance(record.get("name"), str) and isinstance(record.get("version"), str):
            found[record["name"]] = record
    return found


def builds(of: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Name -> version and build.

    >>> builds({"pytorch": {"version": "2.5.1", "build": "py3.11_cuda"}})
    {'pytorch': '2.5.1 py3.11_cuda'}
    """
    return {name: f"{one['version']} {one.get('build', '')}".strip() for name, one in of.items()}


def revision(prefix: str) -> int | None:
    """The number of an environment's last revision; None where conda keeps no history of it."""
    try:
        text = Path(prefix, "conda-meta", "history").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return last_revision(text)


def last_revision(history: str) -> int | None:
    """As conda counts them: from 0.

    >>> last_revision("==> 2026-01-01 10:00:00 <==\\n+a-1-0\\n==> 2026-01-02 10:00:00 <==\\n")
    1
    """
    count = len(re.findall(r"(?m)^==>\s*.+?\s*<==", history))
    return count - 1 if count else None


def conda_itself(environ: Mapping[str, str]) -> str | None:
    """The program conda, not one that is like it."""
    named = environ.get("CONDA_EXE")
    if named and Path(named).is_file() and Path(named).stem == "conda":
        return named
    return shutil.which("conda", path=environ.get("PATH"))


def revision_step(program: str, prefix: str, number: int, channels: tuple[str, ...]) -> Step:
    """The command that brings a revision back; conda looks for its packages in these channels."""
    named = tuple(word for one in channels for word in ("--channel", one))
    argv = (program, "install", "--yes", "--prefix", prefix, *named, "--revision", str(number))
    return Step(argv=argv, title=f"revision {number}", timeout_seconds=CONDA_SECONDS)


def channels_of(of: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The channels that packages came from, without a token.

    >>> channels_of({"a": {"url": "https://c/t/ab-1/conda-forge/linux-64/a-1-0.conda"}})
    ('https://c/conda-forge',)
    """
    urls = (str(one["url"]) for one in of.values() if one.get("url"))
    folders = (re.sub(r"/t/[^/]+/", "/", url).rpartition("/")[0] for url in urls)
    return tuple(dict.fromkeys(folder.rpartition("/")[0] for folder in folders))


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Where packages are not what they should be.

    >>> differences({"a": "1 0", "b": "2 0"}, {"a": "1 1", "c": "3 0"})
    ['a is 1 1, not 1 0', 'b is gone, not 2 0', 'c is 3 0, not gone']
    """
    names = sorted({*wanted, *found})
    pairs = ((name, found.get(name, "gone"), wanted.get(name, "gone")) for name in names)
    return [f"{name} is {now}, not {then}" for name, now, then in pairs if now != then]


def write_undo(store: Path, undo: CondaUndo) -> None:
    from gpusetup.model.codec import to_json

    write_safely(store / CONDA_UNDO, to_json(undo, indent=1))


def read_undo(store: Path) -> CondaUndo | None:
    """What an undo by conda would go back to; None where the last installation was not conda's."""
    from gpusetup.model.codec import from_json

    path = store / CONDA_UNDO
    raw = read_state(path)
    if raw is None:
        return None
    refuse_newer(raw, "gpusetup.conda-undo/1", what=str(path))
    try:
        return from_json(raw, CondaUndo, what=str(path))
    except RecursionError as problem:
        raise BadInput(f"{path} cannot be read: it is too deep") from problem


def undo_known(store: Path, undo: CondaUndo, program: str | None) -> Step:
    """The command of an undo. `Blocked` where others have changed the environment since, and where
    conda is not there to run it."""
    prefix, now = str(store.parent), revision(str(store.parent))
    words = ("conda", "install", "--prefix", prefix, "--revision", str(undo.revision))
    typed = f"`{own_line(*words)}`"
    if now != undo.reached:
        raise Blocked(
            f"{prefix} has been changed by conda since: it is at revision {now}, "
            f"gpusetup left it at {undo.reached}",
            hint=f"nothing was changed; {typed} goes back, and takes the later changes with it "
            "(`conda list --revisions` shows them)",
        )
    if program is None:
        raise Blocked(
            "The program conda is not found, and mamba and micromamba do not bring revisions back "
            "reliably",
            hint=f"nothing was changed; where conda is at hand, {typed} undoes it",
        )
    return revision_step(program, prefix, undo.revision, undo.channels)
