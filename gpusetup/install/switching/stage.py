"""Fetches and unpacks wheels beside the environment, before anything in it changes.

uv installs below a folder of the store from the lock that was shown, each file by its hash, through
a cache that only we use. What it unpacked is compared with its lists (`staged.py`); the switch only
renames.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpusetup.errors import ToolFailed
from gpusetup.install.fetching.lock import lock_text
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.switching.files import remove, rename
from gpusetup.install.switching.journal import STAGING
from gpusetup.install.switching.staged import Staged, compared
from gpusetup.install.target.layout import Layout
from gpusetup.model.frozen import replace
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


def with_edited(staged: Staged, edited: Mapping[str, bytes], folder: Path) -> Staged:
    """The same with files of the target that will have another content (easy-install.pth)."""
    more = {}
    for number, (path, content) in enumerate(sorted(edited.items())):
        fresh = folder / f"edited-{number}"
        fresh.write_bytes(content)
        os.chmod(fresh, os.stat(path).st_mode & 0o7777)
        more[str(fresh)] = path
    return replace(staged, targets={**staged.targets, **more})


def place(targets: Mapping[str, str], tops: Iterable[str]) -> tuple[str, ...]:
    """Rename what was unpacked to where it goes, whole folders where they are new; the folders
    that were changed."""
    changed = set()
    for source, target in renames(targets, frozenset(tops)):
        rename(Path(source), Path(target))
        changed.add(os.path.dirname(target))
    return tuple(sorted(changed))


def renames(targets: Mapping[str, str], tops: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """(from, to): for each new entry of the environment the staged one that becomes it.

    >>> renames({"/s/a/x": "/t/a/x", "/s/a/y": "/t/a/y"}, frozenset(["/t/a"]))
    (('/s/a', '/t/a'),)
    """
    whole: dict[str, set[str]] = {}
    for staged, target in targets.items():
        top = _top(target, tops)
        whole.setdefault(top, set()).add(_source(staged, target, top) or "")
    found = {(next(iter(s)), top) for top, s in whole.items() if len(s) == 1 and "" not in s}
    found -= _mixed(targets, tops, found)
    done = {top for _, top in found}
    apart = {(s, t) for s, t in targets.items() if _top(t, tops) not in done}
    return tuple(sorted(found | apart, key=lambda pair: pair[1]))


def _mixed(
    targets: Mapping[str, str], tops: frozenset[str], found: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """The staged folders that hold something which goes elsewhere as well."""
    becomes = dict(found)
    folders = frozenset(becomes)
    mixed = set()
    for staged, target in targets.items():
        source = _top(staged, folders)
        if source in becomes and becomes[source] != _top(target, tops):
            mixed.add((source, becomes[source]))
    return mixed


def _top(target: str, tops: frozenset[str]) -> str:
    path = target
    while path not in tops:
        above = os.path.dirname(path)
        if above == path:
            return target
        path = above
    return path


def _source(staged: str, target: str, top: str) -> str | None:
    """What stands for `top` in the stage; None where the two trees differ below it."""
    tail = target[len(top) :]
    return staged[: len(staged) - len(tail)] if staged.endswith(tail) else None


def require_installed(records: Mapping[str, str]) -> None:
    """Every RECORD in the environment is the one that was compared with its wheel."""
    for path, wanted in records.items():
        found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        if found != wanted:
            raise ToolFailed(
                f"{path} is not the list that was checked",
                hint="somebody else installs into this environment; run this again",
            )
