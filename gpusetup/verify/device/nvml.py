"""NVML by ctypes: what a GPU says of itself while it is under load. Optional everywhere.

The folder stands alone, so no binding is needed: six functions of the driver's own library. What
a driver does not answer is None.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

LIBRARIES = ("nvml.dll",) if os.name == "nt" else ("libnvidia-ml.so.1",)
LOST = 15
"""NVML_ERROR_GPU_IS_LOST."""
CELSIUS, SM_CLOCK, UNCORRECTED, VOLATILE = 0, 1, 1, 0
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
    sm_mhz: Optional[int] = None
    watts: Optional[float] = None
    reasons: Tuple[str, ...] = ()
    ecc_uncorrected: Optional[int] = None
    lost: bool = False


class Event(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = [
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Watched:
    """One GPU, asked by its UUID."""

    def __init__(self, library: Any, handle: Any) -> None:
        self.library = library
        self.handle = handle
        self.events = self._register()

    def sample(self) -> Sample:
        """Ask everything once."""
        codes: List[int] = []
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong, codes)
        watts = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint, codes)
        return Sample(
            temperature_celsius=self._number(
                "nvmlDeviceGetTemperature", ctypes.c_uint, codes, CELSIUS
            ),
            sm_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, codes, SM_CLOCK),
            watts=None if watts is None else watts / 1000,
            reasons=reasons_in(bits or 0),
            ecc_uncorrected=self._number(
                "nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong, codes, UNCORRECTED, VOLATILE
            ),
            lost=LOST in codes,
        )

    def _number(self, name: str, kind: Any, codes: List[int], *arguments: int) -> Optional[int]:
        asked = getattr(self.library, name, None)
        if asked is None:
            return None
        value = kind()
        code = int(asked(self.handle, *arguments, ctypes.byref(value)))
        codes.append(code)
        return int(value.value) if code == 0 else None

    def _register(self) -> Optional[Any]:
        """The set of Xid events; None where this driver or library has none."""
        made = getattr(self.library, "nvmlEventSetCreate", None)
        events = ctypes.c_void_p()
        if made is None or made(ctypes.byref(events)) != 0:
            return None
        kinds = ctypes.c_ulonglong(XID_EVENTS)
        if self.library.nvmlDeviceRegisterEvents(self.handle, kinds, events) != 0:
            return None
        return events

    def xids(self) -> Tuple[int, ...]:
        """The Xid numbers since the last question."""
        found: List[int] = []
        event = Event()
        while (
            self.events
            and self.library.nvmlEventSetWait_v2(self.events, ctypes.byref(event), 0) == 0
        ):
            found.append(int(event.data))
        return tuple(found)


def watch(uuid: Optional[str]) -> Optional[Watched]:
    """The GPU of a UUID; None where NVML or the GPU is not there."""
    library = _library()
    if library is None or not uuid or library.nvmlInit_v2() != 0:
        return None
    bare = uuid[4:] if uuid.startswith(("GPU-", "MIG-")) else uuid
    for name in dict.fromkeys((uuid, f"GPU-{bare}", f"MIG-{bare}")):
        handle = ctypes.c_void_p()
        text = ctypes.c_char_p(name.encode())
        if library.nvmlDeviceGetHandleByUUID(text, ctypes.byref(handle)) == 0:
            return Watched(library, handle)
    return None


def _library() -> Optional[Any]:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def reasons_in(bits: int) -> Tuple[str, ...]:
    """
    >>> reasons_in(0x41), reasons_in(0x1)
    (('hw_thermal_slowdown',), ())
    """
    return tuple(name for bit, name in REASONS.items() if bits & bit)


class Watch:
    """Samples a GPU every second beside the work, in a thread."""

    def __init__(
        self, gpu: Watched, pause: float = 1.0, clock: Callable[[], float] = time.monotonic
    ):
        self.gpu = gpu
        self.pause = pause
        self.clock = clock
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
    temperatures = [s.temperature_celsius for s in samples if s.temperature_celsius is not None]
    clocks = [s.sm_mhz for s in samples[1:] if s.sm_mhz is not None]
    ecc = [s.ecc_uncorrected for s in samples if s.ecc_uncorrected is not None]
    return {
        "hottest": max(temperatures, default=None),
        "mhz": sum(clocks) / len(clocks) if clocks else None,
        "reasons": tuple(sorted({reason for s in samples for reason in s.reasons})),
        "ecc_new": ecc[-1] - ecc[0] if ecc else 0,
        "xids": tuple(xids),
        "lost": any(s.lost for s in samples),
    }
