"""What `nvidia-smi` says of a GPU while it is under load. Optional everywhere.

What a driver does not answer, or a machine without the program, is nothing known.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from typing import Any, Dict, Iterator, Optional, Sequence

COMMAND = (
    "nvidia-smi",
    "--query-gpu=temperature.gpu,ecc.errors.uncorrected.volatile.total,"
    "clocks_throttle_reasons.active",
    *("--format=csv,noheader,nounits", "--loop=1"),
)
REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
"""Bits of the clocks' throttle reasons (nvml.h); idle and set clocks are no throttling."""
ROW = re.compile(r"(\d*)[^,]*, (\d*)[^,]*, (?:0x([0-9a-fA-F]+))?")
"""Heat, errors and bits; a word stands where one is not known."""
LOST = re.compile(r"GPU is lost|Unable to determine the device handle|No devices were found")


@contextlib.contextmanager
def watched(uuid: Optional[str]) -> Iterator[Dict[str, Any]]:
    """Asks about a GPU every second beside the work; afterwards the row holds what was said."""
    said: Dict[str, Any] = {}
    with tempfile.TemporaryFile("w+") as lines:
        process: Any = None
        with contextlib.suppress(OSError):
            command = [*COMMAND, f"--id={uuid}"]
            process = uuid and subprocess.Popen(command, stdout=lines, stderr=lines)
        try:
            yield said
        finally:
            if process:
                process.kill()
                process.wait()
            lines.seek(0)
            said.update(summed(lines.read().splitlines()))


def summed(lines: Sequence[str]) -> Dict[str, Any]:
    """What all samples say; nothing where there is none.

    >>> summed(["40, 1, 0x0000000000000000", "90, 3, 0x0000000000000004"])
    {'hottest': 90, 'ecc_new': 2, 'reasons': ('sw_power_cap',), 'lost': False}
    """
    rows = [found.groups("") for found in map(ROW.match, lines) if found]
    lost = any(map(LOST.search, lines))
    if not rows:
        return {"lost": True} if lost else {}
    heat, ecc, bits = (
        [int(x, 16 * (n == 2) or 10) for x in column if x] for n, column in enumerate(zip(*rows))
    )
    return {
        "hottest": max(heat, default=None),
        "ecc_new": ecc[-1] - ecc[0] if ecc else 0,
        "reasons": tuple(sorted(r for bit, r in REASONS.items() if any(b & bit for b in bits))),
        "lost": lost,
    }
