"""The journal of a change. It is not trusted, because anyone may have written the files in an
environment.

For example, a checkout may contain a `.venv/.gpusetup`. So a journal is only read if it is a
regular file of limited size that belongs to this user or to the environment's owner. It must not
lead out of the environment: every path in it is below the prefix, without a symbolic link on the
way.

The store, `.gpusetup` in the target's prefix:

    journal.json       an unfinished change
    staging/           the new files, unpacked before they are moved into place
    former-1f2e3d4c/   the old files that were moved aside
    undo.json          after the change: which of these files `--undo` moves back
    lock, installer    held while a process changes the environment (`lock.py`)
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

from gpusetup import __version__
from gpusetup.errors import BadInput, Blocked
from gpusetup.install.switching.files import is_folder, no_link, write_safely
from gpusetup.model.codec import from_json, to_json
from gpusetup.model.frozen import Frozen
from gpusetup.system.own_cache import MAKING, own_folder, own_path
from gpusetup.system.refusals import blocked_by_files

STORE = ".gpusetup"
"""The name of the store, a folder in the target's prefix."""
JOURNAL, UNDO = "journal.json", "undo.json"
STAGING = "staging"
JOURNAL_BYTES = 32 << 20
"""The maximum size of a journal that is written; one with thirty thousand paths has 4 MB."""
STATE_BYTES = 3 * JOURNAL_BYTES
"""The maximum size of a file that is read. An undo also lists the size and time of each kept file,
which takes at most twice as much space as its path."""
NAME_LETTERS, PATH_LETTERS = 80, 200
"""How much of a name and of a path in a stranger's journal a message shows."""
LOOK_AT_IT = "nothing was changed; look at it, and delete it yourself if you don't need it"
FORMER = re.compile(r"former(-[0-9a-f]{8})?")
"""The name of a folder with old files; without a number only in the journal that checks a plan."""
PYTHONS_OWN = re.compile(
    r"pyvenv\.cfg"
    r"|(bin|Scripts)/(python(\d+(\.\d+)?t?)?w?(_d)?(\.exe)?|(de)?activate([._]\w+)*)"
    r"|lib(64)?/python\d+\.\d+t?/(?!(site|dist)-packages/).*"
    r"|lib(64)?/libpython[^/]*"
    r"|Lib/(?!site-packages/).*|DLLs/.*|python\w*\.(exe|dll)",
    # On Windows, upper and lower case in a path do not matter.
    re.IGNORECASE if os.name == "nt" else 0,
)
"""Files of the environment itself, as paths below its prefix, that no wheel may contain."""
Phase = Literal["making", "staging", "moving", "installing", "verifying", "keeping"]


class Journal(Frozen):
    """All changes to an environment that are in progress or done, so that they can be completed or
    rolled back. The paths are relative to the environment, because it may be moved."""

    schema: Literal["gpusetup.journal/2"] = "gpusetup.journal/2"
    gpusetup: str = __version__
    phase: Phase = "moving"
    former: str = "former"
    """The folder in the store with the files that were moved aside, which have numbers as names."""
    moves: tuple[str, ...] = ()
    """The files that are moved aside."""
    made: tuple[str, ...] = ()
    """Files that the change creates and that did not exist before."""
    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}
    venv: bool = False
    """Whether this change creates the whole environment, which reverting the change removes."""
    undoes: bool = False
    """Whether this is the journal of an installation that is being undone."""
    beside: Mapping[str, str] = {}
    """The installed companions that the installation left alone."""
    stays: tuple[str, ...] = ()
    """Only for an undo: files of packages that were installed later, which are left as they are."""
    kept: Mapping[str, tuple[int, int]] = {}
    """Only for an undo: the size and time of each kept file."""


def text_of(path: str, prefix: str) -> str:
    """A path relative to the prefix, as text that JSON can store: one character per byte. Raises
    Blocked if it is outside.

    >>> text_of("/e/caf\\udce9", "/e")
    'caf\\xe9'
    """
    if not path.startswith(f"{prefix}{os.sep}"):
        raise _unusable(prefix, f"{path} is outside of it, because of a symbolic link")
    return os.fsencode(path[len(prefix) + 1 :]).decode("latin-1")


