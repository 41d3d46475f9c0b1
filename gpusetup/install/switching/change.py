"""Changes an environment in a way that can be undone, by moving each old file aside.

Before anything moves, a journal lists every file that will be removed or created, and each phase is
recorded before it begins. Until the first rename, the environment's own files are untouched, and if
a later step fails, the previous state is restored. Moving a file aside is a rename on the same
filesystem, so it needs no second copy of gigabytes. `recover` needs only the journal to complete or
revert a change that was killed, and it can itself be killed and run again. Whatever a phase relies
on is flushed to disk before that phase is recorded, so this also works after a power cut. A change
creates folders, but it only removes empty ones.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpusetup.errors import BadInput, Blocked
from gpusetup.install.job import (
    InstallJob,
    Plan,
    in_image_build,
    prove,
    run_step,
    torch_stays,
)
from gpusetup.install.switching.files import flush, remove
from gpusetup.install.switching.journal import (
    JOURNAL,
    NEXT_RECEIPT,
    RECEIPT,
    STAGING,
    STORE,
    UNDO,
    Journal,
    Phase,
    forget_making,
    note_making,
    paths_in,
    read_journal,
    require_followable,
    require_inside,
    text_of,
    write_journal,
)
from gpusetup.install.switching.lock import locked
from gpusetup.install.switching.receipt import write_receipt
from gpusetup.install.switching.unpack import unpacked
from gpusetup.install.target import (
    LIBRARIES,
    Layout,
    Target,
    distributions,
    files_of_all,
    layout_of,
    versions,
)
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.system.refusals import READ_ONLY, blocked_by, blocked_by_files
from gpusetup.system.signals import interruptible, uninterrupted
from gpusetup.uv.errors import complaint
from gpusetup.uv.program import uv_environment

VENV_ENTRIES = (
    *("bin", "lib", "lib64", "include", "share", "Scripts", "Lib", "Include", "Library"),
    *("pyvenv.cfg", ".lock", ".gitignore", "CACHEDIR.TAG"),
)
"""The entries that uv, venv and virtualenv create in an environment's folder. If a new environment
is taken back, only these are deleted."""


def install(job: InstallJob, target: Target, plan: Plan, *, verify: bool) -> dict[str, Any] | None:
    """Install the plan: lock, download, unpack, replace, test, then keep the new files or restore
    the old ones (`torch_stays`). Returns verify's result, or None if no test was requested.

    A new environment is created first, and removed again if any step fails.
    """
    venv, layout = target.venv, target.layout
    verdict: dict[str, Any] | None = None
    store = Path(venv or layout.prefix, STORE)
    with interruptible(), locked(store, job.talk):
        job.store = store
        _require_unchanged(target, plan)
        phase: Phase = "making" if venv else "staging"
        journal = Journal(phase=phase, venv=venv is not None, keep=not in_image_build())
        change = begun(store, journal)
        with change.or_back(job):
            if venv:
                layout = _made_environment(job, target, plan)
            change.exchange(job, layout, unpacked(job, plan, layout), plan.after)
            if verify:
                verdict = prove(job, layout.python, plan.device, plan.after.get("torch"))
            if torch_stays(verdict):
                write_receipt(store / NEXT_RECEIPT, plan, job, verdict)
        if torch_stays(verdict):
            change.finish()
        else:
            change.restore(job)
    return verdict


def _made_environment(job: InstallJob, target: Target, plan: Plan) -> Layout:
    """Create the environment of a plan, and return its layout."""
    assert target.venv is not None, "only an environment with a folder is made"
    output = run_step(job, plan.steps[0], uv_environment())
    if not output.ok:
        raise complaint(f"{target.venv} cannot be made", output)
    return replace(layout_of(target.python), prefix=target.venv)


def _require_unchanged(target: Target, plan: Plan) -> None:
    """Raise Blocked if another program has changed the environment since the plan was made, or has
    begun to change it."""
    if target.venv is None:
        is_same = target.installed.items() >= plan.before.items()
    else:
        names = {entry.name for entry in Path(target.venv).iterdir()}
        is_same = names == {STORE}
    has_journal = read_journal(Path(plan.target, STORE)) is not None
    if not is_same or has_journal:
        raise Blocked(
            f"{plan.target} was changed by another program in the meantime",
            hint="nothing was changed; run this again",
        )


def recover(store: Path) -> Journal | None:
    """Complete or roll back a change that was killed, and return its journal; None if nothing was
    unfinished.

    If it was about to be kept, the new state is completed; otherwise the previous one is restored.
    """
    journal = read_journal(store)
    if journal is None:
        return None
    change = Change(store, journal)
    hint = "fix that, then run this again; nothing is lost"
    with blocked_by_files("Cannot finish the interrupted change", hint):
        if journal.phase == "keeping":
            change.keep()
        else:
            change.put_back()
    return journal


def begun(store: Path, journal: Journal) -> Change:
    """Begin a change: write its journal before anything else changes."""
    # Each change gets a folder with a new name, because the folder of an earlier change may be
    # kept.
    change = Change(store, replace(journal, former=f"former-{secrets.token_hex(4)}"))
    with blocked_by_files(f"{store} cannot be written", READ_ONLY):
        try:
            (store / change.journal.former).mkdir(parents=True)
            remove(store / STAGING)
            (store / STAGING).mkdir(mode=0o700)
            if journal.venv:
                note_making(store, change.journal)
                # An environment that was deleted from this folder may have left its receipt.
                remove(store / RECEIPT)
            require_followable(store, change.journal)
            change.enter(journal.phase)
        except (OSError, Blocked):
            # If the journal cannot be written, remove these folders now, because no later run would
            # know of them.
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
    def aside(self) -> dict[str, str]:
        """Maps each file to move aside to the path at which the store keeps it."""
        places: dict[str, str] = {}
        for number, path in enumerate(paths_in(self.store, self.journal.moves)):
            places[path] = str(self.former / f"{number:05d}")
        return places

    @property
    def former(self) -> Path:
        """The folder in the store with the files that were moved aside."""
        return self.store / self.journal.former

    @property
    def made(self) -> set[str]:
        """The paths of the new files that did not exist before."""
        return set(paths_in(self.store, self.journal.made))

    def enter(self, phase: Phase, **more: Any) -> None:
        """Record in the journal that a phase begins, together with these new values of the
        journal."""
        self.journal = replace(self.journal, phase=phase, **more)
        # Check the paths only if they may have changed. A journal can have thousands, so each check
        # takes a while.
        if more:
            require_followable(self.store, self.journal)
        write_journal(self.store, self.journal)

    # --- forwards ---------------------------------------------------------------------------------

    def exchange(
        self, job: InstallJob, layout: Layout, coming: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        """Move the old files aside and the new ones into place, and flush everything to disk.

        `coming` maps each new file to its place. `after` contains the distributions to which the
        new files belong.
        """
        flush(self.store)
        self._list(layout, frozenset(coming.values()), after)
        job.talk("Installing ...")
        aside = self.aside
        for path, kept in aside.items():
            os.rename(path, kept)
        # A metadata folder without its files would still look like an installed package.
        remove_empty(path for path in aside if f"-info{os.sep}" in path)
        flush(self.store)
        self.enter("installing")
        for folder in {os.path.dirname(place) for place in coming.values()}:
            os.makedirs(folder, exist_ok=True)
        for source, place in coming.items():
            os.rename(source, place)
        flush(self.store)
        self.enter("verifying")

    def _list(self, layout: Layout, made: frozenset[str], after: Mapping[str, str]) -> None:
        """Record in the journal which files will be moved aside or created when the distributions
        in `after` are replaced.

        A file that would be overwritten is moved aside too, even if it belongs to no replaced
        package. Raises Blocked if a file is outside the environment, or if there is a folder in its
        place.
        """
        leaving, files = files_of_all({*after, *self.journal.before}, layout)
        for path in made:
            if _is_folder(path):
                raise Blocked(
                    f"{path} is a folder, and a file would come in its place",
                    hint="nothing was changed; move it away, then run this again",
                )
        away = {path for path in files | made if os.path.lexists(path) and not _is_folder(path)}
        away |= bytecode_of(away)
        require_inside(self.store, (*away, *made))
        installed = versions(distributions(layout))
        # Record the companions that were already installed and do not change, because an undo must
        # leave them alone.
        beside = {
            name: installed[name] for name in FAMILY if name in installed and name not in after
        }
        self.enter(
            "moving",
            moves=tuple(text_of(path, layout.prefix) for path in sorted(away)),
            made=tuple(text_of(path, layout.prefix) for path in sorted(made - away)),
            before=versions(leaving),
            after=dict(after),
            beside=beside,
        )

    def keep(self) -> None:
        """Make the new state final. The old files are kept for one undo, or deleted.

        An installation that does not change torch does not delete an older torch that is kept for
        an undo.
        """
        store = self.store
        flush(store)
        self.enter("keeping")
        fresh, receipt = store / NEXT_RECEIPT, store / RECEIPT
        if fresh.exists():
            fresh.replace(receipt)
        changes_torch = "torch" in self.journal.after
        if not self.journal.keep:
            (store / UNDO).unlink(missing_ok=True)
        elif changes_torch or not keeps_torch(store):
            kept = files_in(self.former)
            write_journal(store, replace(self.journal, phase="keeping", kept=kept), UNDO)
        remove_empty(self.aside)
        self._forget()

    def finish(self) -> None:
        """Make the new state final. Ctrl-C takes effect only after that."""
        hint = "fix that, then `gpusetup install` finishes it"
        with uninterrupted(), blocked_by_files("The new state is in place, but not kept", hint):
            self.keep()

    # --- backwards --------------------------------------------------------------------------------

    def put_back(self) -> None:
        """Restore the previous state: delete the new files, and move the old ones back.

        It can be run again after it was stopped at any point: a file in the store was moved and is
        brought back, while any other file was never moved or is already back.
        """
        if self.journal.venv:
            for name in VENV_ENTRIES:
                remove(self.store.parent / name)
        stays = set(paths_in(self.store, self.journal.stays))
        aside = {path: kept for path, kept in self.aside.items() if path not in stays}
        made = self.made - stays
        made |= bytecode_of(made | aside.keys()) - aside.keys() - stays
        for path in made:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
        for path, kept in aside.items():
            if os.path.lexists(kept):
                # The new release may have a folder at the path of the old file.
                if _is_folder(path):
                    remove_empty(new for new in made if new.startswith(f"{path}{os.sep}"))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.replace(kept, path)
        remove_empty(made)
        # An undo removes the notes of the installation that it reverts. A failed installation has
        # not written those yet.
        for name in (UNDO, RECEIPT) if self.journal.undoes else (NEXT_RECEIPT,):
            (self.store / name).unlink(missing_ok=True)
        self._forget()

    def restore(self, job: InstallJob) -> None:
        """Restore the old state. Ctrl-C takes effect only after that."""
        if self.journal.phase != "staging":
            job.talk("Restoring the previous state ...")
        hint = "fix that, then run `gpusetup install` again; nothing is lost until then"
        with uninterrupted(), blocked_by_files("Cannot restore the previous state", hint):
            self.put_back()

    @contextmanager
    def or_back(self, job: InstallJob) -> Iterator[None]:
        """A context manager that restores the previous state if its block fails."""
        try:
            yield
        except BaseException as problem:
            had_changed = self.journal.phase != "staging"
            self.restore(job)
            if isinstance(problem, OSError):
                hint = "the previous state was restored" if had_changed else "nothing was changed"
                raise blocked_by(problem, "", hint) from problem
            raise

    def _forget(self) -> None:
        """End a change: delete the journal, then the remaining files."""
        flush(self.store)
        (self.store / JOURNAL).unlink(missing_ok=True)
        flush(self.store)
        forget_making(self.journal)
        drop_leftovers(self.store)


def _is_folder(path: str) -> bool:
    """Whether a path is a folder, and not a link to one."""
    return os.path.isdir(path) and not os.path.islink(path)


def bytecode_of(paths: Iterable[str]) -> set[str]:
    """The existing bytecode files for these source files, such as `__pycache__/x.cpython-311.pyc`
    for `x.py`."""
    sources = {os.path.splitext(path)[0] for path in paths if path.endswith(".py")}
    bytecode: set[str] = set()
    for folder in {os.path.dirname(source) for source in sources}:
        cache = os.path.join(folder, "__pycache__")
        if not _is_folder(cache):
            continue
        for name in os.listdir(cache):
            module, _, _ = name.partition(".")
            if os.path.join(folder, module) in sources:
                bytecode.add(os.path.join(cache, name))
    return bytecode


def remove_empty(files: Iterable[str]) -> None:
    """Remove the folders of these files and their parents if they are empty; the library folder
    itself stays."""
    folders = {os.path.dirname(path) for path in files}
    # Inner folders come before outer ones.
    for folder in sorted(folders, reverse=True):
        with suppress(OSError):
            # Keep the library folder even if it is empty, because an environment needs it.
            while os.path.basename(folder) not in LIBRARIES:
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def keeps_torch(store: Path) -> bool:
    """Whether the store keeps an older torch for `--undo`; false if the store cannot be read."""
    try:
        undo = read_journal(store, UNDO)
    except (BadInput, Blocked):
        # An unreadable journal cannot restore anything, and will be replaced.
        return False
    return undo is not None and "torch" in undo.after


def files_in(former: Path) -> dict[str, tuple[int, int]]:
    """Maps the name of each kept file or link to its size in bytes and its modification time in
    whole seconds."""
    files: dict[str, tuple[int, int]] = {}
    with os.scandir(former) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            files[entry.name] = (status.st_size, int(status.st_mtime))
    return files


def drop_leftovers(store: Path) -> None:
    """Delete everything from the store that is in no journal. If the store is then empty, delete it
    too."""
    undo = read_journal(store, UNDO)
    for folder in store.glob("former*"):
        is_kept = undo is not None and folder.name == undo.former
        if not is_kept:
            remove(folder)
    remove(store / STAGING)
    for unfinished_file in store.glob("*.new"):
        remove(unfinished_file)
    with suppress(OSError):
        store.rmdir()
