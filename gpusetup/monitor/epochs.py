"""Measures how long a training's epochs take by reading its output. Pure functions.

Programs print their epochs in many ways: `Epoch 3/10`, `Epoch [3/100] - Train Loss: 0.2`, a bar
`Epoch 3:  45%|████`, a dictionary `{'loss': 0.5, 'epoch': 0.52}`. All contain the word and, behind
it, a number that grows. The time between two such numbers is how long the epochs between them took,
no matter where in the epoch they are printed.
"""

from __future__ import annotations

import re

from gpusetup.monitor.documents import EpochTimes

LONGEST_LINE = 4000
"""How many bytes of a line are read; a longer line does not report progress."""
LINE_END = re.compile(rb"[\r\n]+")
CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Terminal control sequences: colours and cursor movements (ECMA-48), and window titles."""
EPOCH = re.compile(
    r"(?<![\w.-])epochs?\b(?:\(\w+\))?"  # skips num_epochs, max-epochs; mmengine: Epoch(train)
    r"['\"]?[ \t]*(?:no\.?|number)?[ \t]*[:=#|]*[ \t]*['\"]?[\[(]?[ \t]*"  # 'epoch': 3, Epoch: [3]
    r"(?P<number>\d{1,6}(?![\d])(?:\.\d+)?)"
    r"(?![\d.]*\s*(?:%|s\b|sec|min|h\b|ms\b))",  # no percentage or duration
    re.IGNORECASE,
)
COUNTS = re.compile(
    r"\b(?:num(?:ber)?|total|max(?:imum)?|all|for|of|n)[ \t_-]*(?:of[ \t]+)?$", re.I
)
"""Words before `epochs` which show that the number that follows is the total number of epochs."""


class EpochReader:
    """Reads a command's output while it runs, and records when each epoch number was first
    printed."""

    def __init__(self) -> None:
        self._pending = b""
        # The highest epoch number of this training so far, and the second at which it was printed.
        self._last: tuple[float, float] | None = None
        # The epochs that passed between two printed numbers, and their seconds.
        self._epochs, self._seconds = 0.0, 0.0

    def feed(self, data: bytes, seconds: float) -> None:
        """Read the next bytes of the output, printed this many seconds after the start."""
        *lines, self._pending = LINE_END.split(self._pending + data)
        # Bars put a carriage return before the text, so an unfinished line counts as a line too.
        for line in (*lines, self._pending):
            # Most lines are not about epochs, so only look closer at those that may be.
            if b"epoch" in line.lower():
                # The output may contain bytes that are not UTF-8.
                text = CONTROL.sub("", line[:LONGEST_LINE].decode("utf-8", "replace"))
                epoch = epoch_in(text)
                if epoch is not None:
                    self._note(epoch, seconds)
        self._pending = self._pending[-LONGEST_LINE:]

    def _note(self, epoch: float, seconds: float) -> None:
        """Record that an epoch number was printed at this second. A number that is not higher than
        the previous one is ignored, unless a new training began (such as the next fold)."""
        before, before_seconds = self._last or (epoch, seconds)
        if epoch > before:
            self._epochs += epoch - before
            self._seconds += seconds - before_seconds
        if self._last is None or epoch > before or epoch < before - 1:
            self._last = epoch, seconds

    def times(self) -> EpochTimes | None:
        """The average seconds per epoch; None if the output did not show two epochs."""
        if not self._epochs:
            return None
        seconds = self._seconds / self._epochs
        return EpochTimes(epochs=round(self._epochs, 2), seconds=round(seconds, 3))


def epoch_in(text: str) -> float | None:
    """The epoch that a line of output shows; None if it shows none.

    >>> [epoch_in(line) for line in ("Epoch 3/10", "Epoch [3/100] - Train Loss: 0.2", "epoch=7")]
    [3.0, 3.0, 7.0]
    >>> epoch_in("{'loss': 0.5, 'epoch': 0.52}"), epoch_in("12 epochs"), epoch_in("Num Epochs = 3")
    (0.52, None, None)
    """
    match = EPOCH.search(text)
    # In `Num Epochs = 3` the number is the total.
    if match is None or COUNTS.search(text[: match.start()]):
        return None
    return float(match["number"])
