"""Facts and notes about wheels: the hashes in a folder of wheels, wheels without a hash, and
sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpusetup.model.frozen import replace
from gpusetup.uv.lock import Wheel

SUMS = "SHA256SUMS"
"""What `--download` fetched, in the form that `sha256sum -c` reads."""


def noted(folder: Path) -> dict[str, str]:
    """File name -> sha256 from the folder's SHA256SUMS, for the files that still exist."""
    if not (folder / SUMS).is_file():
        return {}
    text = (folder / SUMS).read_text(encoding="utf-8", errors="replace")
    sums: dict[str, str] = {}
    # A name with a slash could lead out of the folder.
    for digest, name in re.findall(r"(?m)^([0-9a-f]{64})  ([^/\\\s]+)$", text):
        if (folder / name).is_file():
            sums[name] = digest
    return sums


def in_folder(folder: str, wheels: Iterable[Wheel]) -> Iterator[Wheel]:
    """Yields the wheels with their size in the folder and the hash that was recorded when it was
    filled."""
    sums = noted(Path(folder))
    for wheel in wheels:
        size_bytes = Path(folder, wheel.filename).stat().st_size
        digest = sums.get(wheel.filename, wheel.sha256)
        yield replace(wheel, sha256=digest, size_bytes=size_bytes, source=folder)


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
