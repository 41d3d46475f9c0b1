"""What was moved aside comes back only as it went: a list of it is written before it moves.

A rename keeps size and time of a file, so a list costs no reading of gigabytes. Its digest is in
the journal.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.switching.files import read_json_object, write_safely
from gpusetup.install.switching.journal import Journal
from gpusetup.install.switching.state_files import read_state
from gpusetup.model.frozen import replace

LIST = "kept.json"
"""In the folder of what was moved aside."""
SECOND = 10**9

Entry = list[str | int]
"""`["folder"]`, `["link", where it leads]`, `["file", bytes, time of its last change in ns]`."""


def listed(store: Path, journal: Journal) -> Journal:
    """The journal, once the list of what it will move aside is written."""
    entries = dict(_entries((move.path, move.kept) for move in journal.moves))
    text = json.dumps(entries)
    write_safely(store / journal.former / LIST, text)
    return replace(journal, listed=hashlib.sha256(text.encode()).hexdigest())


def require_as_kept(store: Path, journal: Journal, hint: str, *, whole: bool) -> None:
    """`Blocked` where what is kept is not what was moved aside; `whole`: all of it is there still,
    else what is missing went back already."""
    if not journal.listed:  # by a gpusetup that wrote no list
        return
    former = store / journal.former
    raw = read_state(former / LIST) or b""
    is_ours = hashlib.sha256(raw).hexdigest() == journal.listed
    noted = read_json_object(former / LIST, len(raw)) if is_ours else None
    if noted is None:
        raise Blocked(f"{former / LIST}, the list of what was kept, was altered", hint=hint)
    kept = ((str(former / move.kept), move.kept) for move in journal.moves)
    found = dict(_entries(kept))
    missing = noted.keys() - found.keys() if whole else set()
    for name in sorted(found.keys() | missing):
        if not _same(noted.get(name), found.get(name)) and not name.endswith(".gone~"):
            said = _difference(noted.get(name), found.get(name))
            raise Blocked(
                f"What was kept is not what it was: {former / name} {said}; "
                f"it would come back as {_place(journal, name)}",
                hint=hint,
            )


def _entries(tops: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Entry]]:
    """Everything at some paths and below, each by a name of its own; links are not followed."""
    waiting = list(tops)
    while waiting:
        path, name = waiting.pop()
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            yield name, ["link", os.readlink(path)]
        elif stat.S_ISDIR(found.st_mode):
            yield name, ["folder"]
            waiting += [(f"{path}{os.sep}{one}", f"{name}/{one}") for one in os.listdir(path)]
        else:
            yield name, ["file", found.st_size, found.st_mtime_ns]


def _same(noted: Entry | None, found: Entry | None) -> bool:
    """Whether an entry is unchanged; what copies an environment may cut times to whole seconds.

    >>> _same(["file", 1, 5_000_000_007], ["file", 1, 5_000_000_000]), _same(["folder"], None)
    (True, False)
    """
    if not isinstance(noted, list) or found is None or noted[:2] != found[:2]:
        return False
    cut = [time - time % SECOND for time in noted[2:] if isinstance(time, int)]
    return found[2:] in (noted[2:], cut)


def _difference(noted: Entry | None, found: Entry | None) -> str:
    if found is None:
        return "is gone"
    if found[0] == "link":
        return f"is a link to {found[1]}"
    return "was put there since" if noted is None else "was altered"


def _place(journal: Journal, name: str) -> str:
    kept, _, below = name.partition("/")
    path = next(move.path for move in journal.moves if move.kept == kept)
    return os.path.join(path, below) if below else path
