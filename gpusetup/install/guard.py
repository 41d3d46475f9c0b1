"""The guard of an environment: a constraints file of torch and what stands on it, and what makes
installers read it: pip's own setting, conda's variables, and the `uv.toml` beside a `.venv`. What
was there before is kept in the environment.

A constraint only forbids: with it, an installer that would take another torch fails instead.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.version import InvalidVersion, Version

from gpusetup.catalog.companion_table import companion_table, takes_torch
from gpusetup.errors import BadInput, Blocked, Unsatisfiable
from gpusetup.install.settings.conda_pinned import pinned_specs, with_pins
from gpusetup.install.settings.conda_state import with_variable
from gpusetup.install.settings.pip_guard import with_constraint
from gpusetup.install.settings.uv_config import is_guard
from gpusetup.install.settings.uv_guard import (
    FILE,
    UNASKED,
    is_a_place,
    settings_above,
    uv_toml,
)
from gpusetup.install.switching.files import no_link, read_json_object
from gpusetup.model.frozen import Frozen
from gpusetup.system.refused import blocked_by_files, refused

CONSTRAINTS = "gpusetup-constraints.txt"
RECORD = "gpusetup-constraints.undo.json"
PIP = "pip.ini" if sys.platform == "win32" else "pip.conf"
PINNED = "conda-meta/pinned"
STATE = "conda-meta/state"
UV_TOML = f"../{FILE}"
"""Beside a `.venv`; the guard makes it and takes it away, and changes none that is there."""
OURS = (CONSTRAINTS, PIP, PINNED, STATE, UV_TOML)
"""What the guard may put back, from the environment's folder on."""
SCHEMA = "gpusetup.guard-undo/1"
MOST_BYTES = 1 << 18
"""Of a file that is changed."""
MOST_OF_RECORD = 1 << 22
"""Bytes of a record, which holds several such files."""


class Change(Frozen):
    """One file of the environment: what it holds, and what it would hold."""

    path: Path
    before: bytes | None
    after: bytes
    mode: int | None = None


def guarded(installed: Mapping[str, str]) -> dict[str, str]:
    """Torch and the companions that are installed, with their exact versions; torch first.

    `Unsatisfiable` without a torch. A version that is none cannot be held, and is left out.

    >>> guarded({"numpy": "2.0", "torchvision": "0.28.0+cpu", "torch": "2.13.0+cpu"})
    {'torch': '2.13.0+cpu', 'torchvision': '0.28.0+cpu'}
    """
    table = companion_table()
    names = (name for name in sorted(installed) if name == "torch" or table.project(name))
    found = {name: version for name in names if (version := _version(installed[name]))}
    if "torch" not in found:
        raise Unsatisfiable(
            "There is no torch in this environment that could be guarded",
            hint="install it first: `gpusetup install`",
        )
    return {"torch": found.pop("torch"), **found}


def strangers(pins: Mapping[str, str]) -> tuple[str, ...]:
    """The guarded packages that are known not to go with the guarded torch.

    >>> strangers({"torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu", "torchaudio": "2.9.0"})
    ('torchaudio',)
    """
    table, torch = companion_table(), pins["torch"].partition("+")[0]
    known = ((table.project(name), version) for name, version in pins.items() if name != "torch")
    return tuple(
        project.name
        for project, version in known
        if project is not None and takes_torch(project, version, torch) is False
    )


def _version(text: str) -> str | None:
    try:
        return str(Version(text.replace("_", ".")))
    except InvalidVersion:
        return None


def constraints_text(pins: Mapping[str, str], when: str) -> str:
    head = (
        f"# gpusetup guard, {when}: these versions were installed; an installer that reads this\n"
        "# file fails instead of replacing them. `gpusetup guard --undo` takes it away.\n"
    )
    return head + "".join(f"{name}=={version}\n" for name, version in pins.items())


def named_in_pip(path: Path) -> str:
    """How pip's and uv's lists, which are split at spaces, name a file.

    >>> named_in_pip(Path("/a/b.txt")) if sys.platform == "linux" else "/a/b.txt"
    '/a/b.txt'
    """
    return path.as_uri() if len(str(path).split()) > 1 else str(path)