def paths_in(store: Path, texts: Iterable[str]) -> list[str]:
    """The absolute paths in the store's environment for texts that `text_of` returned."""
    prefix = str(store.parent)
    return [os.path.join(prefix, os.fsdecode(text.encode("latin-1"))) for text in texts]


def write_journal(store: Path, journal: Journal, name: str = JOURNAL) -> None:
    """Write the journal atomically and flush it to disk. Raises Blocked if it is too long."""
    text = to_json(journal, indent=1)
    # A change below this limit has an undo that is small enough to be read.
    if name == JOURNAL and len(text.encode()) > JOURNAL_BYTES:
        count = len(journal.moves) + len(journal.made)
        raise _unusable(store.parent, f"its journal would list {count} files, too many")
    write_safely(store / name, text)


def require_followable(store: Path, journal: Journal) -> None:
    """Raise `Blocked` for a journal that `read_journal` would refuse, because the change could then
    be neither completed nor reverted."""
    objection = _objection_to(journal, store)
    if objection:
        raise _unusable(store.parent, objection)


def _unusable(prefix: Path | str, objection: str) -> Blocked:
    """The error for a change of an environment that could not be reverted."""
    return Blocked(
        f"The change of {prefix} could not be undone: {objection}",
        hint="nothing was changed; leave out the package with that file, or use another "
        "environment: `--venv DIR`",
    )


def read_journal(store: Path, name: str = JOURNAL) -> Journal | None:
    """A journal in the store; None if there is none. Raises BadInput if it is invalid or names
    paths outside the environment."""
    path = store / name
    raw = read_state(path)
    if raw is None:
        return None
    try:
        journal = from_json(raw, Journal, what=str(path))
        objection = _objection_to(journal, store)
        # A change only creates files, so `made` never names a folder of gpusetup's. For an undo,
        # this is checked when it begins.
        if objection is None and name == JOURNAL:
            folder = next(filter(is_folder, paths_in(store, journal.made)), None)
            if folder is not None:
                objection = f"it lists a folder as a new file: {folder[:PATH_LETTERS]!r}"
    except BadInput as problem:
        objection = problem.message
    except (RecursionError, ValueError):
        # The JSON may be nested too deeply, or contain characters that are not bytes of a path.
        objection = "it cannot be read"
    if objection:
        raise BadInput(f"{path}: {objection}", hint=NEXT_STEPS[name])
    return journal


NEXT_STEPS = {
    UNDO: "delete the file; the last installation can then no longer be undone",
    JOURNAL: "save the folders former-* next to it (they hold the files that were moved away), "
    "then delete this file; gpusetup will accept the environment as it is",
}


def _objection_to(journal: Journal, store: Path) -> str | None:
    """The reason why a journal must not be followed; None if it only changes its environment."""
    former = store / journal.former
    if not FORMER.fullmatch(journal.former):
        name = journal.former[:NAME_LETTERS]
        return f"the journal names a folder that gpusetup did not make: {name!r}"
    if os.path.lexists(former) and (former.is_symlink() or not former.is_dir()):
        return f"{former} is not a folder"
    # Reverting the change that makes an environment deletes it. In `keeping` it is only completed,
    # and a later undo leaves the environment.
    if journal.venv and journal.phase != "keeping":
        # An undo is only written when the environment is complete.
        if os.path.lexists(store / UNDO):
            return "it is for an environment that is being created, but this one is complete"
        # Anybody could write such a journal, for example into a checkout, but not gpusetup's note.
        if not has_creation_note(store, journal):
            return (
                "it is for an environment that is being created, but gpusetup did not start "
                "that; if it is incomplete, delete the whole folder"
            )
    paths = paths_in(store, (*journal.made, *journal.moves, *journal.stays))
    outside = first_outside(store, paths)
    if outside is not None:
        return f"{outside[:PATH_LETTERS]!r} is outside, or a symbolic link leads outside"
    # `first_of_python` needs paths below the prefix, which the check above ensures.
    pythons_own = first_of_python(str(store.parent), paths)
    if pythons_own is not None:
        return f"it lists a file of the environment's own Python: {pythons_own[:PATH_LETTERS]!r}"
    return None


