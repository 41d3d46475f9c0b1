"""The one next step of each verdict, as a command where there is one; and the ordered advice."""

from __future__ import annotations

import shlex

from gpusetup.monitor.facts import RunFacts
from gpusetup.monitor.marks import IDLE
from gpusetup.monitor.values import NextStep

MOST_WORKERS = 16
"""More loader workers than this per GPU are seldom worth their memory."""

TUNE = "gpusetup tune {config}"
BENCHMARK = "gpusetup tune {config} --benchmark"
BATCH_SIZE = "gpusetup tune --batch-size --code MODULE:FUNCTION"
TORCHRUN = "torchrun --nproc_per_node={gpus} {script}"

# Verdict, cause ("": any) -> what to do, the command. `{workers}`, `{config}` and such stand for
# what fits the run. Sources: the acceleration and the multi-GPU guides; PyTorch's performance
# tuning guide (workers, pinning, channels_last, compile, DDP); `nvidia-smi --help`.
STEPS: dict[tuple[str, str], tuple[str, str | None]] = {
    ("input-starved", "no-workers"): (
        "Load with workers: num_workers={workers}, pin_memory=True",
        TUNE,
    ),
    ("input-starved", "workers"): (
        "Up to {workers} loader workers; where it has them, decode less per item or cache it",
        TUNE,
    ),
    ("input-starved", "disk"): (
        "Keep the data on a local SSD or in memory, in fewer and larger files",
        TUNE,
    ),
    ("input-starved", ""): (
        "Let the loader run ahead: num_workers={workers}, persistent_workers=True",
        TUNE,
    ),
    ("launch-bound", ""): (
        "Give the GPU more per kernel: a larger batch, torch.compile or CUDA graphs",
        BENCHMARK,
    ),
    ("memory-bound", ""): (
        "Move fewer bytes: bf16 autocast, channels_last, torch.compile to fuse small steps",
        BENCHMARK,
    ),
    ("memory-tight", ""): (
        "Find the largest batch that leaves a margin, and accumulate gradients",
        BATCH_SIZE,
    ),
    ("throttled", "heat"): (
        "Cool it: fans, dust, airflow, neighbours",
        "nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
    ),
    ("throttled", "power"): (
        "Raise the power limit where the card and its cooling allow it",
        "nvidia-smi -q -d POWER",
    ),
    ("throttled", "supply"): (
        "Check the power cables, the supply and the slot",
        "nvidia-smi -q -d POWER,PERFORMANCE",
    ),
    ("throttled", "clocks"): ("Take back the clocks that were set", "nvidia-smi -rac"),
    ("idle", "held"): (
        "A process holds the GPU but computes nothing on it: see where it waits",
        "gpusetup verify",
    ),
    ("idle", "unused"): (
        "Nothing ran on the GPU: see whether this torch can use it",
        "gpusetup doctor",
    ),
    ("uneven", "none"): ("Start one process for each GPU", TORCHRUN),
    ("uneven", "less"): ("Give every GPU the same work: DDP, a DistributedSampler", TORCHRUN),
    ("", "no-gpu"): ("See why no GPU can be watched", "gpusetup doctor"),
}

ADVICE = (
    "larger batch, the effective one kept by accumulation: `" + BATCH_SIZE + "`",
    "DataLoader with num_workers={workers}, pin_memory, persistent_workers: `" + TUNE + "`",
    "mixed precision: torch.amp.autocast in bfloat16 from compute capability 8.0 on, else float16 "
    "with a GradScaler",
)
"""The order of the acceleration guide for utilisation below 50 %: batch, loader, AMP."""


def next_step(verdict: str | None, cause: str, facts: RunFacts) -> NextStep | None:
    """The row of the verdict, filled in for this run; None where there is nothing to do."""
    row = STEPS.get((verdict or "", cause)) or STEPS.get((verdict or "", ""))
    if row is None:
        return None
    words = _words(facts)
    text, command = row
    return NextStep(text=text.format(**words), command=command and command.format(**words))


def ordered_advice(facts: RunFacts) -> tuple[str, ...]:
    return tuple(line.format(**_words(facts)) for line in ADVICE)


def _words(facts: RunFacts) -> dict[str, str]:
    return {
        "workers": str(useful_workers(facts)),
        "config": shlex.quote(config_of(facts.command) or "CONFIG.yaml"),
        "script": shlex.quote(script_of(facts.command) or "train.py"),
        "gpus": str(len([gpu for gpu in facts.gpus if gpu.lost_at is None])),
    }


def useful_workers(facts: RunFacts) -> int:
    """The usable cores, shared by the GPUs at work; 4 where the cores are not known.

    >>> useful_workers(RunFacts(samples=0, seconds=0, cores=12))
    12
    """
    used = sum((gpu.utilization or 0.0) >= IDLE.value for gpu in facts.gpus)
    return max(1, min(MOST_WORKERS, (facts.cores or 4) // max(1, used)))


def config_of(command: tuple[str, ...] | None) -> str | None:
    """The configuration that the command names.

    >>> config_of(("python", "train.py", "--config=conf/a.yaml"))
    'conf/a.yaml'
    """
    words = [word.rpartition("=")[2] for word in command or ()]
    return next((word for word in words if word.endswith((".yaml", ".yml", ".json"))), None)


def script_of(command: tuple[str, ...] | None) -> str | None:
    """The Python file that the command runs.

    >>> script_of(("python", "-u", "train.py", "--lr", "1"))
    'train.py'
    """
    return next((word for word in command or () if word.endswith(".py")), None)
