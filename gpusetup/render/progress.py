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
    names = wheels[0].filename if len(wheels) == 1 else f"{len(wheels)} wheels"
    say(f"Fetching {names} ({size_text(size_bytes)}) ...")

    started = time.time()
    # uv is asked for its cache only when a clock is drawn.
    cache = functools.cache(cache_folder)
    expected_megabytes = round(size_bytes * USUAL_GROWTH / 1e6)
    CLOCK.reached(lambda: _megabytes_since(started, cache()), expected_megabytes, "MB")
    yield
    CLOCK.begin("")


def _megabytes_since(started: float, cache: Path) -> int:
    """The size in megabytes of the wheels in uv's cache that were fully or partly unpacked since a
    time (Unix seconds). Files that disappear meanwhile count as 0."""
    size_bytes = 0
    for folder in (folder for pattern in UNPACKING_FOLDERS for folder in cache.glob(pattern)):
        with suppress(OSError):
            if folder.stat().st_mtime < started:
                continue
        for directory, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):
                    size_bytes += Path(directory, name).lstat().st_size
    return size_bytes // 10**6
