"""Where the samples of one run go: the terminal, JSON lines; and the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from gpusetup.monitor import record
from gpusetup.monitor.summary import summarise
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.values import Sample
from gpusetup.render.console import Console
from gpusetup.render.terminal import can_be_drawn_on
from gpusetup.verify import streams


def put_line(sample: Sample) -> None:
    """One line a GPU and sample, where stdout is no terminal."""
    from gpusetup.render.monitor import sample_lines

    streams.put(sample_lines(sample))


class Recording(ExitStack):
    """Takes the samples of one run and answers at its end."""

    def __init__(self, out: Console) -> None:
        super().__init__()
        self.out, self.tally = out, Tally()
        self._sinks: list[Callable[[Sample], object]] = []
        self._json: record.JsonLines | None = None

    def stream(self) -> None:
        """Under `--json`, print every sample as it comes."""
        if self.out.json and self._json is None:
            name = self.out.output
            file = self.enter_context(record.opened(name)) if name else sys.stdout
            self._json = record.JsonLines(file)
            self._sinks.append(self._json.sample)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show every sample: JSON lines, a screen on a terminal, plain lines elsewhere."""
        self.stream()
        if self._json is not None:
            yield
        elif not can_be_drawn_on(sys.stdout):
            self._sinks.append(put_line)
            yield
        else:
            from gpusetup.render.monitor import draw, live_screen

            with live_screen(color=self.out.color) as screen:
                drawn = partial(draw, screen)
                self._sinks.append(drawn)
                yield
                self._sinks.remove(drawn)

    def take(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self.tally.add(sample)
            for sink in self._sinks:
                sink(sample)

    def finish(
        self,
        *,
        source: str | None,
        command: tuple[str, ...] | None = None,
        exit_code: int | None = None,
        aside: bool = True,
    ) -> None:
        """The summary. Beside a command the text goes to stderr (`aside`)."""
        summary = summarise(self.tally, source=source, command=command, exit_code=exit_code)
        from gpusetup.render.monitor import summary_text

        if self._json is not None:
            self._json.sample(summary)
        elif aside and command and not self.out.output and not self.out.json:
            self.out.talk("")
            self.out.talk(summary_text(summary))
        else:
            self.out.answer(summary, summary_text(summary))
