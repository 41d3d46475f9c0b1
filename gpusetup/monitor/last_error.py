"""Finds the last error that a command printed. Pure functions."""

from __future__ import annotations

import re

TAIL_BYTES = 16384
"""How much of the end of the output is searched. A traceback's last line comes at the end, perhaps
followed by a launcher's own report."""
LONGEST_ERROR = 200
"""Characters; torch's messages about memory are longer, but begin with what happened."""
ERROR_LINE = re.compile(
    r"^(?:\[?rank\d+\]?: ?)?((?:\w+\.){0,8}\w{0,60}(?:Error|Exception|Interrupt)\b(?:: .*)?)$"
)
"""The last line of a Python traceback: `torch.OutOfMemoryError: CUDA out of memory. …`."""
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class LastError:
    """Keeps the end of a command's output."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the output."""
        self._tail = (self._tail + data)[-TAIL_BYTES:]

    def line(self) -> str | None:
        """The last error line in the output, without control characters; None if there is none."""
        for line in reversed(self._tail.decode("utf-8", "replace").splitlines()):
            match = ERROR_LINE.match(CONTROL.sub("", line[:2000]).strip())
            if match:
                return match[1][:LONGEST_ERROR]
        return None
