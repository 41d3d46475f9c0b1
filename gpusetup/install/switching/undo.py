"""`--undo`: restores the packages that the last installation replaced, and leaves later changes
alone.

Packages that others have changed since then stay as they are, together with their files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from packaging.utils import canonicalize_name

from gpusetup.errors import Blocked
from gpusetup.install.switching.change import Change, bytecode_of, files_in
from gpusetup.install.switching.journal import (
    STORE,
    UNDO,
    Journal,
    first_folder,
    read_journal,
    text_of,
)
from gpusetup.install.switching.lock import locked
from gpusetup.install.target import (
    INFO,
    Distribution,
    Layout,
    distributions,
    files_listed,
    files_of_all,
    record_rows,
    versions,
)
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.system.refusals import blocked_by_files
from gpusetup.system.signals import interruptible, uninterrupted

TWICE = "fix that, then run `gpusetup install --undo` again; nothing is lost until then"
UNCHANGED = "nothing was changed; `gpusetup install --torch VERSION` installs another"


def undo(talk: Callable[[str], None], layout: Layout) -> None:
    """Restore the packages that the last installation replaced.

    It applies the installation's own journal in reverse. If it is killed, or cannot write a file,
    the next run completes it.
    """
    store = Path(layout.prefix, STORE)
    with interruptible(), locked(store, talk):
        change = undo_known(store, layout)
        talk("Restoring the previous state ...")
        with uninterrupted(), blocked_by_files("Cannot restore the previous state", TWICE):
            change.enter("moving", undoes=True, venv=False)
            change.put_back()


def undo_known(store: Path, layout: Layout) -> Change:
    """The change that an undo would make, with a journal that lists which files stay.

    Raises Blocked if there is nothing to undo, if another program has changed torch since then, or
    if the kept files have changed.
    """
    undo = read_journal(store, UNDO)
    if undo is None:
        raise Blocked(
            f"There is nothing to undo in {layout.prefix}",
            hint="gpusetup can undo only the last installation, and none in an image build. If "
            "conda made the change, `conda list --revisions` shows the revisions, and "
            "`conda install --revision N` returns to revision N",
        )
    installed = versions(distributions(layout))
    changed = {name for name, version in undo.after.items() if installed.get(name) != version}
    # An undo of torch only requires that torch and its companions are unchanged. Without torch,
    # none of the packages may have changed.
    decisive = changed & {*FAMILY} if "torch" in undo.after else changed
    if decisive:
        now = ", ".join(f"{name} is {installed.get(name) or 'gone'}" for name in sorted(decisive))
        raise Blocked(
            f"{layout.prefix} was changed by another program since: {now}", hint=UNCHANGED
        )
    change = Change(store, undo)
    _require_kept_as_it_was(change)
    folder = first_folder(change.made)
    if folder is not None:
        raise Blocked(
            f"{folder} is a folder, and the undo would remove a file in its place",
            hint=UNCHANGED,
        )
    return Change(store, _beside_what_came_since(change, changed, layout))


def _require_kept_as_it_was(change: Change) -> None:
    """Raise Blocked if a file kept for the undo is missing, new, or has another size or time."""
    then, now = change.journal.kept, {}
    what = f"{change.former} is gone"
    if change.former.is_dir():
        now = files_in(change.former)
        changed = sorted(
            name for name in now.keys() | then.keys() if now.get(name) != then.get(name)
        )
        if not changed:
            return
        how = "was changed" if changed[0] in now else "is gone"
        what = f"{change.former / changed[0]} {how}"
    raise Blocked(f"The files kept for the undo have changed: {what}", hint=UNCHANGED)


# --- files of packages that were installed later --------------------------------------------------


def _beside_what_came_since(change: Change, changed: set[str], layout: Layout) -> Journal:
    """The undo's journal, changed so that it leaves files alone whose packages were installed or
    updated later; `changed` names those that have another version than the installation gave them.

    A companion that was installed later for the torch that is removed (`install torchvision`) is
    removed too.
    """
    undo, installed = change.journal, distributions(layout)
    updated = changed & {package.name for package in installed}
    came_since: set[str] = set()
    # Journals of older gpusetup versions do not list the companions.
    if undo.beside is not None and "torch" in undo.after:
        came_since = {package.name for package in installed} & {*FAMILY}
        came_since -= undo.after.keys() | undo.beside.keys()
    kept_at = (change.store / UNDO).stat().st_mtime
    stays = _previous_files(change, updated)
    for package in installed:
        is_undone = package.name in undo.after or package.name in came_since
        if package.name in updated or (not is_undone and _is_newer(package, kept_at)):
            stays |= files_listed(package, layout)
    touched = change.made | change.aside.keys()
    stays = (stays | bytecode_of(stays)) & (touched | bytecode_of(touched))
    removed_too: set[str] = set()
    if came_since:
        removed_too = files_of_all(came_since, layout)[1] - stays - touched
    after = {name: version for name, version in undo.after.items() if name not in changed}
    after |= {package.name: package.version for package in installed if package.name in came_since}
    prefix = str(change.store.parent)
    return replace(
        undo,
        made=(*undo.made, *(text_of(path, prefix) for path in sorted(removed_too))),
        stays=tuple(text_of(path, prefix) for path in sorted(stays)),
        before={name: version for name, version in undo.before.items() if name not in updated},
        after=after,
    )


def _is_newer(package: Distribution, moment: float) -> bool:
    """Whether a package was installed after this time (Unix seconds), judged by its RECORD file."""
    try:
        return os.stat(os.path.join(package.info, "RECORD")).st_mtime > moment
    except OSError:
        return False


def _previous_files(change: Change, updated: set[str]) -> set[str]:
    """The kept files of packages that were updated since then. Do not restore these files, because
    they would be mixed with those of the newer release."""
    files: set[str] = set()
    for path, kept in change.aside.items():
        info, name = os.path.split(path)
        described = INFO.fullmatch(os.path.basename(info))
        if described is None or canonicalize_name(described[1]) not in updated:
            continue
        files.add(path)
        if name == "RECORD":
            library = os.path.dirname(info)
            rows = record_rows(kept)
            files |= {os.path.normpath(os.path.join(library, row[0])) for row in rows}
    return files
