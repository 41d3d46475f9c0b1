"""Shows the progress of uv's downloads, in megabytes, in the clock's line."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpusetup.install.wheels import size_text
from gpusetup.render.clock import CLOCK
from gpusetup.uv.program import cache_folder
from gpusetup.uv.question import Wheel

USUAL_GROWTH = 1.7
"""How many times larger wheels become when they are unpacked. Measured with torch 2.9 for CUDA 12.8
and its libraries (0.9 GB of wheels)."""

UNPACKING_FOLDERS = (".tmp*", "archive-v*/*", "*/.tmp*")
"""Where uv unpacks wheels inside its cache: folders that are being filled, and finished folders."""


@contextmanager
def fetching(say: Callable[[str], None], wheels: Sequence[Wheel]) -> Iterator[None]:
    """During this block, show how much uv has fetched, measured by the growth of its cache.

    uv prints no progress that a program can read, but it unpacks each wheel while the wheel
    arrives.
    """
    size_bytes = sum(wheel.size_bytes or 0 for wheel in wheels)
    say(f"Fetching {_wheel_names(wheels)} ({size_text(size_bytes)}) ...")

    started = time.time()
    # uv is asked for its cache only when a clock is drawn.
    cache = functools.cache(cache_folder)

    def megabytes_fetched() -> int:
        return sum(_megabytes(folder) for folder in _folders_since(started, cache()))

    expected_megabytes = round(size_bytes * USUAL_GROWTH / 1e6)
    CLOCK.counted(megabytes_fetched, expected_megabytes, "MB")
    yield
    CLOCK.begin("")


def _wheel_names(wheels: Sequence[Wheel]) -> str:
    """The file name of a single wheel, or the number of wheels."""
    if len(wheels) > 1:
        return f"{len(wheels)} wheels"
    return wheels[0].filename if wheels else ""


def _folders_since(started: float, cache: Path) -> Iterator[Path]:
    """Yields the folders in uv's cache with wheels that were fully or partly unpacked since a time
    (Unix seconds)."""
    for pattern in UNPACKING_FOLDERS:
        for folder in cache.glob(pattern):
            with suppress(OSError):
                if folder.stat().st_mtime >= started:
                    yield folder


def _megabytes(folder: Path) -> int:
    """The total size of a folder's files in megabytes; files that disappear meanwhile count as
    0."""
    size_bytes = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size_bytes += Path(directory, name).lstat().st_size
    return size_bytes // 10**6
