"""Unpacks checked wheels beside the environment, on its own disk, before anything in it changes.

uv or pip installs below a folder of the store, told by exact version and hash, from a folder that
holds these wheels and no others, through a cache that is new: neither another mirror's copy nor a
damaged one can come in their place. Not by `name @ file://`, which would leave `direct_url.json`
in the environment and a path of this machine in everybody's `pip freeze`. What they unpacked is
compared with the wheels (`staged.py`); the switch only renames.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpusetup.errors import ToolFailed
from gpusetup.install.fetching.wheel_cache import digest_of
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.switching.files import link_or_copy, remove, rename
from gpusetup.install.switching.journal import STAGING
from gpusetup.install.switching.staged import Differs, Staged, compared
from gpusetup.install.target.layout import Layout
from gpusetup.model.frozen import replace
from gpusetup.system.refused import refused

LINKS, WANTED, ROOT, TEMPORARY = "links", "wheels.txt", "root", "tmp"
"""In the folder of the stage: the wheels, what is asked, what is unpacked, TMPDIR."""


def prepare_stage(store: Path, wheels: Sequence[Wheel], files: Sequence[Path]) -> Path:
    """An empty stage with links to the checked wheels, and the list of their hashes."""
    folder = store / STAGING
    remove(folder)
    (folder / LINKS).mkdir(parents=True, mode=0o700)
    (folder / TEMPORARY).mkdir()
    for path in files:
        link_or_copy(path.absolute(), folder / LINKS / path.name)
    rows = (
        f"{wheel.name}=={wheel.version} --hash=sha256:{digest(wheel, path)}\n"
        for wheel, path in zip(wheels, files, strict=True)
    )
    (folder / WANTED).write_text("".join(rows), encoding="utf-8")
    return folder


def digest(wheel: Wheel, path: Path) -> str:
    """What the wheel was checked against; its own digest where the index named none."""
    return wheel.sha256.lower() if wheel.sha256 else digest_of(path)


def unpacked(folder: Path, files: Sequence[Path], layout: Layout) -> Staged:
    """What was unpacked, compared with the wheels."""
    root = folder / ROOT
    if not root.is_dir() and files:
        raise ToolFailed("The installer unpacked nothing", hint="nothing was changed")
    try:
        return compared(root, files, layout)
    except Differs as problem:
        raise ToolFailed(problem.message, hint="nothing was changed; run this again") from problem
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
