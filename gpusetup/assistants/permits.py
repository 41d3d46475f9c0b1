"""What an assistant may install: one shown plan, once, within minutes, by a token from a person.

The server writes a request for each plan that it showed. `gpusetup mcp token`, which runs on a
terminal only, shows the person that plan and, agreed, gives a token; of it only the hash is kept.
The token is taken with the first use, whatever becomes of it, and holds for this plan alone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpusetup.errors import BadInput, Blocked, Unsatisfiable
from gpusetup.model.codec import from_json, to_json
from gpusetup.model.frozen import Frozen, replace

WAITS_SECONDS = 1800.0
"""How long a shown plan may be agreed to."""
HOLDS_SECONDS = 300.0
"""How long a token may be used."""
MOST_BYTES = 1 << 18
NO = "ask the person to run `gpusetup mcp token` in a terminal, and to give you what it prints"


class Permit(Frozen):
    """A plan that was shown; with `token`, one that a person agreed to."""

    words: tuple[str, ...]
    """Of `gpusetup install`, without `--yes`."""
    plan_id: str
    screen: str
    """The plan as a person reads it."""
    until: float
    """Seconds since 1970."""
    token: str | None = None
    """The token's SHA-256."""


def folder() -> Path:
    """The folder of this user alone. Raises Blocked where it is somebody else's."""
    from platformdirs import user_state_path

    path = user_state_path("gpusetup", appauthor=False) / "assistants"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_ours = not path.is_symlink() and _mine(path)
    except OSError as problem:
        raise Blocked(f"Cannot make {path}: {problem.strerror}") from problem
    if not is_ours:
        raise Blocked(
            f"{path} is open to others", hint=f"only you may write there: `chmod 700 {path}`"
        )
    return path


def _mine(path: Path) -> bool:
    if os.name != "posix":
        return True
    stat = path.stat()
    return stat.st_uid == os.getuid() and not stat.st_mode & 0o077


def ask_for(permit: Permit) -> None:
    """Write the request of a plan that was shown; those that waited too long go."""
    for path, kept in _all():
        if kept is None or kept.until < time.time():
            path.unlink(missing_ok=True)
    _write(folder() / f"{permit.plan_id}.json", permit)


def waiting() -> tuple[Permit, ...]:
    """The plans that may be agreed to, the newest first."""
    now = time.time()
    found = [one for _, one in _all() if one is not None and one.until > now and not one.token]
    return tuple(sorted(found, key=lambda one: one.until, reverse=True))


def agree(permit: Permit) -> str:
    """A token for the plan. Raises Unsatisfiable for one that waited too long."""
    if permit.until < time.time():
        raise Unsatisfiable(
            "This plan waited too long: it may be agreed to for half an hour",
            hint="let the assistant call its install tool again",
        )
    token = secrets.token_hex(8)
    until = time.time() + HOLDS_SECONDS
    _write(_path(permit), replace(permit, token=_hash(token), until=until))
    return token


def take(token: str, words: tuple[str, ...]) -> Permit:
    """The permit of a token, which is gone from then on. Raises Unsatisfiable."""
    given = _hash(token.strip())
    held = [one for _, one in _all() if one and one.token]
    for permit in held:
        if hmac.compare_digest(permit.token or "", given):
            return _taken(permit, words)
    raise Unsatisfiable("This token is unknown, or was used already", hint=NO)


def _taken(permit: Permit, words: tuple[str, ...]) -> Permit:
    try:
        _path(permit).unlink()
    except FileNotFoundError:
        raise Unsatisfiable("This token was used already", hint=NO) from None
    if permit.until < time.time():
        raise Unsatisfiable("This token is too old: it holds for five minutes", hint=NO)
    if permit.words != words:
        raise Unsatisfiable("This token is for another installation", hint=NO)
    return permit


def _path(permit: Permit) -> Path:
    return folder() / f"{permit.plan_id}.json"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _all() -> Iterator[tuple[Path, Permit | None]]:
    """Every file with the permit in it; None for one that is none."""
    for path in sorted(folder().glob("*.json")):
        yield path, _read(path)


def _read(path: Path) -> Permit | None:
    try:
        if path.is_symlink() or path.stat().st_size > MOST_BYTES:
            return None
        permit = from_json(path.read_bytes(), Permit, what=str(path))
    except (OSError, BadInput):
        return None
    return permit if f"{permit.plan_id}.json" == path.name else None


def _write(path: Path, permit: Permit) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(to_json(permit))
    Path(name).replace(path)
