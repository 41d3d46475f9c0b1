"""Progress of what uv fetches: how many megabytes of how many, in the clock's line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpusetup.install.wheels import size_text
from gpusetup.render.clock import CLOCK
from gpusetup.uv.lock import Wheel

USUAL_GROWTH = 1.7
"""How much larger wheels are unpacked: 0.9 GB of torch 2.9 for CUDA 12.8 and its libraries."""


@contextmanager
def fetching(say: Callable[[str], None], wheels: Sequence[Wheel], cache: Path) -> Iterator[None]:
    """Show, until the block ends, how uv's cache grows: it unpacks what comes as it comes."""
    size = sum(wheel.size_bytes or 0 for wheel in wheels)
    what = f"{len(wheels)} wheels" if len(wheels) > 1 else wheels[0].filename if wheels else ""
    there = _entries(cache)
    say(f"Fetching {what} ({size_text(size)}) ...")
    CLOCK.counted(
        lambda: sum(map(_megabytes, _entries(cache) - there)),
        round(size * USUAL_GROWTH / 1e6),
        "MB",
    )
    yield
    CLOCK.begin("")


def _entries(cache: Path) -> frozenset[Path]:
    """Where uv unpacks: folders that are being filled, and those that are done."""
    return frozenset((*cache.glob(".tmp*"), *cache.glob("archive-v*/*"), *cache.glob("*/.tmp*")))


def _megabytes(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total // 10**6
