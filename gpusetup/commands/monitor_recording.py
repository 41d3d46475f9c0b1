"""Where the samples of one run go: the terminal, JSON lines; and the answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from gpusetup.monitor import record
from gpusetup.monitor.summary import summarise
from gpusetup.monitor.tally import Tally
from gpusetup.monitor.values import Sample
from gpusetup.render.console import Console
from gpusetup.render.language import plain
from gpusetup.render.terminal import can_be_drawn_on
from gpusetup.verify import streams


class Lines:
    """One line a GPU and sample, where stdout is no terminal."""

    def sample(self, sample: Sample) -> None:
        from gpusetup.render.console import shown
        from gpusetup.render.monitor import sample_lines

        streams.put(shown(sample_lines(sample), sys.stdout))


class Recording:
    """Takes the samples of one run and answers at its end."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._stack = ExitStack()
        self._tally = Tally()
        self._sinks: list[record.Sink] = []
        self._json: record.JsonLines | None = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *how: object) -> None:
        self._stack.close()

    @property
    def samples(self) -> int:
        return self._tally.samples

    def stream(self) -> None:
        """Under `--json`, print every sample as it comes."""
        if self._out.json and self._json is None:
            self._json = record.JsonLines(self._stdout())
            self._sinks.append(self._json)

    def _stdout(self) -> TextIO:
        if not self._out.output:
            return sys.stdout
        return self._stack.enter_context(record.opened(self._out.output))

    @contextmanager
    def live(self, command: tuple[str, ...] | None = None) -> Iterator[None]:
        """Show every sample: JSON lines, a screen on a terminal, plain lines elsewhere."""
        self.stream()
        if self._json is not None:
            yield
        elif not can_be_drawn_on(sys.stdout):
            self._sinks.append(Lines())
            yield
        else:
            from gpusetup.render.live import live_screen

            with live_screen(self._tally, color=self._out.color, command=command) as screen:
                self._sinks.append(screen)
                yield
                self._sinks.remove(screen)

    def say(self, text: str) -> None:
        self._out.talk(plain(text))

    def take(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self._tally.add(sample)
            for sink in self._sinks:
                sink.sample(sample)

    def finish(
        self,
        *,
        source: str | None,
        command: tuple[str, ...] | None = None,
        exit_code: int | None = None,
        aside: bool = True,
    ) -> None:
        """The summary. Beside a command the text goes to stderr (`aside`)."""
        summary = summarise(self._tally, source=source, command=command, exit_code=exit_code)
        from gpusetup.render.language import Screen
        from gpusetup.render.monitor import summary_text

        if self._json is not None:
            self._json.sample(summary)
        elif aside and command and not self._out.output and not self._out.json:
            self._out.tell(Screen(("", *summary_text(summary).lines)))
        else:
            self._out.answer(summary, summary_text(summary))
