"""What the live index listed when it was last asked (`resolve --refresh`), kept for `install`.

The file is in the user's cache: it is read only if it is the user's own, nobody else may write it,
and it is small. It can only add or take away builds of torch.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Literal

from gpusetup.catalog.builds import INDEX_ROOT, Catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import GpuSetupError
from gpusetup.install.credentials import without_credentials
from gpusetup.install.refresh.live_catalog import ListedBuilds, Seen, merged
from gpusetup.install.refresh.saved_file import saved_file
from gpusetup.install.settings.index_root import index_root_of
from gpusetup.install.switching.files import no_link
from gpusetup.model.codec import from_json, to_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot

SCHEMA: Literal["gpusetup.refreshed/1"] = "gpusetup.refreshed/1"
LIMIT_BYTES = 1 << 20
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Kept(Frozen):
    """What an index listed on a day."""

    schema: Literal["gpusetup.refreshed/1"]
    as_of: str
    root: str
    answered: tuple[str, ...]
    """The backends whose pages were read: of these nothing else is there."""
    rows: tuple[Seen, ...]


def _shown(root: str) -> str:
    return without_credentials(root).rstrip("/")


def keep(asked: ListedBuilds, as_of: str, file: Path | None = None) -> Path | None:
    """Write it; None where the cache cannot be written, which is no error."""
    path = file or saved_file()
    kept = Kept(
        schema=SCHEMA,
        as_of=as_of,
        root=_shown(asked.root),
        answered=asked.answered,
        rows=asked.rows,
    )
    part = path.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(to_json(kept))
        part.replace(path)
        return path
    return None


def with_saved(
    catalog: Catalog, root: str, notify: Callable[[str], None], file: Path | None = None
) -> Catalog:
    """The catalog with what this index listed when it was last asked, where that is newer."""
    path = file or saved_file()
    raw = _read(path, notify)
    if raw is None:
        return catalog
    kept = _understood(raw, path, notify)
    if kept is None:
        return catalog
    if kept.root != _shown(root):
        return catalog
    if kept.as_of < catalog.as_of:
        notify(f"{path} of {kept.as_of} is older than the catalog of {catalog.as_of}: left aside")
        return catalog
    return merged(catalog, kept.rows, frozenset(kept.answered), kept.as_of)


def _understood(raw: bytes, path: Path, notify: Callable[[str], None]) -> Kept | None:
    try:
        kept = from_json(raw, Kept, what="it")
    except GpuSetupError as problem:
        notify(f"{path} is left aside: {_short(problem.message)}")
        return None
    if kept.as_of > date.today().isoformat():
        notify(f"{path} is left aside: its date is {_short(kept.as_of)!r}")
        return None
    return kept


def _read(path: Path, notify: Callable[[str], None]) -> bytes | None:
    """Its bytes; None where there is none, or where it is not the user's own small file."""
    try:
        descriptor = no_link(str(path), os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as problem:
        notify(f"{path} is left aside: {problem.strerror}")
        return None
    if why := _foreign(os.fstat(descriptor)):
        os.close(descriptor)
        notify(f"{path} is left aside: {why}")
        return None
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(LIMIT_BYTES + 1)
    if len(raw) > LIMIT_BYTES:
        notify(f"{path} is left aside: it is longer than {LIMIT_BYTES >> 20} MiB")
        return None
    return raw


def _foreign(status: os.stat_result) -> str | None:
    """Why a file is not the user's own."""
    if not stat.S_ISREG(status.st_mode):
        return "it is no ordinary file"
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others may write it" if status.st_mode & OTHERS_MAY_WRITE else None


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def known_catalog(
    machine: Snapshot, notify: Callable[[str], None] | None, root: str | None
) -> Catalog:
    """The catalog, for this machine with what its index listed when it was last asked."""
    catalog = load_catalog()
    if machine.origin != "live" or notify is None:
        return catalog
    return with_saved(catalog, index_root_of(root, os.environ, INDEX_ROOT), notify)