def first_of_python(prefix: str, paths: Iterable[str]) -> str | None:
    """The first of these paths (all below the prefix) that is a file of the environment's own
    Python, as a path below the prefix; None if there is none.

    >>> first_of_python("/env", ["/env/bin/torchrun", "/env/bin/activate"])
    'bin/activate'
    """
    for path in paths:
        below_prefix = path[len(prefix) + 1 :].replace(os.sep, "/")
        if PYTHONS_OWN.fullmatch(below_prefix):
            return below_prefix
    return None


# --- a note of the environments that are being made -----------------------------------------------


def note_creation(store: Path, journal: Journal) -> None:
    """Record, outside the environment, that gpusetup is creating it, under the journal's random
    name of the folder `former`."""
    write_safely(own_folder(MAKING) / journal.former, os.path.realpath(store.parent))


def has_creation_note(store: Path, journal: Journal) -> bool:
    """Whether gpusetup's own note shows that it began to create this environment."""
    try:
        # `own_folder` creates the folder for notes, which a command that only reads must not do.
        if not own_path(MAKING).is_dir():
            return False
        note = own_folder(MAKING) / journal.former
        text = note.read_text(encoding="utf-8", errors="surrogateescape")
    except (OSError, Blocked):
        return False
    return text == os.path.realpath(store.parent)


def forget_creation(journal: Journal) -> None:
    """Remove the note that an environment is being created."""
    with suppress(OSError, Blocked):
        (own_folder(MAKING) / journal.former).unlink()


def first_outside(store: Path, paths: Iterable[str]) -> str | None:
    """The first path that is unsafe to touch, because it is outside the environment
    (`store.parent`), behind a symbolic link, or in the store itself. None if all paths are safe."""
    prefix, real_prefix = str(store.parent), os.path.realpath(store.parent)

    @cache
    def is_safe(folder: str) -> bool:
        """Whether a folder is the environment or in it, and no link is on the way."""
        if folder != prefix and not folder.startswith(f"{prefix}{os.sep}"):
            return False
        return os.path.realpath(folder) == real_prefix + folder[len(prefix) :]

    for path in paths:
        # No file name can contain NUL, and every system call rejects it.
        is_plain = "\0" not in path and path == os.path.normpath(path)
        in_store = f"{path}{os.sep}".startswith(f"{store}{os.sep}")
        if in_store or not (is_plain and is_safe(os.path.dirname(path))):
            return path
    return None


# --- files of a store -----------------------------------------------------------------------------


def checked_status(path: Path) -> os.stat_result | None:
    """The status of a store, or of a file in it; None if it does not exist.

    Raises Blocked for a link, and for a file that does not belong to this process's user, root or
    the owner of the environment (in a container, that owner is often another user).
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        raise Blocked(f"{path} is a symbolic link", hint=LOOK_AT_IT)
    # Windows has no comparable file owners.
    if os.name != "posix":
        return status
    prefix = path.parent if path.name == STORE else path.parent.parent
    root = 0
    if status.st_uid not in (os.geteuid(), root, prefix.stat().st_uid):
        raise Blocked(
            f"{path} belongs to another user (number {status.st_uid})",
            hint="nothing was changed; let them run `gpusetup install`, or use another "
            "environment: `--venv DIR`",
        )
    return status


def read_state(path: Path) -> bytes | None:
    """The bytes of a file in the store; None if it does not exist. Raises Blocked if it is too
    large, not a regular file, or not ours."""
    status = checked_status(path) if checked_status(path.parent) else None
    if status is None:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Blocked(f"{path} is not a regular file", hint=LOOK_AT_IT)
    if status.st_size > STATE_BYTES:
        raise Blocked(
            f"{path} is too large for a file of gpusetup ({status.st_size} bytes)", hint=LOOK_AT_IT
        )
    with blocked_by_files(str(path), LOOK_AT_IT), open(path, "rb", opener=no_link) as file:
        return file.read(STATE_BYTES)


def require_lock(path: Path) -> None:
    """Raise Blocked if a lock file exists but is not an empty file of a trusted owner, because
    opening it could change another file."""
    status = checked_status(path)
    # A second name (a hard link) would be that other file's.
    if status and (not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size):
        raise Blocked(f"{path} is not a lock of gpusetup", hint=LOOK_AT_IT)
