"""Progress of what uv fetches, on stderr: a bar on a terminal, a line elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from gpusetup.install.fetching.wheels import Wheel, size_text
from gpusetup.render.clock import CLOCK
from gpusetup.render.language import plain

LOOK_SECONDS = 0.5
USUAL_GROWTH = 1.7
"""How much larger wheels are unpacked: 0.9 GB of torch 2.9 for CUDA 12.8 and its libraries."""


@contextmanager
def fetching(say: Callable[[str], None], wheels: Sequence[Wheel], cache: Path) -> Iterator[None]:
    """Show, until the block ends, how uv's cache grows: it unpacks what comes as it comes."""
    size = sum(wheel.size_bytes or 0 for wheel in wheels)
    what = f"{len(wheels)} wheels" if len(wheels) > 1 else wheels[0].filename if wheels else ""
    if not sys.stderr.isatty():
        say(plain(f"Fetching {what} ({size_text(size)})"))
        yield
        return
    with _bar(what, int(size * USUAL_GROWTH), cache):
        yield


@contextmanager
def _bar(what: str, total: int, cache: Path) -> Iterator[None]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    CLOCK.end()
    columns = ("{task.description}", BarColumn(), DownloadColumn(True), TransferSpeedColumn())
    console, ended, there = Console(stderr=True), Event(), _entries(cache)
    with (
        CLOCK.still(),
        Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars,
    ):
        task = bars.add_task(escape(f"Fetching {what}"), total=total)

        def look() -> None:
            while not ended.wait(LOOK_SECONDS):
                fresh = (path for path in _entries(cache) if path not in there)
                bars.update(task, completed=min(total, sum(map(_bytes_below, fresh))))

        watcher = Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _entries(cache: Path) -> frozenset[Path]:
    """Where uv unpacks: folders that are being filled, and those that are done."""
    return frozenset((*cache.glob(".tmp*"), *cache.glob("archive-v*/*"), *cache.glob("*/.tmp*")))


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total
