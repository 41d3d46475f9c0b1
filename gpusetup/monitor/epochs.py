"""Measures how long a training's epochs take by reading its output. Pure functions.

Programs print their epochs in many ways: `Epoch 3/10`, `Epoch [3/100] - Train Loss: 0.2`, a bar
`Epoch 3:  45%|████`, a dictionary `{'loss': 0.5, 'epoch': 0.52}`, a table with a column `epoch`.
All contain the word and a number that grows. The time between two such numbers is how long the
epochs between them took, no matter where in the epoch they are printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpusetup.monitor.documents import EpochTimes

LONGEST_LINE = 4000
"""How many bytes of a line are read; a longer line does not report progress."""
LINE_END = re.compile(rb"[\r\n]+")
MOST_EPOCHS = 100_000
LEAST_EPOCHS = 0.05
"""The least part of an epoch that is measured, because a shorter part says little about a whole
epoch."""
WHOLE_EPOCH = 0.99
LEAST_COLUMNS = 3
"""A line with fewer words cannot be a table's heading."""
CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Terminal control sequences: colours and cursor movements (ECMA-48), and window titles."""

NUMBER = r"(?P<number>\d{1,6}(?![\d])(?:\.\d+)?)"
EPOCH = re.compile(
    r"(?<![\w.-])epochs?\b(?:\(\w+\))?"  # skips num_epochs, max-epochs; mmengine: Epoch(train)
    r"['\"]?[ \t]*(?:no\.?|number)?[ \t]*[:=#|]*[ \t]*['\"]?[\[(]?[ \t]*"  # 'epoch': 3, Epoch: [3]
    + NUMBER
    + r"(?![\d.]*\s*(?:%|s\b|sec|min|h\b|ms\b))"  # no percentage or duration
    r"(?P<rest>.*)",
    re.IGNORECASE,
)
BAR_OF_EPOCHS = re.compile(
    r"\bepochs?\b[ \t]*:?[ \t]*\d{1,3}%\|[^|]*\|[ \t]*" + NUMBER + r"/\d+", re.I
)
"""Matches a tqdm bar over the epochs: `Epochs: 30%|███ | 3/10 [00:15<00:35, 5.00s/it]`."""
WITHIN = re.compile(
    r"^(?:/\d+)?[\])]?[ \t]*[:,|-]*[ \t]*"
    r"(?:(?P<percent>\d{1,3})%\||[\[(][ \t]*(?P<done>\d+)/(?P<all>\d+)(?=[\]) ]))"
)
"""Matches how much of the epoch is done: a bar `: 45%|`, or batches `[ 450/1000]`."""
COUNTS = re.compile(
    r"\b(?:num(?:ber)?|total|max(?:imum)?|all|for|of|n)[ \t_-]*(?:of[ \t]+)?$", re.I
)
"""Words before `epochs` which show that the number that follows is the total number of epochs."""


class EpochReader:
    """Reads a command's output while it runs, and records when each epoch number was first
    printed."""

    def __init__(self) -> None:
        self._pending = b""
        # The index of the `epoch` column, if the output is a table.
        self._column: int | None = None
        # The highest epoch number of this training so far.
        self._last: PrintedEpoch | None = None
        self._spans: list[EpochSpan] = []

    def feed(self, data: bytes, seconds: float) -> None:
        """Read the next bytes of the output, printed this many seconds after the start."""
        text = self._pending + data
        *lines, self._pending = LINE_END.split(text)
        # Bars put a carriage return before the text, so an unfinished line counts as a line too.
        for line in (*lines, self._pending):
            beginning = line[:LONGEST_LINE]
            self._read(beginning, seconds)
        self._pending = self._pending[-LONGEST_LINE:]

    def _read(self, line: bytes, seconds: float) -> None:
        """Record the epoch that a line of output contains, if any."""
        # Most lines are not about epochs, so only look closer at those that may be.
        is_below_heading = self._column is not None
        if not is_below_heading and b"epoch" not in line.lower():
            return
        # The output may contain bytes that are not UTF-8.
        decoded = line.decode("utf-8", "replace")
        text = CONTROL.sub("", decoded)
        epoch = epoch_in(text)
        if epoch is None:
            epoch = self._in_table(text)
        if epoch is not None:
            self._note(epoch, seconds)

    def _in_table(self, text: str) -> float | None:
        """The epoch in a row of a table that has an `epoch` column, as fastai and Ultralytics print
        it; None for any other line."""
        words = text.split()
        lower_words = [word.lower() for word in words]
        # A heading contains no numbers, and names other columns besides `epoch`.
        has_numbers = any(word[0].isdigit() for word in words)
        is_wide = len(words) >= LEAST_COLUMNS
        if "epoch" in lower_words and is_wide and not has_numbers:
            self._column = lower_words.index("epoch")
            return None
        column = self._column
        if column is None or len(words) <= column:
            return None
        # `3` or `3/10`.
        match = re.fullmatch(r"(\d{1,6})(?:/\d+)?", words[column])
        if match is None:
            return None
        return float(match[1])

    def _note(self, epoch: float, seconds: float) -> None:
        """Record that an epoch number was printed at this second. A number that is not higher than
        the previous one is ignored, unless a new training began."""
        last = self._last
        printed = PrintedEpoch(epoch, seconds)
        if last is None or epoch < last.epoch - 1:
            # Start here if this is the first number, or if another training began (such as the next
            # fold).
            self._last = printed
            return
        if epoch <= last.epoch:
            return
        # Limit the number of spans, because a hostile program may print numbers without end.
        if len(self._spans) < MOST_EPOCHS:
            span = EpochSpan(epoch - last.epoch, seconds - last.seconds)
            self._spans.append(span)
        self._last = printed

    def times(self) -> EpochTimes | None:
        """The average, shortest and longest seconds per epoch; None if the output showed less than
        a twentieth of an epoch."""
        epochs = sum(span.epochs for span in self._spans)
        seconds = sum(span.seconds for span in self._spans)
        # A twentieth of an epoch says little about a whole one.
        if epochs < LEAST_EPOCHS:
            return None
        lengths = []
        for span in whole_epochs(self._spans):
            lengths.append(span.seconds / span.epochs)
        average = seconds / epochs
        fastest = min(lengths, default=average)
        slowest = max(lengths, default=average)
        return EpochTimes(
            epochs=round(epochs, 2),
            seconds=round(average, 3),
            fastest_seconds=round(fastest, 3),
            slowest_seconds=round(slowest, 3),
        )


def whole_epochs(spans: list[EpochSpan]) -> Iterator[EpochSpan]:
    """Join consecutive spans until each covers at least one whole epoch; drop an incomplete rest.

    >>> halves = [EpochSpan(0.5, 3.0), EpochSpan(0.5, 5.0)]
    >>> [tuple(span) for span in whole_epochs([*halves, EpochSpan(1.0, 7.0), EpochSpan(0.2, 9.0)])]
    [(1.0, 8.0), (1.0, 7.0)]
    """
    epochs = 0.0
    seconds = 0.0
    for span in spans:
        epochs += span.epochs
        seconds += span.seconds
        # Allow slightly less than one epoch, because printed fractions are rounded.
        if epochs >= WHOLE_EPOCH:
            yield EpochSpan(epochs, seconds)
            epochs = 0.0
            seconds = 0.0


def epoch_in(text: str) -> float | None:
    """The epoch that a line of output shows, including the part that is done (3.45 is 45 % into
    epoch 3); None if it shows none.

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
    if match is None:
        return None
    words_before = text[: match.start()]
    # In `Num Epochs = 3` the number is the total.
    if COUNTS.search(words_before):
        return None
    epoch = float(match["number"])
    part = WITHIN.match(match["rest"])
    if part is None:
        return epoch
    if part["percent"]:
        percent_done = min(100, int(part["percent"]))
        return epoch + percent_done / 100
    all_batches = int(part["all"])
    # A loader without a length prints `0/0`, which says nothing about the part that is done.
    if not all_batches:
        return epoch
    done_batches = min(int(part["done"]), all_batches)
    return epoch + done_batches / all_batches


class EpochSpan(NamedTuple):
    """The epochs and seconds that passed between two printed epoch numbers."""

    epochs: float
    seconds: float


class PrintedEpoch(NamedTuple):
    """An epoch number, and the second at which it was first printed."""

    epoch: float
    seconds: float
