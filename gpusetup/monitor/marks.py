"""The thresholds for the verdicts, each with its unit.

The acceleration guide recommends utilisation near 100 %, memory at 70 to 90 %, and 70 to 85 °C. We
chose the other thresholds, and checked them on the labelled runs in tests/monitor/composed_runs.py.
"""

from __future__ import annotations

QUIET = 3.0  # %: utilisation up to this counts as none (a display, a stray kernel)
BUSY = 85.0  # %: utilisation at or above this counts as near 100 %
LOW = 50.0  # %: utilisation below this gets the acceleration guide's advice
IDLE = 5.0  # %: a run with a lower mean utilisation is idle
PAUSE_SECONDS = 5.0  # s: a quiet stretch of this length is a pause rather than a stutter
PAUSE_SHARE = 17.0  # %: if pauses take more of the run than this, they are the problem
MEMORY_LOW = 70.0  # %: below this, a GPU's memory has room for a larger batch
MEMORY_HIGH = 90.0  # %: above this, a GPU's memory has little room left
MEMORY_TIGHT = 95.0  # %: above this, a longer sequence or a library's workspace may end the run
HOT = 85.0  # °C: above this, the GPU lowers its clocks
THROTTLED_SHARE = 10.0  # %: a throttle reason must be active in this share of the work to count
POWER_CAPPED_SHARE = 50.0  # %: the power cap must be active in this share of the work to count
LOW_CLOCKS = 80.0  # % of the maximum: lower clocks count as throttled
CORE_FULL = 80.0  # % of a core: a process that uses less is partly waiting
WORKED_P95 = 15.0  # %: a GPU whose utilisation has this 95th percentile worked for a time
READ_RATE = 5e6  # bytes/s: a higher read rate is more than code and logs need
USE_DIFFERENCE = 25.0  # points: GPUs are uneven if their mean utilisations differ by this
BIG_HOLDER = 10.0  # % of a GPU's memory: less is a desktop or a bare CUDA context
LEAST_SAMPLES = 3.0  # samples: a run with fewer cannot be judged
LEAK_GROWTH = 15.0  # points: memory that grows by this much, all the time, is a leak
IDLE_POWER = 12.0  # % of its power limit: what an idle card draws
LIGHT_POWER = 35.0  # % of the power limit, in addition to idle power: a smaller draw is light work
YOUNG_SECONDS = 30.0  # s: a busy program that has run for less has only just begun
DESKTOP_MEMORY = 15.0  # %: GPU memory of a desktop, assumed if no processes are reported
MANY_THREADS = 250.0  # % of a core: one process that uses more computes on many threads
CPU_USED_UP = 88.0  # % of the cores that the command may use: above this they are used up
NVLINK_RATE = 2e10  # bytes/s over NVLink: a large exchange between GPUs
PCIE_RATE = 4e9  # bytes/s over PCIe: more than batches of data need
HANG_SECONDS = 40.0  # s: a stretch without progress is a hang if it is this long
RESTING_CPU = 20.0  # % of a core, all processes together: below this, they are waiting
FEW_SAMPLES = 10.0  # samples: a run with fewer says little
SHORT_SECONDS = 5.0  # s: few samples of less than this show only a moment
SPINNING_USE = 95.0  # %: a card that waits in a collective shows at least this utilisation
POWER_DIFFERENCE = 30.0  # points: busy GPUs are uneven if their power shares differ by this
SIMILAR = 10.0  # points: GPUs of one job differ by less in utilisation, power and memory
RATED_POWER = 95.0  # % of the rated power: a limit below this was lowered
RATED_CLOCKS = 60.0  # % of the maximum: clocks that heavy work reaches at the rated power limit
CAPPED_CLOCKS = 75.0  # % of the maximum: lower clocks at an unrated power limit cost much work
PCIE_LAUNCHES = 3e8  # bytes/s to a card: kernel launches need less than this (260 MB/s on an H100)
START_UP_NOTE = 2.0  # s: a shorter start-up is not worth mentioning
EMPTY_MEMORY = 200 << 20  # bytes: less than a CUDA context, so nothing can compute on this GPU
LEAST_TREES = 2.0  # samples of the command: fewer are too few to judge it
