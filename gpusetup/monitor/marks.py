"""The marks that the verdicts go by: one table, each with its unit and where it comes from."""

from __future__ import annotations

GUIDES = "the acceleration guide: utilisation near 100 %, memory 70 to 90 %, 70 to 85 °C"
OURS = "chosen here, checked on the labelled runs of tests/monitor_kinds.py"


class Mark(float):
    """A number with its unit, what it means, and its source."""

    unit: str
    means: str
    source: str

    def __new__(cls, value: float, unit: str, means: str, source: str = OURS) -> Mark:
        made = super().__new__(cls, value)
        made.unit, made.means, made.source = unit, means, source
        return made


QUIET = Mark(3, "%", "utilisation up to here is none: a display, a stray kernel")
BUSY = Mark(85, "%", "utilisation from here on is near 100 %", GUIDES)
LOW = Mark(50, "%", "below this comes the ordered advice", GUIDES)
IDLE = Mark(5, "%", "mean utilisation below this over a run is idle")
BLIP = Mark(10, "%", "utilisation below this does not end a pause")
PAUSE = Mark(5, "s", "a quiet stretch of this length is a pause, not a stutter")
WAITS = Mark(25, "%", "where pauses take more of the run, they are the problem")
MEMORY_LOW = Mark(70, "%", "memory below leaves room", GUIDES)
MEMORY_HIGH = Mark(90, "%", "memory above leaves little", GUIDES)
MEMORY_TIGHT = Mark(95, "%", "a longer sequence or a library's workspace ends the run")
HOT = Mark(85, "°C", "above this clocks come down", GUIDES)
SLOWED = Mark(10, "%", "a brake is on for at least this share of the work")
CAPPED = Mark(50, "%", "the power cap is on for at least this share of the work")
CLOCKS = Mark(80, "%", "clocks below this share of their maximum are held down")
MEMORY_BUS = Mark(70, "%", "the memory works this much: it is the limit")
CORE_FULL = Mark(80, "%", "a process computes this much of a core; below it waits")
WORKER_FULL = Mark(75, "%", "a loader's worker computes this much of a core")
GAPS = Mark(15, "%", "the GPU is quiet in at least this share of the samples")
READS = Mark(5000000.0, "bytes/s", "reads more than code and logs need")
APART = Mark(25, "points", "mean utilisations of GPUs differ by this much")
HELD = Mark(5, "%", "an idle GPU with more memory in use belongs to the job")
SHORT = Mark(3, "samples", "fewer cannot be judged")
MEMORY_FULL = Mark(98, "%", "memory that is full: the next allocation fails")
MEMORY_GONE = Mark(50, "%", "memory that falls below this from full: it ended")
GROWN = Mark(20, "points", "memory that grew all the time by this much leaks")
WARM_LESS = Mark(0.6, "part", "a warm-up works less than this part of later work")
WARM_FULL = Mark(0.8, "part", "from this part of later work on it is over")
WARM_MOST = Mark(60, "%", "what takes more of the run is no warm-up")
IDLE_POWER = Mark(12, "%", "of its power limit, what a card draws without work")
LIGHT = Mark(35, "%", "power above that, of the time with work: below it is light")
UNUSED = Mark(75, "%", "of its limit: a card that draws less has power left")
SLOWER = Mark(75, "%", "of the clock of its twins in the same job")
CONTEXT = Mark(200 << 20, "bytes", "of GPU memory: a process has begun to use it")
BEGINS = Mark(30, "s", "a busy program that is younger has only begun")
STARTS = Mark(150, "s", "where GPU memory rises, a younger record is a start-up")
FAINT = Mark(10, "%", "mean utilisation as of a desktop, where nothing is told")
FAINT_MOST = Mark(22, "%", "its 95th percentile")
FAINT_MEMORY = Mark(15, "%", "and what a desktop holds of the memory")
ENGINE = Mark(60, "%", "a video engine that is the limit")
SLOW_LINK = Mark(5000000000.0, "bytes/s", "one way over PCIe: one to four lanes")
PCIE_USUAL = Mark(
    31500000000.0,
    "bytes/s",
    "16 lanes of PCIe 4, one way",
    "PCI Express 4.0: 16 GT/s a lane, 128b/130b",
)
SHARED = Mark(5, "%", "of the multiprocessors: another process takes its part")
LONG_PAUSE = Mark(8, "s", "pauses of this mean length are no stutter")
PAUSES_TOLD = Mark(10, "%", "of the time: a good run with pauses says so")
LIGHT_MOST = Mark(58, "%", "the same beside a PCIe link in full use")
MANY = Mark(250, "%", "of a core: one process that computes on many threads")
HELPERS = Mark(150, "%", "of a core: other processes of the command compute")
USED_UP = Mark(88, "%", "of the cores that the command may use")
HELD_BACK = Mark(25, "%", "of the periods in which the CPU quota was used up")
HOST_FULL = Mark(90, "%", "of all cores of the machine")
OTHERS = Mark(30, "%", "of all cores, used by others than the command")
BLOCKED = Mark(0.5, "processes", "that wait for a disk, on average")
NETWORK = Mark(20000000.0, "bytes/s", "received: more than logs and metrics")
NETWORK_FULL = Mark(200000000.0, "bytes/s", "received: as ranks exchange gradients")
WRITES = Mark(50000000.0, "bytes/s", "written: a checkpoint, not a log")
LINK = Mark(20000000000.0, "bytes/s", "over NVLink: much of what GPUs exchange")
PCIE = Mark(4000000000.0, "bytes/s", "over PCIe: more than batches of data")
HUNG = Mark(40, "s", "a stretch without progress of this length is a hang")
HUNG_UNTOLD = Mark(120, "s", "the same, where nobody told how the run ended")
RESTS = Mark(20, "%", "of a core, all processes together: they wait")
FELL = Mark(1.5, "times", "the power before it, where work stopped")
FEW_SMS = Mark(30, "%", "of the multiprocessors have work: kernels are small")
BRIEF = Mark(10, "samples", "fewer say little about a run")
SPINS = Mark(95, "%", "utilisation of a card that waits in a collective")
APART_POWER = Mark(30, "points", "power shares of busy GPUs differ by this much")
RATED = Mark(95, "%", "of the rated power: a limit below it was lowered")
ROOM = Mark(103, "%", "of the limit: a card that takes more has room")
FAST_ENOUGH = Mark(60, "%", "clocks at the rated limit that heavy work brings")
LIKE_MEMORY = Mark(15, "points", "memory of two ranks of one job is this close")
