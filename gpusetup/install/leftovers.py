"""What a killed `gpusetup guard` leaves in an environment."""

from __future__ import annotations

import contextlib
from pathlib import Path

OF_THE_GUARD = "gpusetup-constraints.*.new"


def sweep(folder: Path, pattern: str) -> None:
    """Delete such files."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            path.unlink()