def changes(prefix: Path, pins: Mapping[str, str], former: str, when: str) -> tuple[Change, ...]:
    """The files that differ from what they should be. `former`: the constraint that pip reads
    now, from whichever file counts most; it stays in force beside ours."""
    held, mode = read_bounded(prefix / CONSTRAINTS)
    wanted = constraints_text(pins, when).encode()
    same = held is not None and _pins_of(held) == _pins_of(wanted)
    found: tuple[Change, ...] = (
        () if same else (Change(path=prefix / CONSTRAINTS, before=held, after=wanted, mode=mode),)
    )
    before, mode = read_bounded(prefix / PIP)
    after = with_constraint(before or b"", named_in_pip(prefix / CONSTRAINTS), former, prefix / PIP)
    if after != before:
        found += (Change(path=prefix / PIP, before=before, after=after, mode=mode),)
    return (*found, *_conda_change(prefix), *_variable(prefix), *_beside(prefix, pins))


def _variable(prefix: Path) -> Iterator[Change]:
    """conda's own variables, which also set uv's."""
    if (prefix / "conda-meta" / "history").is_file():
        state, mode = read_bounded(prefix / STATE)
        after = with_variable(state, named_in_pip(prefix / CONSTRAINTS))
        if after is not None and after != state:
            yield Change(path=prefix / STATE, before=state, after=after, mode=mode)


def settings_beside(prefix: Path) -> Path | None:
    """The file of uv's settings that counts where uv takes this environment unasked; None where
    there is none, or uv never takes it so."""
    return settings_above(prefix.parent) if prefix.name == UNASKED else None


def _beside(prefix: Path, pins: Mapping[str, str]) -> Iterator[Change]:
    """The `uv.toml` beside a `.venv`, where no other settings of uv count."""
    place, wanted = prefix.parent / FILE, uv_toml(pins).encode()
    if prefix.name != UNASKED or not is_a_place(prefix.parent, Path.home()):
        return
    before, mode = read_bounded(place)
    is_ours = before is not None and is_guard(place)
    if settings_beside(prefix) is None or (is_ours and before != wanted):
        yield Change(path=place, before=before, after=wanted, mode=mode)


def _conda_change(prefix: Path) -> tuple[Change, ...]:
    """conda's own list, where conda installed any of torch's family."""
    specs = pinned_specs(prefix / "conda-meta")
    if not specs:
        return ()
    before, mode = read_bounded(prefix / PINNED)
    after = with_pins(before or b"", specs)
    same = after == (before or b"")
    return () if same else (Change(path=prefix / PINNED, before=before, after=after, mode=mode),)


def _pins_of(raw: bytes) -> list[bytes]:
    return [line for line in raw.splitlines() if line and not line.startswith(b"#")]


def read_bounded(path: Path) -> tuple[bytes | None, int | None]:
    """A plain file's bytes and mode; None where it is not there. `Blocked` for anything else."""
    try:
        with open(path, "rb", opener=no_link) as file:
            found = os.fstat(file.fileno())
            raw = file.read(MOST_BYTES + 1) if stat.S_ISREG(found.st_mode) else None
    except FileNotFoundError:
        return None, None
    except OSError as problem:
        said = "a symbolic link" if path.is_symlink() else problem.strerror
        raise Blocked(
            f"{path} cannot be read: {said}",
            hint="nothing was changed; make it a file of its own that you can read",
        ) from problem
    if raw is None or len(raw) > MOST_BYTES:
        said = "no plain file" if raw is None else f"larger than {MOST_BYTES >> 10} KiB"
        raise Blocked(f"{path} is {said}", hint="nothing was changed; see what it is")
    return raw, stat.S_IMODE(found.st_mode)


# --- writing, and taking back --------------------------------------------------------------------


def write(prefix: Path, wanted: tuple[Change, ...]) -> None:
    """Write the files, the record of what was there first. `Blocked` where that is refused."""
    import json

    record = _record(prefix)
    files = {name: dict(row) for name, row in record.items()}
    for change in wanted:
        name = _name_of(change.path, prefix)
        before = None if name == UV_TOML else change.before
        row = files.setdefault(name, {"before": _packed(before)})
        row["after"] = hashlib.sha256(change.after).hexdigest()
    if not wanted:
        return
    text = json.dumps({"schema": SCHEMA, "files": files}, indent=1) + "\n"
    put(prefix / RECORD, text.encode(), 0o600)
    for change in wanted:
        put(change.path, change.after, change.mode)


