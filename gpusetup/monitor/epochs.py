"""How long the epochs of a training take, as its own output tells. Pure.

A training prints its epochs in many ways: `Epoch 3/10`, `Epoch [3/100] - Train Loss: 0.2`, a bar
`Epoch 3:  45%|████`, a dictionary `{'loss': 0.5, 'epoch': 0.52}`, a table with a column `epoch`.
All have the word and a number that grows; the time between two numbers is that of the epochs
between them, wherever in the epoch they are printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.monitor.documents import EpochTimes

LONGEST_LINE = 4000
"""Bytes of a line that are looked at; what is longer is no line of progress."""
MOST_EPOCHS = 100_000
CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours and movements of a terminal (ECMA-48), and titles of its window."""

NUMBER = r"(?P<number>\d{1,6}(?![\d])(?:\.\d+)?)"
EPOCH = re.compile(
    r"(?<![\w.-])epochs?\b(?:\(\w+\))?"  # not num_epochs, max-epochs; mmengine: Epoch(train)
    r"['\"]?[ \t]*(?:no\.?|number)?[ \t]*[:=#|]*[ \t]*['\"]?[\[(]?[ \t]*"  # 'epoch': 3, Epoch: [3]
    + NUMBER
    + r"(?![\d.]*\s*(?:%|s\b|sec|min|h\b|ms\b))"  # a share or a duration
    r"(?P<rest>.*)",
    re.IGNORECASE,
)
BAR_OF_EPOCHS = re.compile(
    r"\bepochs?\b[ \t]*:?[ \t]*\d{1,3}%\|[^|]*\|[ \t]*" + NUMBER + r"/\d+", re.I
)
"""tqdm over the epochs: `Epochs:  30%|███       | 3/10 [00:15<00:35,  5.00s/it]`."""
WITHIN = re.compile(
    r"^(?:/\d+)?[\])]?[ \t]*[:,|-]*[ \t]*"
    r"(?:(?P<percent>\d{1,3})%\||[\[(][ \t]*(?P<done>\d+)/(?P<all>\d+)(?=[\]) ]))"
)
"""What part of the epoch is done: a bar `:  45%|`, or batches `[ 450/1000]`."""
COUNTS = re.compile(
    r"\b(?:num(?:ber)?|total|max(?:imum)?|all|for|of|n)[ \t_-]*(?:of[ \t]+)?$", re.I
)
"""Words before `epochs` that make it a count of all."""


class EpochReader:
    """Reads a command's output as it comes and notes when each epoch was printed first."""

    def __init__(self) -> None:
        self._pending = b""
        self._column: int | None = None
        """Where a table has its column of epochs."""
        self._last: tuple[float, float] | None = None
        """The highest epoch of this training so far, and when it was printed first."""
        self._spans: list[tuple[float, float]] = []
        """How many epochs passed between two prints, and the seconds."""

    def feed(self, data: bytes, seconds: float) -> None:
        """Read the next bytes, which came so many seconds after the start."""
        *lines, self._pending = re.split(rb"[\r\n]+", self._pending + data)
        # A bar is drawn with a carriage return before it: what is pending is a line too.
        for line in (*lines, self._pending):
            self._read(line[:LONGEST_LINE], seconds)
        self._pending = self._pending[-LONGEST_LINE:]

    def _read(self, line: bytes, seconds: float) -> None:
        # Most lines of a program speak of no epoch: look closer at those alone that may.
        if self._column is None and b"epoch" not in line.lower():
            return
        text = CONTROL.sub("", line.decode("utf-8", "replace"))
        epoch = epoch_in(text)
        if epoch is None:
            epoch = self._in_table(text)
        if epoch is not None:
            self._note(epoch, seconds)

    def _in_table(self, text: str) -> float | None:
        """The epoch in a row of a table whose heading has the word: fastai, Ultralytics."""
        words = text.split()
        lower = [word.lower() for word in words]
        if "epoch" in lower and len(words) >= 3 and not any(word[0].isdigit() for word in words):
            self._column = lower.index("epoch")
            return None
        if self._column is None or len(words) <= self._column:
            return None
        match = re.fullmatch(r"(\d{1,6})(?:/\d+)?", words[self._column])
        return float(match[1]) if match else None

    def _note(self, epoch: float, seconds: float) -> None:
        last = self._last
        if last is None or epoch < last[0] - 1:
            # The first one, or another training began (the next fold, the next run).
            self._last = (epoch, seconds)
            return
        if epoch <= last[0]:
            return
        if len(self._spans) < MOST_EPOCHS:
            self._spans.append((epoch - last[0], seconds - last[1]))
        self._last = (epoch, seconds)

    def times(self) -> EpochTimes | None:
        """The seconds an epoch took; None if no two epochs were printed."""
        epochs = sum(count for count, _ in self._spans)
        seconds = sum(length for _, length in self._spans)
        # A twentieth of an epoch says little about a whole one.
        if epochs < 0.05:
            return None
        epoch_seconds = [length / count for count, length in whole_epochs(self._spans)]
        average = seconds / epochs
        return EpochTimes(
            epochs=round(epochs, 2),
            seconds=round(average, 3),
            fastest_seconds=round(min(epoch_seconds, default=average), 3),
            slowest_seconds=round(max(epoch_seconds, default=average), 3),
        )


def whole_epochs(spans: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Spans together until they make an epoch: parts of one are uneven.

    >>> list(whole_epochs([(0.5, 3.0), (0.5, 5.0), (1.0, 7.0), (0.2, 9.0)]))
    [(1.0, 8.0), (1.0, 7.0)]
    """
    count = seconds = 0.0
    for span_count, span_seconds in spans:
        count, seconds = count + span_count, seconds + span_seconds
        if count >= 0.99:
            yield count, seconds
            count = seconds = 0.0


def epoch_in(text: str) -> float | None:
    """The epoch that a line tells, with the part of it that is done; None if it tells none.

    >>> [epoch_in(line) for line in ("Epoch 3/10", "Epoch [3/100] - Train Loss: 0.2", "epoch=7")]
    [3.0, 3.0, 7.0]
    >>> epoch_in("{'loss': 0.5, 'epoch': 0.52}"), epoch_in("Epoch 3:  45%|####   | 450/1000 [00:10")
    (0.52, 3.45)
    >>> epoch_in("Epochs:  30%|###       | 3/10 [00:15<00:35, 5.00s/it]"), epoch_in("12 epochs")
    (3.0, None)
    >>> epoch_in("Epoch: [0]  [  10/5005]  eta: 1:02:03"), epoch_in("Num Epochs = 3")
    (0.001998001998001998, None)
    """
    bar = BAR_OF_EPOCHS.search(text)
    if bar:
        return float(bar["number"])
    match = EPOCH.search(text)
    if match is None or COUNTS.search(text[: match.start()]):
        return None
    epoch = float(match["number"])
    part = WITHIN.match(match["rest"])
    if part is None:
        return epoch
    if part["percent"]:
        return epoch + min(100, int(part["percent"])) / 100
    all_batches = int(part["all"])
    return epoch + min(int(part["done"]), all_batches) / all_batches if all_batches else epoch
