"""NVML by ctypes: what a GPU says of itself while it is under load. Optional everywhere.

The folder stands alone, so no binding is needed: six functions of the driver's own library. What
a driver does not answer is None.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

LIBRARY = "nvml.dll" if os.name == "nt" else "libnvidia-ml.so.1"
LOST = 15
"""NVML_ERROR_GPU_IS_LOST."""
CELSIUS, UNCORRECTED, VOLATILE = 0, 1, 0
XID_EVENTS = 8
"""nvmlEventTypeXidCriticalError."""
REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
"""Bits of the clocks' throttle reasons (nvml.h); idle and set clocks are no throttling."""


class Sample(NamedTuple):
    """What a GPU said at one moment."""

    temperature_celsius: Optional[int] = None
    reasons: Tuple[str, ...] = ()
    ecc_uncorrected: Optional[int] = None
    lost: bool = False


class Event(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = [
        ("device", c_void_p),
        ("kind", c_ulonglong),
        ("data", c_ulonglong),
        ("instances", c_uint * 2),
    ]


class Watched:
    """One GPU, asked by its UUID."""

    def __init__(self, library: Any, handle: Any) -> None:
        self.library = library
        self.handle = handle
        self.events: Any = c_void_p()
        """The set of Xid events; none where this driver or library has none."""
        try:
            kinds = c_ulonglong(XID_EVENTS)
            if library.nvmlEventSetCreate(byref(self.events)) or library.nvmlDeviceRegisterEvents(
                handle, kinds, self.events
            ):
                self.events = None
        except AttributeError:
            self.events = None

    def sample(self) -> Sample:
        """Ask everything once."""
        codes: List[int] = []

        def number(name: str, kind: Any, *arguments: int) -> Optional[int]:
            value, asked = kind(), getattr(self.library, "nvmlDeviceGet" + name, None)
            if asked is None:
                return None
            codes.append(int(asked(self.handle, *arguments, byref(value))))
            return None if codes[-1] else int(value.value)

        bits = number("CurrentClocksThrottleReasons", c_ulonglong) or 0
        return Sample(
            number("Temperature", c_uint, CELSIUS),
            tuple(name for bit, name in REASONS.items() if bits & bit),
            number("TotalEccErrors", c_ulonglong, UNCORRECTED, VOLATILE),
            LOST in codes,
        )

    def xids(self) -> List[int]:
        """The Xid numbers since the last question."""
        found, event = [], Event()
        while self.events and not self.library.nvmlEventSetWait_v2(self.events, byref(event), 0):
            found.append(int(event.data))
        return found


def watch(uuid: Optional[str]) -> Optional[Watched]:
    """The GPU of a UUID; None where NVML or the GPU is not there."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    if not uuid or library.nvmlInit_v2() != 0:
        return None
    bare = uuid[4:] if uuid[3:4] == "-" else uuid
    for name in (uuid, f"GPU-{bare}", f"MIG-{bare}"):
        handle = c_void_p()
        if library.nvmlDeviceGetHandleByUUID(ctypes.c_char_p(name.encode()), byref(handle)) == 0:
            return Watched(library, handle)
    return None


class Watch:
    """Samples a GPU every second beside the work, in a thread."""

    def __init__(self, gpu: Watched, pause: float = 1.0, clock: Any = time.monotonic) -> None:
        self.gpu, self.pause, self.clock = gpu, pause, clock
        self.samples: List[Tuple[float, Sample]] = []
        self.xids: List[int] = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self.gpu.xids()
        self._take()
        self.thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.done.set()
        self.thread.join(timeout=5)

    def _run(self) -> None:
        while not self.done.wait(self.pause):
            self._take()

    def _take(self) -> None:
        self.samples.append((self.clock(), self.gpu.sample()))
        self.xids.extend(self.gpu.xids())


def summed(samples: List[Sample], xids: List[int]) -> Dict[str, Any]:
    """What a run of samples says.

    >>> hot = Sample(temperature_celsius=90, ecc_uncorrected=2, reasons=("sw_power_cap",))
    >>> summed([Sample(temperature_celsius=40, ecc_uncorrected=1), hot], [])["ecc_new"]
    1
    """
    ecc = [s.ecc_uncorrected for s in samples if s.ecc_uncorrected is not None]
    return {
        "hottest": max((s.temperature_celsius or 0 for s in samples), default=0) or None,
        "reasons": tuple(sorted({reason for s in samples for reason in s.reasons})),
        "ecc_new": ecc[-1] - ecc[0] if ecc else 0,
        "xids": tuple(xids),
        "lost": any(s.lost for s in samples),
    }
