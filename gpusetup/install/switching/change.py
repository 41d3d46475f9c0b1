"""Changes an environment in a way that can be undone, by moving each old file aside.

Before anything moves, a journal lists every file that will be removed or created, and each phase is
recorded before it begins. Until the first rename, the environment's own files are untouched, and if
a later step fails, the previous state is restored. Moving a file aside is a rename on the same
filesystem, so it needs no second copy of gigabytes. `recover_unfinished` needs only the journal to
complete or revert a change that was killed, and it can itself be killed and run again. Whatever a
phase relies on is flushed to disk before that phase is recorded, so this also works after a power
cut. A change creates folders, but it only removes empty ones.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from gpusetup.errors import BadInput, Blocked
from gpusetup.install.job import InstallJob, Plan, keeps_new_torch, run_step, run_verify
from gpusetup.install.switching.files import flush, is_folder, remove
from gpusetup.install.switching.journal import (
    JOURNAL,
    STAGING,
    STORE,
    UNDO,
    Journal,
    Phase,
    forget_creation,
    note_creation,
    paths_in,
    read_journal,
    require_followable,
    text_of,
    write_journal,
)
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.unpack import unpacked
from gpusetup.install.target import (
    INFO,
    LIBRARIES,
    Layout,
    Target,
    distributions,
    family_of,
    files_listed,
    files_of_all,
    layout_of,
    record_rows,
    versions,
)
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.probe.own_files import interrupted
from gpusetup.probe.target import choose_target
from gpusetup.system.refusals import READ_ONLY, blocked_by, blocked_by_files
from gpusetup.system.signals import interruptible, uninterrupted
from gpusetup.system.system import System
from gpusetup.uv.errors import uv_error
from gpusetup.uv.program import uv_environment

VENV_ENTRIES = (
    *("bin", "lib", "lib64", "include", "share", "Scripts", "Lib", "Include", "Library"),
    *("pyvenv.cfg", ".lock", ".gitignore", "CACHEDIR.TAG"),
)
"""The entries that uv, venv and virtualenv create in an environment's folder. If a new environment
is taken back, only these are deleted."""


def install(job: InstallJob, target: Target, plan: Plan, *, verify: bool) -> dict[str, Any] | None:
    """Install the plan: lock, download, unpack, replace, test, then keep the new files or restore
    the old ones (`keeps_new_torch`). Returns verify's result, or None if no test was requested.

    A new environment is created first, and removed again if any step fails.
    """
    venv, layout = target.venv, target.layout
    verdict: dict[str, Any] | None = None
    store = Path(target.prefix, STORE)
    with interruptible(), locked(store, job.talk):
        job.store = store
        _require_unchanged(target, plan)
        change = begin_change(store, makes_venv=venv is not None)
        with change.restoring_on_failure(job):
            if venv:
                output = run_step(job, plan.steps[0], uv_environment())
                if not output.ok:
                    raise uv_error(f"Cannot create {venv}", output)
                # The prefix as the user named it. The interpreter may print it in another form.
                layout = replace(layout_of(target.python), prefix=venv)
            change.exchange(job, layout, unpacked(job, plan, layout), plan.after)
            if verify:
                verdict = run_verify(job, layout.python, plan.device, plan.after.get("torch"))
        if not keeps_new_torch(verdict):
            change.restore(job)
            return verdict
        # Ctrl-C takes effect only after this.
        hint = "fix that, then run `gpusetup install` again to finish"
        with uninterrupted(), blocked_by_files("Cannot finish the installation", hint):
            change.keep()
    return verdict


def _require_unchanged(target: Target, plan: Plan) -> None:
    """Raise Blocked if another program has changed the environment since the plan, or began to."""
    if target.venv:
        # A new environment has only gpusetup's own folder yet.
        is_same = {entry.name for entry in Path(target.venv).iterdir()} == {STORE}
    else:
        is_same = target.installed.items() >= plan.before.items()
    if not is_same or read_journal(Path(plan.target, STORE)) is not None:
        raise Blocked(
            f"{plan.target} was changed by another program in the meantime",
            hint="nothing was changed; run this again",
        )


def begin_change(store: Path, *, makes_venv: bool) -> Change:
    """Begin a change: write its journal before anything else changes. Raises Blocked if the store
    cannot be written."""
    journal = Journal(
        phase="making" if makes_venv else "staging",
        # A new name for each change, because the folder of an earlier change may be kept.
        former=f"former-{secrets.token_hex(4)}",
        venv=makes_venv,
    )
    change = Change(store, journal)
    with blocked_by_files(f"{store} cannot be written", READ_ONLY):
        try:
            change.kept_folder.mkdir(parents=True)
            remove(store / STAGING)
            (store / STAGING).mkdir(mode=0o700)
            if makes_venv:
                note_creation(store, journal)
                # An environment that was deleted from this folder may have left its undo.
                remove(store / UNDO)
            require_followable(store, journal)
            change.enter(journal.phase)
        except (OSError, Blocked):
            # Without a journal, no later run would know of these folders.
            drop_leftovers(store)
            raise
        flush(store)
    return change


class Change:
    """A change of an environment that is in progress.

    The journal records every move, so that the change can be completed or rolled back.
    """

    def __init__(self, store: Path, journal: Journal) -> None:
        self.store = store
        self.journal = journal

    @property
    def kept_paths(self) -> dict[str, str]:
        """Maps each file to move aside to the path at which the store keeps it: the files are
        numbered in the order of the journal."""
        paths = paths_in(self.store, self.journal.moves)
        return {path: str(self.kept_folder / f"{number:05d}") for number, path in enumerate(paths)}

    @property
    def kept_folder(self) -> Path:
        """The folder in the store with the files that were moved aside."""
        return self.store / self.journal.former

    @property
    def made(self) -> set[str]:
        """The paths of the new files that did not exist before."""
        return set(paths_in(self.store, self.journal.made))

    def enter(self, phase: Phase, **more: Any) -> None:
        """Record in the journal that a phase begins, and new values for its other fields."""
        journal = replace(self.journal, phase=phase, **more)
        # Without new values, the paths are the same. There may be thousands to check.
        if more:
            require_followable(self.store, journal)
        self.journal = journal
        write_journal(self.store, self.journal)

    def exchange(
        self, job: InstallJob, layout: Layout, places: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        """Move the old files aside and the new ones into place, and flush everything to disk.

        `places` maps each unpacked file to its place in the environment. `after` maps the
        distributions to which the new files belong to their versions.
        """
        flush(self.store)
        self._record_moves(layout, frozenset(places.values()), after)
        job.talk("Installing ...")
        kept_paths = self.kept_paths
        for path, kept_path in kept_paths.items():
            os.rename(path, kept_path)
        # A metadata folder without its files would still look like an installed package.
        remove_empty(path for path in kept_paths if f"-info{os.sep}" in path)
        flush(self.store)
        self.enter("installing")
        for source, place in renames(places):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.rename(source, place)
        flush(self.store)
        self.enter("verifying")

    def _record_moves(
        self, layout: Layout, new_files: frozenset[str], after: Mapping[str, str]
    ) -> None:
        """Record in the journal which files will be moved aside or created when the distributions
        in `after` are replaced.

        A file that would be overwritten is moved aside too, even if it belongs to no replaced
        package. Raises Blocked if a file is outside the environment, or if there is a folder in its
        place.
        """
        replaced, old_files = files_of_all(after, layout)
        folder = next(filter(is_folder, new_files), None)
        if folder is not None:
            raise Blocked(
                f"{folder} is a folder, but a package has a file with this name",
                hint="nothing was changed; move it away, then run this again",
            )
        moves = {
            path for path in old_files | new_files if os.path.lexists(path) and not is_folder(path)
        }
        moves |= bytecode_of(moves)
        companions = family_of(versions(distributions(layout)))
        self.enter(
            "moving",
            moves=tuple(text_of(path, layout.prefix) for path in sorted(moves)),
            made=tuple(text_of(path, layout.prefix) for path in sorted(new_files - moves)),
            before=versions(replaced),
            after=dict(after),
            # An undo leaves alone the companions that were already installed and do not change.
            beside={name: companions[name] for name in companions if name not in after},
        )

    def keep(self) -> None:
        """Make the new state final. The old files are kept for one undo.

        An installation that does not change torch does not delete an older torch that is kept for
        an undo.
        """
        store = self.store
        flush(store)
        self.enter("keeping")
        try:
            undo = read_journal(store, UNDO)
        except (BadInput, Blocked):
            # An unreadable undo cannot restore anything, so it may be replaced.
            undo = None
        if "torch" in self.journal.after or undo is None or "torch" not in undo.after:
            kept = status_of_files(self.kept_folder)
            write_journal(store, replace(self.journal, kept=kept), UNDO)
        remove_empty(self.kept_paths)
        self._forget()

    def put_back(self) -> None:
        """Restore the previous state: delete the new files, and move the old ones back.

        It can be run again after it was stopped at any point: a file in the store was moved and is
        brought back, while any other file was never moved or is already back.
        """
        # If the change created the environment itself, nothing in it is older.
        if self.journal.venv:
            for name in VENV_ENTRIES:
                remove(self.store.parent / name)
        stays = set(paths_in(self.store, self.journal.stays))
        kept_paths = {path: kept for path, kept in self.kept_paths.items() if path not in stays}
        new_files = self.made - stays
        # Python may have written bytecode for the old and the new modules in the meantime.
        new_files |= bytecode_of(new_files | kept_paths.keys()) - kept_paths.keys() - stays
        for path in new_files:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
        for path, kept_path in kept_paths.items():
            if os.path.lexists(kept_path):
                # The new release may have a folder at the path of the old file.
                if is_folder(path):
                    remove_empty(new for new in new_files if new.startswith(f"{path}{os.sep}"))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.replace(kept_path, path)
        remove_empty(new_files)
        # After `--undo`, nothing is left that could be undone.
        if self.journal.undoes:
            (self.store / UNDO).unlink(missing_ok=True)
        self._forget()

    def restore(self, job: InstallJob) -> None:
        """Restore the old state. Ctrl-C takes effect only after that."""
        if self.journal.phase != "staging":
            job.talk("Restoring the previous state ...")
        hint = "fix that, then run `gpusetup install` again; nothing is lost until then"
        with uninterrupted(), blocked_by_files("Cannot restore the previous state", hint):
            self.put_back()

    @contextmanager
    def restoring_on_failure(self, job: InstallJob) -> Iterator[None]:
        """A context manager that restores the previous state if its block fails."""
        try:
            yield
        except BaseException as problem:
            # In `staging`, only the store is written.
            had_changed = self.journal.phase != "staging"
            self.restore(job)
            if isinstance(problem, OSError):
                hint = "the previous state was restored" if had_changed else "nothing was changed"
                raise blocked_by(problem, failure="", hint=hint) from problem
            raise

    def _forget(self) -> None:
        """End a change: delete the journal, then the remaining files."""
        # What the change wrote must be on the disk before its journal goes, and the journal must
        # have gone before the files with which it would be undone.
        flush(self.store)
        (self.store / JOURNAL).unlink(missing_ok=True)
        flush(self.store)
        forget_creation(self.journal)
        drop_leftovers(self.store)


def renames(places: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each path to rename, with its new path; `places` maps each unpacked file to its place.

    A package's folder is renamed as a whole if nothing is in its place: torch has 15,000 files in
    1,100 folders, and to make and remove each folder takes longer than uv needs to unpack them.
    """
    # Files outside a package's folder, such as scripts, are under "".
    files_by_folder: dict[str, list[str]] = {}
    for source in places:
        package_folder = PACKAGE_FOLDER.match(source)
        files_by_folder.setdefault(package_folder[0] if package_folder else "", []).append(source)
    for folder, sources in files_by_folder.items():
        # The folder's own place: the place of a file without the path below the folder.
        place = places[sources[0]].removesuffix(sources[0][len(folder) :])
        keeps_paths = all(places[source] == place + source[len(folder) :] for source in sources)
        # An empty folder would be moved along, but never be removed again.
        has_empty = any(not (folders or files) for _, folders, files in os.walk(folder))
        if folder and keeps_paths and not has_empty and not os.path.lexists(place):
            yield folder, place
        else:
            yield from ((source, places[source]) for source in sources)


