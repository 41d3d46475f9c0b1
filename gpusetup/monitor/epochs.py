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
EPOCH = re.compile(
    # `Epoch 3/10`, `Epoch: [3]`, `'epoch': 0.52`, `Epoch(train) [3]`; not `num_epoch: 3`.
    rb"(?<![\w.-])epoch\b(?:\(\w+\))?\W{0,5}(\d{1,6}(?:\.\d+)?)"
    # The whole number, and neither a percentage nor a duration: not `epoch 45%`, `epoch 12.3 s`.
    rb"(?!\d|\.\d|\s*(?:%|s\b|sec|min|h\b|ms\b))",
    re.IGNORECASE,
)


class EpochReader:
    """Reads a command's output, and records when each epoch number was first printed."""

    def __init__(self) -> None:
        self._unfinished_line = b""
        # The highest epoch number of this training so far, and the second at which it was printed.
        self._last: tuple[float, float] | None = None
        # The epochs that passed between two printed numbers, and their seconds.
        self._epochs, self._seconds = 0.0, 0.0

    def feed(self, data: bytes, seconds: float) -> None:
        """Read the next bytes of the output, printed this many seconds after the start."""
        *lines, unfinished = LINE_END.split(self._unfinished_line + data)
        # Bars put a carriage return before the text, so an unfinished line counts as a line too.
        for line in (*lines, unfinished):
            epoch = EPOCH.search(line[:LONGEST_LINE])
            if epoch:
                self._note(float(epoch[1]), seconds)
        # A line that never ends, such as a row of dots, must not fill the memory.
        self._unfinished_line = unfinished[-LONGEST_LINE:]

    def _note(self, epoch: float, seconds: float) -> None:
        """Record that an epoch number was printed at this second. A number that is not higher than
        the previous one is ignored, unless a new training began (such as the next fold)."""
        if self._last is None:
            self._last = epoch, seconds
            return
        before, before_seconds = self._last
        if epoch > before:
            self._epochs += epoch - before
            self._seconds += seconds - before_seconds
        # Numbers of one epoch may differ by up to 1, such as `Epoch 3` and `'epoch': 2.5`.
        began_again = epoch < before - 1
        if epoch > before or began_again:
            self._last = epoch, seconds

    def times(self) -> EpochTimes | None:
        """The average seconds per epoch; None if the output did not show two epochs."""
        if not self._epochs:
            return None
        seconds = self._seconds / self._epochs
        return EpochTimes(epochs=round(self._epochs, 2), seconds=round(seconds, 3))
