"""Ask the kernel whether its clock follows a time server; print one line of JSON.

    {"synchronised": true, "error_seconds": 0.0042}     what adjtimex says; nothing is changed
    {"problem": "..."}                                  where there is no such call (not Linux)

`error_seconds` is the most that the clock can be wrong by, as the time daemon tells the kernel.
Python 3.8 syntax; imports the standard library only.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any, Dict

TIME_ERROR = 5
STA_UNSYNC = 0x0040


class Timex(ctypes.Structure):
    """The head of `struct timex` (linux/timex.h), and room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def main() -> Dict[str, Any]:
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError, TypeError) as problem:
        return {"problem": "there is no adjtimex: %s" % problem}
    asked = Timex()
    state = call(ctypes.byref(asked))
    if state < 0:
        return {"problem": "adjtimex: error %d" % ctypes.get_errno()}
    unsynchronised = state == TIME_ERROR or bool(asked.status & STA_UNSYNC)
    return {"synchronised": not unsynchronised, "error_seconds": asked.maxerror / 1e6}


if __name__ == "__main__":
    print(json.dumps(main()))