PACKAGE_FOLDER = re.compile(
    rf".*?[/\\](?:{'|'.join(LIBRARIES)})[/\\][^/\\]+(?=[/\\])",
)
"""The folder of a package, directly below the library folder."""


def bytecode_of(paths: Iterable[str]) -> set[str]:
    """The existing bytecode files for these sources: `__pycache__/x.cpython-311.pyc` for `x.py`."""
    sources = {os.path.splitext(path)[0] for path in paths if path.endswith(".py")}
    bytecode: set[str] = set()
    for folder in {os.path.dirname(source) for source in sources}:
        cache = os.path.join(folder, "__pycache__")
        if not is_folder(cache):
            continue
        for name in os.listdir(cache):
            module, _, _ = name.partition(".")
            if os.path.join(folder, module) in sources:
                bytecode.add(os.path.join(cache, name))
    return bytecode


def remove_empty(files: Iterable[str]) -> None:
    """Remove the folders of these files and their parents, up to the first that is not empty, or
    that is a library folder. The store keeps the environment's own folder from being empty."""
    # Inner folders come before outer ones.
    for folder in sorted({os.path.dirname(path) for path in files}, reverse=True):
        # `rmdir` refuses a folder that is not empty, which ends the way up.
        with suppress(OSError):
            # Keep the library folder even if it is empty, because an environment needs it.
            while os.path.basename(folder) not in LIBRARIES:
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def status_of_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Maps each entry's name to its size in bytes and its modification time in whole seconds."""
    files: dict[str, tuple[int, int]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            files[entry.name] = (status.st_size, int(status.st_mtime))
    return files


def drop_leftovers(store: Path) -> None:
    """Delete everything from the store that `--undo` does not need; no change may be unfinished. If
    the store is then empty, delete it too."""
    undo = read_journal(store, UNDO)
    for folder in store.glob("former*"):
        is_kept = undo is not None and folder.name == undo.former
        if not is_kept:
            remove(folder)
    remove(store / STAGING)
    # `write_safely` leaves such a file if it is killed.
    for unfinished_file in store.glob("*.new"):
        remove(unfinished_file)
    with suppress(OSError):
        store.rmdir()


# --- an interrupted change ------------------------------------------------------------------------


def target_folder(python: str | None, venv: str | None) -> Path:
    """The folder of the environment that `--python` or `--venv` names, or of the active one. A
    named one needs no interpreter. Raises Blocked for a path that can be no environment."""
    if venv:
        folder = Path(venv)
        hint = "nothing was changed; choose another folder: `--venv DIR`"
        with blocked_by_files(f"Cannot use {venv} as an environment", hint):
            try:
                folder.stat()
            except FileNotFoundError:
                # The path is free for a new folder, unless it is a broken link.
                if folder.is_symlink():
                    raise
        return folder.absolute()
    if python:
        named = Path(python).absolute()
        # A run that was killed may have left an environment without an interpreter. The user may
        # name its folder, or the interpreter that was in its `bin` or `Scripts`.
        for folder in (named, named.parent.parent):
            if (folder / STORE).is_dir():
                return folder
    return Path(choose_target(System(), python).prefix)


def recover_unfinished(
    folder: Path, talk: Callable[[str], None], *, dry_run: bool = False
) -> Journal | None:
    """Finish or roll back an interrupted change and return its journal; None if there is none. In
    a dry run, raise Blocked instead, because a plan cannot be made from a half-finished state."""
    store = folder / STORE
    journal = read_journal(store)
    half_made = journal is not None and journal.venv and journal.phase != "keeping"
    problem, hint = interrupted(str(folder), System().family, half_made=half_made)
    if dry_run:
        if journal:
            raise Blocked(problem, hint=hint)
        return None
    # These remain if a run was killed after it had deleted its journal.
    leftovers = (store / STAGING, store / "installer")
    if journal is None and not any(path.exists() for path in leftovers):
        return None
    # Take the lock first, because another run may still be active and need these folders.
    with locked(store, talk):
        journal = read_journal(store)
        if journal is None:
            drop_leftovers(store)
            return None
        talk(f"{problem}; recovering first ...")
        change = Change(store, journal)
        hint = "fix that, then run this again; nothing is lost"
        with blocked_by_files("Cannot finish the interrupted change", hint):
            # A state that was about to be kept is completed, any other one is reverted.
            if journal.phase == "keeping":
                change.keep()
            else:
                change.put_back()
    # Of a new environment that was reverted, only the folder is left.
    if journal.venv and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    talk(f"{folder} is in its {'new' if journal.phase == 'keeping' else 'previous'} state again.")
    return journal


TWICE = "fix that, then run `gpusetup install --undo` again; nothing is lost until then"
UNCHANGED = "nothing was changed; `gpusetup install --torch VERSION` installs another"


def undo(talk: Callable[[str], None], layout: Layout) -> None:
    """Restore the packages that the last installation replaced.

    It applies the installation's own journal in reverse. If it is killed, or cannot write a file,
    the next run completes it.
    """
    store = Path(layout.prefix, STORE)
    with interruptible(), locked(store, talk):
        change = change_to_undo(store, layout)
        talk("Restoring the previous state ...")
        with uninterrupted(), blocked_by_files("Cannot restore the previous state", TWICE):
            # An undo keeps the environment, even one that the installation created.
            change.enter("moving", undoes=True, venv=False)
            change.put_back()


def change_to_undo(store: Path, layout: Layout) -> Change:
    """The change that an undo would make, with a journal that lists which files stay.

    Raises Blocked if there is nothing to undo, if another program has changed torch since then, or
    if the kept files have changed.
    """
    undo = read_journal(store, UNDO)
    if undo is None:
        raise Blocked(
            f"There is nothing to undo in {layout.prefix}",
            hint="gpusetup can undo only the last installation. If conda made the change, "
            "`conda list --revisions` shows the revisions, and `conda install --revision N` "
            "returns to revision N",
        )
    installed = versions(distributions(layout))
    changed = {name for name, version in undo.after.items() if installed.get(name) != version}
    # An undo of torch only requires that torch and its companions are unchanged: another package
    # that changed since stays as it is. Without torch, none may have changed, because the undo is
    # then about these packages alone.
    decisive = changed & {*FAMILY} if "torch" in undo.after else changed
    if decisive:
        states = (f"{name} is {installed.get(name) or 'gone'}" for name in sorted(decisive))
        raise Blocked(
            f"{layout.prefix} was changed by another program since: {', '.join(states)}",
            hint=UNCHANGED,
        )
    change = Change(store, undo)
    _require_kept_as_it_was(change)
    folder = next(filter(is_folder, change.made), None)
    if folder is not None:
        raise Blocked(
            f"{folder} is now a folder, but the undo would have to remove a file there",
            hint=UNCHANGED,
        )
    return Change(store, _without_later_packages(change, changed, layout))


def _require_kept_as_it_was(change: Change) -> None:
    """Raise Blocked if a file kept for the undo is missing, new, or has another size or time."""
    noted = change.journal.kept
    # If the folder is gone, each of its files is.
    present = status_of_files(change.kept_folder) if change.kept_folder.is_dir() else {}
    for name in sorted(present.keys() | noted.keys()):
        if present.get(name) != noted.get(name):
            file = f"{change.kept_folder / name} {'was changed' if name in present else 'is gone'}"
            raise Blocked(f"The files kept for the undo have changed: {file}", hint=UNCHANGED)


# --- files of packages that were installed later --------------------------------------------------


def _without_later_packages(change: Change, changed: set[str], layout: Layout) -> Journal:
    """The undo's journal, changed so that it leaves files alone whose packages were installed or
    updated later; `changed` names those that have another version than the installation gave them.

    A companion that was installed later for the torch that is removed (`install torchvision`) is
    removed too.
    """
    undo, packages = change.journal, distributions(layout)
    installed = versions(packages)
    # The others were removed since then.
    updated = changed & installed.keys()
    later_companions: set[str] = set()
    if "torch" in undo.after:
        later_companions = {*family_of(installed)} - undo.after.keys() - undo.beside.keys()
    # The files of other packages that were updated or installed later stay.
    stays = _previous_files(change, updated)
    kept_since = (change.store / UNDO).stat().st_mtime
    for package in packages:
        is_undone = package.name in undo.after or package.name in later_companions
        # A package without a RECORD counts as older, because it lists no files that could stay.
        installed_at = 0.0
        with suppress(OSError):
            installed_at = os.stat(os.path.join(package.info, "RECORD")).st_mtime
        if package.name in updated or (not is_undone and installed_at > kept_since):
            stays |= files_listed(package, layout)
    # Only those count that the undo would otherwise touch.
    touched = change.made | change.kept_paths.keys()
    stays = (stays | bytecode_of(stays)) & (touched | bytecode_of(touched))
    removed_too = files_of_all(later_companions, layout)[1] - stays - touched
    # The packages that the undo changes, in their versions of now.
    after = {name: version for name, version in undo.after.items() if name not in changed}
    after |= {name: installed[name] for name in installed if name in later_companions}
    prefix = str(change.store.parent)
    return replace(
        undo,
        made=(*undo.made, *(text_of(path, prefix) for path in sorted(removed_too))),
        stays=tuple(text_of(path, prefix) for path in sorted(stays)),
        before={name: version for name, version in undo.before.items() if name not in updated},
        after=after,
    )


def _previous_files(change: Change, updated: set[str]) -> set[str]:
    """The places of kept files whose packages were updated since then. If they were restored, they
    would be mixed with those of the newer release."""
    files: set[str] = set()
    for path, kept_path in change.kept_paths.items():
        folder, name = os.path.split(path)
        info = INFO.fullmatch(os.path.basename(folder))
        # Only a metadata folder shows whose files these are. Its RECORD lists the others.
        if info is None or canonicalize_name(info[1]) not in updated:
            continue
        files.add(path)
        if name == "RECORD":
            library = os.path.dirname(folder)
            for row in record_rows(kept_path):
                files.add(os.path.normpath(os.path.join(library, row[0])))
    return files