def _name_of(path: Path, prefix: Path) -> str:
    return UV_TOML if path.parent == prefix.parent else path.relative_to(prefix).as_posix()


def _packed(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def put(path: Path, raw: bytes, mode: int | None) -> None:
    """Write a file whole or not at all, with the mode it had."""
    from gpusetup.install.switching.durable import sync_folder

    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(new_file(fresh, 0o666 if mode is None else 0o600), "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            fresh.chmod(mode)
        fresh.replace(path)
        sync_folder(path.parent)
    except OSError as problem:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        hint = "run it as the environment's owner; `gpusetup guard --undo` takes back the rest"
        raise refused(problem, f"{path} cannot be written", hint) from problem


def new_file(path: Path, mode: int) -> int:
    """A descriptor of a file that was not there."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)


def undo(prefix: Path) -> tuple[str, ...]:
    """Put back what was there before the first `--write`; the paths that were changed.

    `Blocked`, and nothing changed, where a file is not as the guard left it and our lines cannot
    be told from the others.
    """
    rows = [_former(prefix, name, row) for name, row in _record(prefix).items()]
    for name, before, mode in sorted(rows, key=lambda one: one[0] == CONSTRAINTS):
        _put_back(_place(prefix, name), before, mode)
    if rows:
        _remove(prefix / RECORD)
    return tuple(str(_place(prefix, name)) for name, _before, _mode in rows)


def _place(prefix: Path, name: str) -> Path:
    return prefix.parent / FILE if name == UV_TOML else prefix / name


def _former(
    prefix: Path, name: str, row: Mapping[str, str | None]
) -> tuple[str, bytes | None, int | None]:
    """Name, former bytes and mode of one file that the guard changed."""
    place, before = _place(prefix, name), _unpacked(row, prefix)
    now, mode = read_bounded(place)
    if now == before or hashlib.sha256(now or b"").hexdigest() == row.get("after"):
        return name, before, mode
    if name == UV_TOML and now is None:
        return name, None, mode
    raise Blocked(
        f"{place} was changed after `gpusetup guard --write`",
        hint=f"take what the guard wrote out of it by hand, then delete {prefix / RECORD}",
    )


def _put_back(path: Path, before: bytes | None, mode: int | None) -> None:
    if before is None:
        _remove(path)
    else:
        put(path, before, mode)


def _remove(path: Path) -> None:
    with blocked_by_files(f"{path} cannot be removed", "`gpusetup guard --undo` again goes on"):
        path.unlink(missing_ok=True)


def _unpacked(row: Mapping[str, str | None], prefix: Path) -> bytes | None:
    before = row.get("before")
    try:
        return None if before is None else base64.b64decode(before, validate=True)
    except ValueError:
        raise _no_record(prefix) from None


def _record(prefix: Path) -> dict[str, dict[str, str | None]]:
    """What was kept, by file name; anybody may have written it, so only our names count."""
    path = prefix / RECORD
    if not os.path.lexists(path):
        return {}
    found = read_json_object(path, MOST_OF_RECORD) or {}
    files = found.get("files")
    if found.get("schema") != SCHEMA or not isinstance(files, dict):
        raise _no_record(prefix)
    for name, row in files.items():
        if name not in OURS or not isinstance(row, dict):
            raise _no_record(prefix)
        if not all(isinstance(value, (str, type(None))) for value in row.values()):
            raise _no_record(prefix)
        if name == UV_TOML and _unpacked(row, prefix) is not None:
            raise _no_record(prefix)
        _unpacked(row, prefix)
    return files


def _no_record(prefix: Path) -> BadInput:
    return BadInput(
        f"{prefix / RECORD} is no record of `gpusetup guard`",
        hint=f"see what it is; without it, take {CONSTRAINTS} out of {prefix / PIP} by hand",
    )
