"""Sends the samples of a run to the terminal or to a JSON lines file, and gives the summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from gpusetup.model.codec import to_json
from gpusetup.monitor.documents import Sample, Summary
from gpusetup.monitor.run import RunTally
from gpusetup.monitor.summary import summarise
from gpusetup.render.console import Console
from gpusetup.render.screen import can_be_drawn_on
from gpusetup.system.refusals import blocked_by_files


class Recording(ExitStack):
    """Receives the samples of one run, and writes the summary at the end."""

    def __init__(self, out: Console) -> None:
        super().__init__()
        self.out = out
        self.tally = RunTally()
        self._file: TextIO | None = None
        self._draw: Callable[[Sample], object] | None = None

    def stream(self) -> None:
        """With `--json`, print every sample as soon as it is taken."""
        if not self.out.json:
            return
        self._file = sys.stdout
        if name := self.out.output:
            with blocked_by_files(f"Cannot write {name}", "choose another `--output`"):
                file = Path(name).open("w", encoding="utf-8", newline="")  # noqa: SIM115
            # It is closed at the end of the recording.
            self._file = self.enter_context(file)

    @contextmanager
    def live(self) -> Iterator[None]:
        """During this block, show every sample, as JSON lines or, on a terminal, on the live
        screen."""
        self.stream()
        if self._file is not None or not can_be_drawn_on(sys.stdout):
            yield
        else:
            from gpusetup.render.monitor import live_screen

            with live_screen(color=self.out.color) as self._draw:
                yield
                self._draw = None

    def take(self, samples: Iterable[Sample]) -> None:
        """Count each sample, and write or draw it as requested."""
        for sample in samples:
            self.tally.add(sample)
            if self._file is not None:
                # Flushed, so that a reader gets each sample at once.
                print(to_json(sample), file=self._file, flush=True)
            elif self._draw is not None:
                self._draw(sample)

    def finish(self, about: Summary, *, to_stderr: bool = False) -> None:
        """Write the summary; `about` has no figures and no verdict yet. `to_stderr`: write its text
        to stderr, because stdout belongs to the command that ran, unless it goes to `--output`."""
        from gpusetup.render.monitor import summary_text

        summary = summarise(self.tally, about)
        if self._file is not None:
            print(to_json(summary), file=self._file, flush=True)
        elif to_stderr and not self.out.output:
            self.out.talk("")
            self.out.talk(summary_text(summary))
        else:
            self.out.answer(summary, summary_text(summary))
