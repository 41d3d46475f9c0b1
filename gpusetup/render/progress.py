"""Progress of what is fetched, on stderr: bars on a terminal, a line for each wheel elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gpusetup.install.fetching.fetch import Progress
from gpusetup.install.fetching.wheels import Wheel, size_text
from gpusetup.render.clock import CLOCK
from gpusetup.render.language import plain


@contextmanager
def fetching(say: Callable[[str], None], wheels: Sequence[Wheel]) -> Iterator[Progress]:
    """A callback that shows what comes in, until the block ends."""
    if sys.stderr.isatty():
        with _bars(wheels) as progress:
            yield progress
    else:
        yield _lines(say)


def _lines(say: Callable[[str], None]) -> Progress:
    begun: set[str] = set()

    def progress(wheel: Wheel, count: int) -> None:
        if wheel.filename not in begun:
            begun.add(wheel.filename)
            size = "" if wheel.size_bytes is None else f" ({size_text(wheel.size_bytes)})"
            say(plain(f"Fetching {wheel.filename}{size}"))

    return progress


@contextmanager
def _bars(wheels: Sequence[Wheel]) -> Iterator[Progress]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars

    CLOCK.end()
    sizes = (DownloadColumn(True), TransferSpeedColumn(), TimeRemainingColumn())
    columns = ("{task.description}", BarColumn(), *sizes)
    with CLOCK.still(), Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {
            wheel.filename: bars.add_task(
                escape(f"{wheel.name} {wheel.version}"), total=wheel.size_bytes, visible=False
            )
            for wheel in wheels
        }

        def progress(wheel: Wheel, count: int) -> None:
            bars.update(tasks[wheel.filename], advance=count, visible=True)

        yield progress
