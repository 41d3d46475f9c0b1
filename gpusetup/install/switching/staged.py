"""What uv has unpacked below a folder of its own, compared with the lists of the wheels (RECORD),
file by file, and where each file goes.

uv checks the hash of each wheel as it comes; what lies in its cache may have changed since, on the
disk or by whoever edits a file of an environment that shares it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.utils import canonicalize_name

from gpusetup.errors import ToolFailed
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.target.layout import Layout

CHUNK = 1 << 20
UV_LOCK = ".lock"
"""What uv leaves in a prefix that it has installed into."""
LIBRARIES = ("site-packages", "dist-packages")
Rows = list[list[str]]


class Differs(ToolFailed):
    """What was unpacked is not what the wheels hold."""


def differs(said: str) -> Differs:
    return Differs(said, hint="nothing was changed; run this again")


def compared(root: Path, wheels: Sequence[Wheel], layout: Layout) -> dict[str, str]:
    """Every unpacked file, and where it will be. `Differs` where one is not what a list says."""
    found = frozenset(_files_below(root))
    record = os.path.join(".dist-info", "RECORD")
    lists = {path: _rows(path) for path in found if path.endswith(record)}
    _require_wheels(root, lists, wheels)
    promised: dict[str, set[str]] = {}
    for path, rows in lists.items():
        for row in rows:
            digest = row[1] if len(row) > 1 else ""
            promised.setdefault(_listed(path, row), set()).add(digest)
    if missing := sorted(promised.keys() - found):
        raise differs(f"{_short(missing[0], root)} was not unpacked")
    if strange := sorted(found - promised.keys() - {str(root / UV_LOCK)}):
        raise differs(f"uv wrote what no wheel lists: {_short(strange[0], root)}")
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for path, digest in zip(promised, pool.map(_digest, promised), strict=True):
            if not promised[path] & {"", digest}:
                raise differs(
                    f"The unpacked files differ from the wheel's list: {_short(path, root)}"
                )
    targets = {path: _target(path, root, layout) for path in promised}
    for path, rows in lists.items():
        _write_moved(path, rows, targets)
    return targets


def _files_below(root: Path) -> Iterator[str]:
    """Every file; a link or anything else that is no file is refused."""
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path) or not (os.path.isdir(path) or os.path.isfile(path)):
                raise differs(f"uv wrote what is no file: {_short(path, root)}")
        yield from (os.path.join(folder, name) for name in files)


def _rows(record: str) -> Rows:
    text = os.fsdecode(Path(record).read_bytes()).replace("\0", "\ufffd")
    return [row for row in csv.reader(text.splitlines()) if row]


def _require_wheels(root: Path, lists: Mapping[str, Rows], wheels: Sequence[Wheel]) -> None:
    """There is a list for each wheel, and for nothing else."""
    infos = (os.path.basename(os.path.dirname(path)) for path in lists)
    found = {canonicalize_name(info.partition("-")[0]) for info in infos}
    if odd := found ^ {wheel.name for wheel in wheels}:
        names = ", ".join(sorted(odd))
        raise differs(f"The files unpacked in {root} are not the requested package: {names}")


def _listed(record: str, row: Sequence[str]) -> str:
    library = os.path.dirname(os.path.dirname(record))
    return os.path.normpath(os.path.join(library, row[0]))


def _digest(path: str) -> str:
    """As a RECORD writes it."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return f"sha256={base64.urlsafe_b64encode(digest.digest()).rstrip(b'=').decode()}"


def _target(path: str, root: Path, layout: Layout) -> str:
    """Where a file goes: uv's folders below its root are those of a scheme with another prefix."""
    parts = Path(os.path.relpath(path, root)).parts
    if parts[0] == "local":  # Debian's and Fedora's Python put it before all
        parts = parts[1:]
    library = next((n for n, name in enumerate(parts[:-1]) if name in LIBRARIES), None)
    if library is not None and library <= 2:
        platform = parts[0] == "lib64" and layout.platlib != layout.purelib
        return os.path.join(layout.platlib if platform else layout.purelib, *parts[library + 1 :])
    if parts[0] in ("bin", "Scripts"):
        return os.path.join(layout.scripts, *parts[1:])
    return os.path.join(layout.data, *parts)


def _write_moved(record: str, rows: Rows, targets: Mapping[str, str]) -> None:
    """Write a list again if it has to name other places."""
    library = os.path.dirname(os.path.dirname(targets[record]))
    names = [os.path.relpath(targets[_listed(record, row)], library) for row in rows]
    moved = [[name.replace(os.sep, "/"), *row[1:]] for name, row in zip(names, rows, strict=True)]
    if moved != rows:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(moved)
        Path(record).write_bytes(os.fsencode(text.getvalue()))


def _short(path: str, root: Path) -> str:
    return os.path.relpath(path, root)
