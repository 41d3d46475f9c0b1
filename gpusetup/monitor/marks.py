"""The marks that the verdicts go by: one table, each with its unit and where it comes from."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen

GUIDES = "the acceleration guide: utilisation near 100 %, memory 70 to 90 %, 70 to 85 °C"
OURS = "chosen here, checked on the labelled runs of tests/monitor_kinds.py"


class Mark(Frozen):
    value: float
    unit: str
    means: str
    source: str = OURS


QUIET = Mark(value=3, unit="%", means="utilisation up to here is none: a display, a stray kernel")
BUSY = Mark(value=85, unit="%", means="utilisation from here on is near 100 %", source=GUIDES)
LOW = Mark(value=50, unit="%", means="below this comes the ordered advice", source=GUIDES)
IDLE = Mark(value=5, unit="%", means="mean utilisation below this over a run is idle")
BLIP = Mark(value=10, unit="%", means="utilisation below this does not end a pause")
PAUSE = Mark(value=5, unit="s", means="a quiet stretch of this length is a pause, not a stutter")
WAITS = Mark(value=25, unit="%", means="where pauses take more of the run, they are the problem")
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
CORE_FULL = Mark(value=80, unit="%", means="a process computes this much of a core; below it waits")
WORKER_FULL = Mark(value=75, unit="%", means="a loader's worker computes this much of a core")
GAPS = Mark(value=15, unit="%", means="the GPU is quiet in at least this share of the samples")
READS = Mark(value=5e6, unit="bytes/s", means="reads more than code and logs need")
APART = Mark(value=25, unit="points", means="mean utilisations of GPUs differ by this much")
HELD = Mark(value=5, unit="%", means="an idle GPU with more memory in use belongs to the job")
SHORT = Mark(value=3, unit="samples", means="fewer cannot be judged")
MEMORY_FULL = Mark(value=98, unit="%", means="memory that is full: the next allocation fails")
MEMORY_GONE = Mark(value=50, unit="%", means="memory that falls below this from full: it ended")
GROWN = Mark(value=20, unit="points", means="memory that grew all the time by this much leaks")
WARM_LESS = Mark(value=0.6, unit="part", means="a warm-up works less than this part of later work")
WARM_FULL = Mark(value=0.8, unit="part", means="from this part of later work on it is over")
WARM_MOST = Mark(value=60, unit="%", means="what takes more of the run is no warm-up")
IDLE_POWER = Mark(value=12, unit="%", means="of its power limit, what a card draws without work")
LIGHT = Mark(value=35, unit="%", means="power above that, of the time with work: below it is light")
UNUSED = Mark(value=75, unit="%", means="of its limit: a card that draws less has power left")
SLOWER = Mark(value=75, unit="%", means="of the clock of its twins in the same job")
CONTEXT = Mark(value=200 << 20, unit="bytes", means="of GPU memory: a process has begun to use it")
BEGINS = Mark(value=30, unit="s", means="a busy program that is younger has only begun")
STARTS = Mark(value=150, unit="s", means="where GPU memory rises, a younger record is a start-up")
FAINT = Mark(value=10, unit="%", means="mean utilisation as of a desktop, where nothing is told")
FAINT_MOST = Mark(value=22, unit="%", means="its 95th percentile")
FAINT_MEMORY = Mark(value=15, unit="%", means="and what a desktop holds of the memory")
ENGINE = Mark(value=60, unit="%", means="a video engine that is the limit")
SLOW_LINK = Mark(value=5e9, unit="bytes/s", means="one way over PCIe: one to four lanes")
PCIE_USUAL = Mark(value=3.15e10, unit="bytes/s", means="16 lanes of PCIe 4, one way",
                  source="PCI Express 4.0: 16 GT/s a lane, 128b/130b")  # fmt: skip
SHARED = Mark(value=5, unit="%", means="of the multiprocessors: another process takes its part")
LONG_PAUSE = Mark(value=8, unit="s", means="pauses of this mean length are no stutter")
PAUSES_TOLD = Mark(value=10, unit="%", means="of the time: a good run with pauses says so")
LIGHT_MOST = Mark(value=58, unit="%", means="the same beside a PCIe link in full use")
MANY = Mark(value=250, unit="%", means="of a core: one process that computes on many threads")
HELPERS = Mark(value=150, unit="%", means="of a core: other processes of the command compute")
USED_UP = Mark(value=88, unit="%", means="of the cores that the command may use")
HELD_BACK = Mark(value=25, unit="%", means="of the periods in which the CPU quota was used up")
HOST_FULL = Mark(value=90, unit="%", means="of all cores of the machine")
OTHERS = Mark(value=30, unit="%", means="of all cores, used by others than the command")
BLOCKED = Mark(value=0.5, unit="processes", means="that wait for a disk, on average")
NETWORK = Mark(value=2e7, unit="bytes/s", means="received: more than logs and metrics")
NETWORK_FULL = Mark(value=2e8, unit="bytes/s", means="received: as ranks exchange gradients")
WRITES = Mark(value=5e7, unit="bytes/s", means="written: a checkpoint, not a log")
LINK = Mark(value=2e10, unit="bytes/s", means="over NVLink: much of what GPUs exchange")
PCIE = Mark(value=4e9, unit="bytes/s", means="over PCIe: more than batches of data")
HUNG = Mark(value=40, unit="s", means="a stretch without progress of this length is a hang")
HUNG_UNTOLD = Mark(value=120, unit="s", means="the same, where nobody told how the run ended")
RESTS = Mark(value=20, unit="%", means="of a core, all processes together: they wait")
FELL = Mark(value=1.5, unit="times", means="the power before it, where work stopped")
FEW_SMS = Mark(value=30, unit="%", means="of the multiprocessors have work: kernels are small")
BRIEF = Mark(value=10, unit="samples", means="fewer say little about a run")
SPINS = Mark(value=95, unit="%", means="utilisation of a card that waits in a collective")
APART_POWER = Mark(value=30, unit="points", means="power shares of busy GPUs differ by this much")
RATED = Mark(value=95, unit="%", means="of the rated power: a limit below it was lowered")
ROOM = Mark(value=103, unit="%", means="of the limit: a card that takes more has room")
FAST_ENOUGH = Mark(value=60, unit="%", means="clocks at the rated limit that heavy work brings")
LIKE_MEMORY = Mark(value=15, unit="points", means="memory of two ranks of one job is this close")
