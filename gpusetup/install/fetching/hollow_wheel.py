"""A wheel that holds nothing but its METADATA: a question needs no more, and fetches nothing."""

from __future__ import annotations

import zipfile
from pathlib import Path

from gpusetup.install.fetching.wheels import Wheel


def stand_in(wheel: Wheel, metadata: str, folder: Path) -> Path:
    """A wheel that holds a wheel's METADATA and nothing else, to resolve with."""
    info = f"{wheel.filename.split('-')[0]}-{wheel.filename.split('-')[1]}.dist-info"
    tags = "-".join(wheel.filename.removesuffix(".whl").split("-")[-3:])
    path = folder / wheel.filename
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nTag: {tags}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path
