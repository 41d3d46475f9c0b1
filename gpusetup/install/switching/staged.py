"""Compares what an installer has unpacked with the wheels, file by file, and says where it goes.

The installer was told to install below a folder of its own. What it left there is taken over only
where every file is one of a wheel with that wheel's content, or one that installers write
themselves (`OWN`, console scripts).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpusetup.errors import ToolFailed
from gpusetup.install.target.layout import Layout, WheelContent, content_of, places_of
from gpusetup.model.frozen import Frozen

CHUNK = 1 << 20
OWN = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")
"""What installers add to a metadata folder."""
UV_LOCK = ".lock"
"""What uv leaves in a prefix that it has installed into."""
SCRIPT_SUFFIXES = ("", ".exe", "-script.py", "-script.pyw", ".exe.manifest")
LIBRARY_NAMES = ("site-packages", "dist-packages")


class Staged(Frozen):
    """What was unpacked: each file, and where it will be; the digest of each installed RECORD."""

    targets: Mapping[str, str]
    records: Mapping[str, str]
    """Path of an installed RECORD -> its sha256."""


class Differs(ToolFailed):
    """What an installer unpacked is not what the wheels hold."""


def compared(root: Path, wheels: Sequence[Path], layout: Layout) -> Staged:
    """Every staged file with its target. `Differs` where one is not what a wheel holds."""
    found = frozenset(_files_below(root))
    sums = _sums(sorted(found))
    trees = [_Tree(root, wheel, layout, found) for wheel in wheels]
    targets: dict[str, str] = {}
    wrong: dict[str, str] = {}
    right: set[str] = set()
    for tree in trees:
        targets.update(tree.targets)
        for staged, name in tree.names.items():
            if tree.holds(name, staged, sums[staged]):
                right.add(staged)
            else:
                wrong[staged] = f"{name} of {tree.wheel.name}"
    bad = sorted(wrong.keys() - right)  # a path of several wheels is one wheel's
    if bad:
        raise Differs(f"What was unpacked is not what the wheel holds: {wrong[bad[0]]}")
    if strange := sorted(found - targets.keys() - {str(root / UV_LOCK)}):
        raise Differs(f"The installer wrote what no wheel holds: {_short(strange[0], root)}")
    return Staged(targets=targets, records=_recorded(trees, targets))


def _files_below(root: Path) -> Iterator[str]:
    """Every file; a link or anything else that is no file is refused."""
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path) or not (os.path.isdir(path) or os.path.isfile(path)):
                raise Differs(f"The installer wrote what is no file: {_short(path, root)}")
        yield from (os.path.join(folder, name) for name in files)


class _Sum(Frozen):
    sha256: str
    crc32: int
    size: int


def _sums(paths: Sequence[str]) -> dict[str, _Sum]:
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(paths, pool.map(_sum, paths), strict=True))


def _sum(path: str) -> _Sum:
    digest, crc, size = hashlib.sha256(), 0, 0
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
    return _Sum(sha256=_urlsafe(digest.digest()), crc32=crc, size=size)


def _urlsafe(digest: bytes) -> str:
    """As a RECORD writes it."""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class _Tree:
    """One wheel and what was unpacked of it."""

    def __init__(self, root: Path, wheel: Path, layout: Layout, found: frozenset[str]) -> None:
        self.wheel, self.layout = wheel, layout
        self.content = content_of(wheel)
        self.record = _record_of(root, self.content, found)
        self.library = os.path.dirname(os.path.dirname(self.record))
        self.base = _base(root, self.library)
        self.listed = _rows(Path(self.record).read_bytes())
        with zipfile.ZipFile(wheel) as archive:
            self.entries = {one.filename: one for one in archive.infolist() if not one.is_dir()}
            self.promised = _rows(archive.read(f"{self.content.info}/RECORD"))
        self.paths = {self._path(name) for name in self.listed} & found
        self.names, self.targets = self._placed()

    def _path(self, name: str) -> str:
        return os.path.normpath(os.path.join(self.library, name))

    def _placed(self) -> tuple[dict[str, str], dict[str, str]]:
        """Staged file -> name in the wheel, and -> where it goes."""
        names, targets = {}, {}
        places = places_of(self.content, self.layout)
        for name, (kind, target) in places.items():
            staged = self._staged(name, kind)
            if staged is None:
                if name == f"{self.content.info}/RECORD":
                    continue
                raise Differs(f"{name} of {self.wheel.name} was not unpacked")
            if staged != self.record:
                names[staged] = name
            targets[staged] = self._named_header(staged) if kind == "headers" else target
        targets.update(self._own(frozenset(targets)))
        return names, targets

    def _staged(self, name: str, kind: str) -> str | None:
        """Where a file of the wheel was unpacked."""
        data = f"{self.content.info.removesuffix('.dist-info')}.data/{kind}/"
        if not name.startswith(data):
            candidates = [self._path(name)]
        else:
            rest = name.removeprefix(data)
            candidates = [os.path.normpath(os.path.join(f, rest)) for f in self._folders(kind)]
        return next((path for path in candidates if path in self.paths), None)

    def _folders(self, kind: str) -> list[str]:
        """Where installers put a kind below a prefix: their schemes differ."""
        if kind == "data":
            return [self.base]
        if kind == "scripts":
            return [os.path.join(self.base, name) for name in ("bin", "Scripts")]
        if kind == "headers":
            return [folder for root in self._includes() for folder in _folders_in(root)]
        return [self.library, *_libraries(self.base)]

    def _includes(self) -> list[str]:
        """The innermost first."""
        python = "python" + ".".join(self.layout.version.split(".")[:2])
        parts = (("site", python), (python,), ())
        return [os.path.join(self.base, "include", *more) for more in parts]

    def _named_header(self, staged: str) -> str:
        root = next(one for one in self._includes() if staged.startswith(one + os.sep))
        headers = self.layout.headers or os.path.join(self.layout.data, "include")
        return os.path.join(headers, os.path.relpath(staged, root))

    def _own(self, known: frozenset[str]) -> dict[str, str]:
        """What the installer wrote by itself: notes beside the RECORD, console scripts."""
        info = os.path.dirname(self.record)
        places = places_of(self.content, self.layout)
        target = os.path.dirname(places[f"{self.content.info}/WHEEL"][1])
        own = {os.path.join(info, name): os.path.join(target, name) for name in OWN}
        scripts = {f"{name}{end}" for name in self.content.scripts for end in SCRIPT_SUFFIXES}
        for folder in self._folders("scripts"):
            for name in scripts:
                own[os.path.join(folder, name)] = os.path.join(self.layout.scripts, name)
        return {staged: place for staged, place in own.items() if staged in self.paths - known}

    def holds(self, name: str, staged: str, found: _Sum) -> bool:
        """Whether the wheel's file has this content: by its own list, else by its archive."""
        if self.promised.get(name) == f"sha256={found.sha256}":
            return True
        entry = self.entries[name]
        if (entry.CRC, entry.file_size) == (found.crc32, found.size):
            return True
        return self._is_script(name) and self._ends_alike(name, staged)

    def _is_script(self, name: str) -> bool:
        return f"{self.content.info.removesuffix('.dist-info')}.data/scripts/" in name

    def _ends_alike(self, name: str, staged: str) -> bool:
        """A script's first line names the interpreter of the target instead of `python`."""
        with zipfile.ZipFile(self.wheel) as archive:
            first, _, rest = archive.read(name).partition(b"\n")
        return first.startswith(b"#!python") and Path(staged).read_bytes().endswith(b"\n" + rest)


