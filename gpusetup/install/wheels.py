"""Functions for wheels: the hashes recorded in a folder of wheels, notes on wheels without a hash,
and sizes as text."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.model.frozen import replace
from gpusetup.system.refusals import blocked_by_files
from gpusetup.uv.lock import Wheel

SUMS = "SHA256SUMS"
"""The file in which `--download` lists its wheels, in the form that `sha256sum -c` reads."""


MOST_SUMS_BYTES = 16 << 20
"""The maximum size of a list of hashes; one for ten thousand wheels has 1.5 MB."""
SUM = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](?:\./)?(?P<name>[^/\\]+)")
"""A line from `sha256sum`, with `*` before the name if `--binary` was used. Names with a slash do
not match, because they could lead out of the folder."""


def noted(folder: Path) -> dict[str, str]:
    """Maps file names to sha256, for those listed files that still exist in a folder.

    Raises Blocked if the list cannot be read, because then no wheel could be checked.
    """
    path = folder / SUMS
    if not os.path.lexists(path):
        return {}
    sums: dict[str, str] = {}
    for number, line in enumerate(_text_of_sums(path).splitlines(), start=1):
        if not line.strip():
            continue
        row = SUM.fullmatch(line.rstrip())
        if row is None:
            raise _unclear(
                path, f"line {number} is not a sha256 with a file of this folder: {line!r}"
            )
        name, digest = row["name"], row["digest"].lower()
        if sums.setdefault(name, digest) != digest:
            raise _unclear(path, f"it has two hashes for {name}")
    return {name: digest for name, digest in sums.items() if (folder / name).is_file()}


def _text_of_sums(path: Path) -> str:
    """The text of a list of hashes."""
    # Reading a pipe or a device might never end.
    if not path.is_file():
        raise _unclear(path, "it is not a regular file")
    with blocked_by_files(str(path), FIX_SUMS), path.open("rb") as file:
        raw = file.read(MOST_SUMS_BYTES + 1)
    if len(raw) > MOST_SUMS_BYTES:
        raise _unclear(path, f"it is larger than {MOST_SUMS_BYTES >> 20} MiB")
    try:
        # Some editors on Windows put a byte order mark at the beginning.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unclear(path, "it is not UTF-8 text") from None


FIX_SUMS = (
    f"nothing was changed; write the list again in that folder: `sha256sum *.whl > {SUMS}`, or "
    "delete it if you trust the files"
)


def _unclear(path: Path, reason: str) -> Blocked:
    shown = reason if len(reason) <= MOST_SHOWN else f"{reason[:MOST_SHOWN]}..."
    return Blocked(
        f"{path} cannot be understood, so no wheel can be compared with it: {shown}", hint=FIX_SUMS
    )


MOST_SHOWN = 150
"""The maximum length of a quoted line, in characters."""


def in_folder(folder: str, wheels: Iterable[Wheel]) -> Iterator[Wheel]:
    """Yields the wheels with their size in the folder and the hash that was recorded when the
    folder was filled."""
    sums = noted(Path(folder))
    for wheel in wheels:
        path = Path(folder, wheel.filename)
        try:
            with zipfile.ZipFile(path) as archive:
                unpacked_bytes = sum(file.file_size for file in archive.infolist())
        except (OSError, ValueError, zipfile.BadZipFile):
            # uv says what is wrong with the file.
            unpacked_bytes = None
        yield replace(
            wheel,
            sha256=sums.get(wheel.filename, wheel.sha256),
            size_bytes=path.stat().st_size,
            unpacked_bytes=unpacked_bytes,
            source=folder,
        )


def unhashed(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    """A note that names the wheels for which the index states no hash; empty if there are none.

    >>> unhashed([Wheel(name="x", version="1", filename="", url="https://i/x")])
    ('No sha256 at the index for x: the file is only as trusted as the connection',)
    """
    names: list[str] = []
    for wheel in wheels:
        is_on_disk = wheel.url.startswith("file:")
        if not wheel.sha256 and not is_on_disk:
            names.append(wheel.name)
    if not names:
        return ()
    fact = f"No sha256 at the index for {', '.join(names)}"
    return (f"{fact}: the file is only as trusted as the connection",)


def size_text(count: int | float) -> str:
    """A number of bytes as text, in B, KiB, MiB or GiB.

    >>> size_text(191_794_682), size_text(812)
    ('182.9 MiB', '812 B')
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
