"""Our cache of wheels: which it holds, checked when they came, and how long they stay.

A wheel gets its name there once it is complete and its hash is right; a hidden note beside it says
so. What nobody used for a month goes after the next installation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gpusetup.errors import Blocked, Unreached
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.file_url import local_path
from gpusetup.install.fetching.ranged import UNREADABLE
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.switching.files import open_new, read_json_object
from gpusetup.install.target.layout import content_of
from gpusetup.system.refused import blocked_by_files

CHUNK = 1 << 20


def cache_problem(cache: Path) -> str | None:
    """What keeps our cache from being ours; None where it is, and nobody else may write to it from
    now on. Others could put links there, and wheels."""
    if os.name != "posix":
        return None
    for folder in (cache, cache.parent):
        try:
            found = folder.stat()
        except FileNotFoundError:
            continue
        others = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if found.st_uid != os.geteuid() and (folder == cache or others):
            return f"{folder} belongs to another user (number {found.st_uid})"
        if others:
            folder.chmod(stat.S_IMODE(found.st_mode) & ~0o022)
    return None


def write_anew(path: Path, text: str) -> None:
    """Write a file in place of what is there; a link that is there goes, it is not followed."""
    path.unlink(missing_ok=True)
    with open_new(path) as file:
        file.write(text)


def blocked(url: str, cause: str) -> Blocked:
    """What stops the job: the URL, the cause, and what to try."""
    host = urlsplit(url).hostname
    if host is None or url.startswith("file:"):
        return Blocked(
            f"{local_path(url)}: {cause}",
            hint="nothing was changed; fill the folder again: `gpusetup install --download DIR`",
        )
    return Unreached(
        f"{without_credentials(url)}: {cause}",
        hint=f"nothing was changed; try again later, check the way to {host} "
        "(proxy, certificates), or name a mirror: `--index-root URL`",
    )


def check(wheel: Wheel, path: Path, digest: str, *, delete: bool = True) -> None:
    """Refuse what is not the wheel that was asked for, and delete what we fetched ourselves."""
    problem = _problem(wheel, path, digest)
    if problem:
        if delete:
            path.unlink(missing_ok=True)
        raise blocked(wheel.url, problem)


def check_here(wheel: Wheel, path: Path) -> None:
    """Refuse a wheel of somebody's folder that is not what its manifest says."""
    check(wheel, path, digest_of(path) if wheel.sha256 else "", delete=False)


def _problem(wheel: Wheel, path: Path, digest: str) -> str | None:
    if wheel.sha256 and digest != wheel.sha256.lower():
        return f"wrong hash: expected sha256 {wheel.sha256.lower()}, found sha256 {digest}"
    try:
        names = content_of(path).names
    except UNREADABLE:
        return "what came is no wheel" + _looks_like(path)
    if any(_leads_out(name) for name in names):
        return "the wheel holds a path that leads out of the environment"
    return None


def _leads_out(name: str) -> bool:
    """Whether a path of an archive leaves the folder it is unpacked in.

    >>> _leads_out("a/../../b"), _leads_out("/etc/x"), _leads_out("C:\\\\x"), _leads_out("a..b/c")
    (True, True, True, False)
    """
    if name.startswith(("/", "\\")) or ":" in name[:3]:
        return True
    return ".." in name and ".." in name.replace("\\", "/").split("/")


def _looks_like(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(256).lstrip().lower()
    return " but a web page" if start.startswith((b"<!doctype", b"<html", b"<head")) else ""


def is_here(wheel: Wheel, path: Path) -> bool:
    """Whether a wheel is named as a file of the wheelhouse itself."""
    return wheel.url.startswith("file:") and local_path(wheel.url) == path.absolute()


def is_kept(wheel: Wheel, path: Path) -> bool:
    """Whether the cache holds this very wheel, checked when it came and unchanged since."""
    if is_here(wheel, path):
        return True
    note = read_json_object(_note(path)) or {}
    try:
        found = path.stat()
    except OSError:
        return False
    if (note.get("size"), note.get("mtime_ns")) != (found.st_size, found.st_mtime_ns):
        return False
    if wheel.sha256:
        return bool(note.get("sha256") == wheel.sha256.lower())
    return bool(note.get("url") == without_credentials(wheel.url))


def is_whole(wheel: Wheel, path: Path) -> bool:
    """Whether the bytes of a kept wheel are those that were checked when it came."""
    if is_here(wheel, path):
        return True
    noted = (read_json_object(_note(path)) or {}).get("sha256")
    try:
        return digest_of(path, again=True) == (wheel.sha256.lower() if wheel.sha256 else noted)
    except OSError:
        return False


def note_kept(wheel: Wheel, path: Path, digest: str) -> None:
    found = path.stat()
    note = {
        "sha256": digest,
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "url": without_credentials(wheel.url),
    }
    write_anew(_note(path), json.dumps(note))
    _mark(path.with_name(f"{path.name}.part")).unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.json")


def touch_note(path: Path) -> None:
    """Note that a wheel was used today; a folder that cannot be written is no error."""
    with contextlib.suppress(OSError):
        os.utime(_note(path))


UNUSED_DAYS = 30
WORK_PREFIX = ".gpusetup-"
"""How folders in it are called that are needed for a while."""


def keep_mark(part: Path, headers: Mapping[str, str]) -> None:
    """Note which version of a file a part is of, so that another one is not taken up with it."""
    etag = headers.get("ETag", "")
    mark = headers.get("Last-Modified", "") if etag.startswith("W/") or not etag else etag
    write_anew(_mark(part), mark)


def kept_mark(part: Path) -> str | None:
    try:
        return _mark(part).read_text(encoding="utf-8") or None
    except (OSError, ValueError):
        return None


def _mark(part: Path) -> Path:
    return part.with_name(f".{part.name}.mark")


def drop_unused(cache: Path, now: float, days: float = UNUSED_DAYS) -> tuple[str, ...]:
    """Remove the wheels of our cache that nobody used for so long, parts as well."""
    dropped = []
    for path in (*cache.glob("*.whl"), *cache.glob("*.part")):
        mark = _note(path) if _note(path).exists() else path
        with contextlib.suppress(OSError):
            if now - mark.stat().st_mtime > days * 86400:
                path.unlink()
                for left in (_note(path), _mark(path)):
                    left.unlink(missing_ok=True)
                dropped.append(path.name)
    for folder in cache.glob(f"{WORK_PREFIX}*"):
        with contextlib.suppress(OSError):
            if now - folder.stat().st_mtime > days * 86400:
                shutil.rmtree(folder)
    return tuple(dropped)


def copy_here(source: Path, part: Path) -> None:
    with blocked_by_files(f"{source} cannot be copied", "nothing was changed"):
        part.unlink(missing_ok=True)
        shutil.copyfile(source, part)


_DIGESTS: dict[tuple[int, int, int, int], str] = {}


def digest_of(path: Path, *, again: bool = False) -> str:
    """The sha256 of a file, computed once as long as the file seems to stay as it is."""
    found = path.stat()
    key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    if again or key not in _DIGESTS:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        _DIGESTS[key] = digest.hexdigest()
    return _DIGESTS[key]


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
