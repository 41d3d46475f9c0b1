"""A GPU's temperature, ECC errors and throttle reasons, from `nvidia-smi` if there is one. A value
that the driver does not report is unknown."""

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
"""Bits of the throttle reasons (nvml.h), except an idle GPU and clocks set by the user."""
ROW = re.compile(r"(\d*)[^,]*, (\d*)[^,]*, (?:0x([0-9a-fA-F]+))?")
"""Temperature, ECC errors and reason bits; an unknown value is a word such as `[N/A]`."""
LOST = re.compile(r"GPU is lost|Unable to determine the device handle|No devices were found")


@contextlib.contextmanager
def watching(uuid: Optional[str]) -> Iterator[Dict[str, Any]]:
    """Query a GPU every second; after the `with` block, the dict contains the summary."""
    readings: Dict[str, Any] = {}
    with tempfile.TemporaryFile("w+") as lines:
        process: Any = None
        # Nothing can be read without nvidia-smi or without the GPU's UUID.
        if uuid:
            command = [*COMMAND, f"--id={uuid}"]
            with contextlib.suppress(OSError):
                process = subprocess.Popen(command, stdout=lines, stderr=lines)
        try:
            yield readings
        finally:
            if process:
                process.kill()
                process.wait()
            lines.seek(0)
            readings.update(summary_of(lines.read().splitlines()))


def summary_of(lines: Sequence[str]) -> Dict[str, Any]:
    """The summary of all samples: highest temperature in °C, new ECC errors, throttle reasons, and
    whether the GPU was lost. Without samples it has only `lost`, if that is true, or nothing.

    >>> summary_of(["40, 1, 0x0000000000000000", "90, 3, 0x0000000000000004"])
    {'hottest': 90, 'ecc_new': 2, 'reasons': ('sw_power_cap',), 'lost': False}
    """
    temperatures, ecc_counts, reason_bits = [], [], 0
    is_lost = any(LOST.search(line) for line in lines)
    rows = [match.groups("") for match in map(ROW.match, lines) if match]
    # A driver may report only some of the three values.
    for temperature, ecc_count, reasons in rows:
        temperatures += [int(temperature)] if temperature else []
        ecc_counts += [int(ecc_count)] if ecc_count else []
        reason_bits |= int(reasons or "0", 16)
    if not rows:
        return {"lost": True} if is_lost else {}
    return {
        "hottest": max(temperatures, default=None),
        "ecc_new": ecc_counts[-1] - ecc_counts[0] if ecc_counts else 0,
        "reasons": tuple(sorted(name for bit, name in REASONS.items() if reason_bits & bit)),
        "lost": is_lost,
    }
