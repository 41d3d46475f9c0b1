"""The marks that the verdicts go by: one table, each with its unit and where it comes from."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen

GUIDES = "the acceleration guide: utilisation near 100 %, memory 70 to 90 %, 70 to 85 °C"
OURS = "chosen here, checked on the labelled runs of tests/test_monitor_judge.py"


class Mark(Frozen):
    value: float
    unit: str
    means: str
    source: str = OURS


QUIET = Mark(value=3, unit="%", means="utilisation up to here is none: a display, a stray kernel")
BUSY = Mark(value=85, unit="%", means="utilisation from here on is near 100 %", source=GUIDES)
LOW = Mark(value=50, unit="%", means="below this comes the ordered advice", source=GUIDES)
IDLE = Mark(value=5, unit="%", means="mean utilisation below this over a run is idle")
PAUSE = Mark(value=5, unit="s", means="a quiet stretch of this length is a pause, not a stutter")
WAITS = Mark(value=35, unit="%", means="where pauses take more of the run, they are the problem")
MEMORY_LOW = Mark(value=70, unit="%", means="memory below leaves room", source=GUIDES)
MEMORY_HIGH = Mark(value=90, unit="%", means="memory above leaves little", source=GUIDES)
MEMORY_TIGHT = Mark(
    value=95, unit="%", means="a longer sequence or a library's workspace ends the run"
)
HOT = Mark(value=85, unit="°C", means="above this clocks come down", source=GUIDES)
SLOWED = Mark(value=10, unit="%", means="a brake is on for at least this share of the work")
CAPPED = Mark(value=50, unit="%", means="the power cap is on for at least this share of the work")
CLOCKS = Mark(value=80, unit="%", means="clocks below this share of their maximum are held down")
MEMORY_BUS = Mark(value=70, unit="%", means="the memory works this much: it is the limit")
WEAK = Mark(value=45, unit="%", means="power below this share of its limit under full utilisation")
CORE_FULL = Mark(value=80, unit="%", means="a process computes this much of a core; below it waits")
WORKER_FULL = Mark(value=75, unit="%", means="a loader's worker computes this much of a core")
GAPS = Mark(value=15, unit="%", means="the GPU is quiet in at least this share of the samples")
READS = Mark(value=5e6, unit="bytes/s", means="reads more than code and logs need")
APART = Mark(value=25, unit="points", means="mean utilisations of GPUs differ by this much")
HELD = Mark(value=5, unit="%", means="an idle GPU with more memory in use belongs to the job")
SHORT = Mark(value=3, unit="samples", means="fewer cannot be judged")
