"""The thresholds for the verdicts, each with its unit.

The acceleration guide gives utilisation near 100 %, memory 70 to 90 %, 70 to 85 °C; the others
are chosen here and checked on the labelled runs of tests/monitor/monitor_kinds.py.
"""

from __future__ import annotations

QUIET = 3.0  # %: utilisation up to here is none: a display, a stray kernel
BUSY = 85.0  # %: utilisation from here on is near 100 %
LOW = 50.0  # %: below this comes the ordered advice
IDLE = 5.0  # %: mean utilisation below this over a run is idle
STRAY_USE = 10.0  # %: utilisation below this does not end a pause
STRAY_PART = 20.0  # %: of the usual utilisation, nor does less than this part of it
PAUSE_SECONDS = 5.0  # s: a quiet stretch of this length is a pause, not a stutter
PAUSE_SHARE = 20.0  # %: if pauses take more of the run, they are the problem
SLOW_PHASES_SHARE = 10.0  # %: regular long phases of less work take this much of the time
MEMORY_LOW = 70.0  # %: memory below leaves room
MEMORY_HIGH = 90.0  # %: memory above leaves little
MEMORY_TIGHT = 95.0  # %: a longer sequence or a library's workspace ends the run
HOT = 85.0  # °C: above this clocks come down
THROTTLED_SHARE = 10.0  # %: a throttle reason is on for at least this share of the work
POWER_CAPPED_SHARE = 50.0  # %: the power cap is on for at least this share of the work
LOW_CLOCKS = 80.0  # %: clocks below this share of their maximum are held down
CORE_FULL = 80.0  # %: a process computes this much of a core; below it waits
QUIET_SHARE = 15.0  # %: the GPU is quiet in at least this share of the samples
READ_RATE = 5e6  # bytes/s: reads more than code and logs need
USE_DIFFERENCE = 25.0  # points: mean utilisations of GPUs differ by this much
HELD_MEMORY = 5.0  # %: an idle GPU with more memory in use belongs to the job
LEAST_SAMPLES = 3.0  # samples: fewer cannot be judged
MEMORY_FULL = 98.0  # %: memory that is full: the next allocation fails
MEMORY_GONE = 50.0  # %: memory that falls below this from full: it ended
LEAK_GROWTH = 20.0  # points: memory that grew all the time by this much leaks
WARM_UP_USE = 0.6  # part: a warm-up works less than this part of later work
WARMED_UP_USE = 0.8  # part: from this part of later work on it is over
LONGEST_WARM_UP = 60.0  # %: what takes more of the run is no warm-up
IDLE_POWER = 12.0  # %: of its power limit, what a card draws without work
LIGHT_POWER = 35.0  # %: power above that, of the time with work: below it is light
POWER_LEFT = 75.0  # %: of its limit: a card that draws less has power left
CUDA_CONTEXT = 200 << 20  # bytes: of GPU memory: a process has begun to use it
YOUNG_SECONDS = 30.0  # s: a busy program that is younger has only begun
START_UP_SECONDS = 150.0  # s: where GPU memory rises, a younger record is a start-up
DESKTOP_MEMORY = 15.0  # %: what a desktop holds of the memory, where nothing is told
MANY_THREADS = 250.0  # %: of a core: one process that computes on many threads
HELPER_CPU = 150.0  # %: of a core: other processes of the command compute
CPU_USED_UP = 88.0  # %: of the cores that the command may use
NETWORK_RATE = 2e7  # bytes/s: received: more than logs and metrics
WRITE_RATE = 5e7  # bytes/s: written: a checkpoint, not a log
NVLINK_RATE = 2e10  # bytes/s: over NVLink: much of what GPUs exchange
PCIE_RATE = 4e9  # bytes/s: over PCIe: more than batches of data
HANG_SECONDS = 40.0  # s: a stretch without progress of this length is a hang
HANG_SECONDS_UNENDED = 120.0  # s: the same, where nobody told how the run ended
RESTING_CPU = 20.0  # %: of a core, all processes together: they wait
POWER_DROP = 1.5  # times: the power before it, where work stopped
FEW_SAMPLES = 10.0  # samples: fewer say little about a run
SPINNING_USE = 95.0  # %: utilisation of a card that waits in a collective
POWER_DIFFERENCE = 30.0  # points: power shares of busy GPUs differ by this much
ALIKE = 10.0  # points: GPUs of one job differ by less in use, power and memory
RATED_POWER = 95.0  # %: of the rated power: a limit below it was lowered
RATED_CLOCKS = 60.0  # %: clocks at the rated limit that heavy work brings
PCIE_LAUNCHES = 3e8  # bytes/s to a card: launches alone bring so much (H100: 260 MB/s measured)
START_UP_NOTE = 2.0  # s: a shorter start-up is not worth a word
HALF_POWER = 60.0  # %: power while kernels run: below it they wait for data from elsewhere
NETWORK_FULL = 70.0  # %: of what the network interface carries
NETWORK_MUCH = 1e8  # bytes/s: gradients between machines; a network of 1 Gbit/s is full with it
EMPTY_MEMORY = 200 << 20  # bytes: less than a CUDA context: nothing can compute on this GPU
TOUCH_SECONDS = 3.0  # s: work of this length before a longer pause is part of the start
AWAKE_SHARE = 80.0  # %: of the samples: with clocks of work in so many, a GPU is ready all along
LEAST_TREES = 2.0  # samples of the command: fewer say nothing about it
