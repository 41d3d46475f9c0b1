"""Parts of a file on a server: a zip is read by a few of them, a broken download goes on by one."""

from __future__ import annotations

import configparser
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

Part = Callable[[str], "tuple[bytes, int] | None"]
"""`100-199` or `-100` of HTTP's Range -> those bytes, and how many there are in all."""
TAIL = 1 << 16
"""Bytes that are fetched first: the end of a zip says where its table of contents is."""
LEAST = 1 << 14
METADATA_BYTES = 4 << 20
"""What a METADATA is never longer than; more of it is a trap."""
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, ValueError, KeyError, IndexError),
    *(EOFError, StopIteration, RuntimeError, OverflowError, MemoryError, configparser.Error),
)
"""What `zipfile` and what reads it raise for an archive that is broken, locked, or packed oddly."""


class RangedFile(io.RawIOBase):
    """A file on a server that is read where it is asked for."""

    def __init__(self, part: Part, tail: bytes, total: int) -> None:
        self._part, self._total, self._at = part, total, 0
        self._have: tuple[int, bytes] = (total - len(tail), tail)

    @classmethod
    def opened(cls, part: Part) -> RangedFile | None:
        """The file; None where the server gives no parts."""
        found = part(f"-{TAIL}")
        return None if found is None else cls(part, *found)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._total)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._total if size < 0 else min(self._at + size, self._total)
        start, have = self._have
        if not start <= self._at <= end <= start + len(have):
            self._have = start, have = self._at, self._fetched(end)
        found = have[self._at - start : end - start]
        self._at = end
        return found

    def _fetched(self, end: int) -> bytes:
        last = min(max(end, self._at + LEAST), self._total) - 1
        found = self._part(f"{self._at}-{last}")
        if found is None:
            raise OSError("the server gives no parts any more")
        return found[0]


def metadata_in(file: RangedFile | Path) -> str:
    """The METADATA of a wheel. Raises one of `UNREADABLE` for what is none."""
    with zipfile.ZipFile(file) as archive:
        return metadata_of_archive(archive)


def metadata_of_archive(archive: zipfile.ZipFile) -> str:
    name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    return short_entry(archive, name).decode("utf-8", "replace")


DECIDING = ("name", "version", "requires-dist", "requires-python", "provides-extra")


def difference(one: str, other: str) -> str | None:
    """In what two METADATA differ that decides what is installed with it; None in nothing.

    >>> head = "Metadata-Version: 2.1\\nName: a\\nVersion: 1\\n"
    >>> difference(f"{head}Requires-Dist: b>1\\n\\nlong", f"{head}\\nother")
    'requires-dist b>1 there, none in the wheel'
    """
    from email.parser import HeaderParser

    there, here = (HeaderParser().parsestr(text.lstrip("\ufeff")) for text in (one, other))
    for name in DECIDING:
        rows = [
            sorted(" ".join(str(row).split()) for row in heads.get_all(name, ()))
            for heads in (there, here)
        ]
        if rows[0] != rows[1]:
            gone, new = (
                ", ".join(row for row in rows[i] if row not in rows[1 - i])[:200] or "none"
                for i in (0, 1)
            )
            return f"{name} {gone} there, {new} in the wheel"
    return None


def short_entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """A file of a wheel's metadata, not unpacked further than one is long. Raises ValueError."""
    with archive.open(name) as entry:
        found = entry.read(METADATA_BYTES + 1)
    if len(found) > METADATA_BYTES:
        raise ValueError(f"{name} is longer than {METADATA_BYTES >> 20} MiB")
    return found


def is_encoded(headers: Mapping[str, str]) -> bool:
    """Whether a server packed the body although it was asked not to.

    >>> is_encoded({"Content-Encoding": "gzip"}), is_encoded({})
    (True, False)
    """
    return headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity")


def goes_on(headers: Mapping[str, str], had: int, mark: str | None) -> bool:
    """Whether a part begins where ours ends, and is of the same file as far as the server tells.

    >>> goes_on({"Content-Range": "bytes 5-9/10"}, 5, None)
    True
    >>> goes_on({"Content-Range": "bytes 0-9/10"}, 5, None)
    False
    >>> goes_on({"Content-Range": "bytes 5-9/10", "ETag": '"b"'}, 5, '"a"')
    False
    """
    span, etag = headers.get("Content-Range", ""), headers.get("ETag", "")
    if span and not re.match(rf"bytes {had}-", span):
        return False
    return not (mark and mark.startswith('"') and etag.startswith('"') and etag != mark)