def _record_of(root: Path, content: WheelContent, found: frozenset[str]) -> str:
    end = os.path.join("", content.info, "RECORD")
    end = os.sep + end.lstrip(os.sep)
    records = sorted(path for path in found if path.endswith(end))
    if not records:
        raise Differs(f"{content.info} was not unpacked below {root}")
    return min(records, key=len)


def _base(root: Path, library: str) -> str:
    """What stands for the prefix: Debian's and Fedora's Python put `local` before all."""
    local = str(root / "local")
    return local if library.startswith(local + os.sep) else str(root)


def _libraries(base: str) -> list[str]:
    places = Path(base).glob("lib*/python*/*") if os.name == "posix" else Path(base).glob("Lib/*")
    return [str(place) for place in places if place.name in LIBRARY_NAMES]


def _folders_in(folder: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def _rows(record: bytes) -> dict[str, str]:
    """Path -> its hash."""
    text = os.fsdecode(record).replace("\0", "\ufffd")
    rows = (row for row in csv.reader(text.splitlines()) if row)
    return {row[0]: row[1] if len(row) > 1 else "" for row in rows}


def _recorded(trees: Sequence[_Tree], targets: Mapping[str, str]) -> dict[str, str]:
    """Each RECORD says where its files will be, and has the wheel's hashes; path -> digest."""
    records = {}
    for tree in trees:
        path = Path(tree.record)
        rows = list(csv.reader(os.fsdecode(path.read_bytes()).splitlines()))
        library = os.path.dirname(os.path.dirname(targets[tree.record]))
        moved = [_moved(row, tree, targets, library) for row in rows if row]
        if moved != rows:
            path.write_bytes(_as_csv(moved))
        records[targets[tree.record]] = hashlib.sha256(path.read_bytes()).hexdigest()
    return records


def _moved(row: list[str], tree: _Tree, targets: Mapping[str, str], library: str) -> list[str]:
    target = targets.get(tree._path(row[0]))
    if target is None:
        return row
    name = os.path.relpath(target, library).replace(os.sep, "/")
    return row if name == row[0] else [name, *row[1:]]


def _as_csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return os.fsencode(text.getvalue())


def _short(path: str, root: Path) -> str:
    return os.path.relpath(path, root)
