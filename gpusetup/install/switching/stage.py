"""Fetches and unpacks wheels beside the environment, before anything in it changes.

uv installs below a folder of the store from the lock that was shown, each file by its hash, through
a cache that only we use. What it unpacked is compared with its lists (`staged.py`); the switch only
renames.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpusetup.errors import ToolFailed
from gpusetup.install.fetching.lock import lock_text
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.switching.durable import sync_renamed
from gpusetup.install.switching.files import remove, rename
from gpusetup.install.switching.journal import STAGING
from gpusetup.install.switching.staged import Staged, compared
from gpusetup.install.target.layout import Layout
from gpusetup.system.refused import refused

ROOT, LOCK, TEMPORARY = "root", "pylock.toml", "tmp"
"""In the folder of the stage: what is unpacked, what is asked for, TMPDIR."""


def prepare_stage(store: Path, wheels: Sequence[Wheel]) -> Path:
    """An empty stage with the lock that uv installs from."""
    folder = store / STAGING
    remove(folder)
    (folder / TEMPORARY).mkdir(parents=True)
    folder.chmod(0o700)
    (folder / LOCK).write_text(lock_text(wheels), encoding="utf-8")
    return folder


def unpacked(folder: Path, wheels: Sequence[Wheel], layout: Layout) -> Staged:
    """What was unpacked, compared with its lists."""
    try:
        return compared(folder / ROOT, wheels, layout)
    except OSError as problem:
        raise refused(problem, "", "nothing was changed; run this again") from problem


def place(targets: Mapping[str, str], prefix: str) -> None:
    """Rename what was unpacked to where it goes; on the disk before this returns."""
    changed: set[str] = set()
    for source, target in targets.items():
        folder = os.path.dirname(target)
        while folder not in changed and len(folder) >= len(prefix):
            changed.add(folder)
            folder = os.path.dirname(folder)
        rename(Path(source), Path(target), synced=False)
    sync_renamed(changed)


def require_installed(records: Mapping[str, str]) -> None:
    """Every RECORD in the environment is the one that was compared with its wheel."""
    for path, wanted in records.items():
        found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        if found != wanted:
            raise ToolFailed(
                f"{path} is not the list that was checked",
                hint="somebody else installs into this environment; run this again",
            )
