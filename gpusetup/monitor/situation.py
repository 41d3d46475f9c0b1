"""A run as a next step speaks of it, and the words and commands that depend on it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpusetup.model.shell import own_word
from gpusetup.monitor.evidence import UNKNOWN, megabytes, whole
from gpusetup.monitor.run import Run, useful_workers
from gpusetup.monitor.subject import Subject
from gpusetup.monitor.work import Work, or_zero


class Situation(NamedTuple):
    """A run, and the GPU that its verdict is about; None where it is about the run."""

    run: Run
    subject: Subject | None = None

    def figure(self, read: Callable[[Subject], float | None]) -> str:
        """A figure of the GPU in whole numbers; a question mark if it is unknown."""
        return whole(read(self.subject)) if self.subject else UNKNOWN

    @property
    def work(self) -> Work | None:
        """What was done on the GPU; where no GPU was watched, what the command did."""
        return self.subject.work if self.subject else self.run.since_start

    @property
    def config(self) -> str | None:
        """The configuration that the command names, as a word of a shell."""
        return config_of(self.run.command or ())

    @property
    def script(self) -> str | None:
        """The script that the command runs, as a word of a shell."""
        scripts = [word for word in self.run.command or () if word.endswith(".py")]
        return own_word(scripts[0]) if scripts else None

    @property
    def pid(self) -> int | None:
        """A process that computes on a GPU."""
        for gpu in self.run.gpus:
            if gpu.holders:
                return min(gpu.holders)
        return None

    @property
    def working_gpus(self) -> int:
        """How many GPUs are not lost."""
        lost_gpus = [gpu for gpu in self.run.gpus if gpu.lost_at is not None]
        return len(self.run.gpus) - len(lost_gpus)

    @property
    def gpu_label(self) -> str:
        return self.subject.gpu.label if self.subject else UNKNOWN


def config_of(command: tuple[str, ...]) -> str | None:
    """The configuration that the command names.

    >>> config_of(("python", "train.py", "--config=conf/a.yaml"))
    'conf/a.yaml'
    >>> config_of(("deepspeed", "train.py", "--deepspeed_config", "zero3.json"))
    """
    for previous, word in zip(("", *command), command, strict=False):
        # DeepSpeed's own file is no training config.
        is_deepspeeds = "deepspeed" in f"{previous} {word}".partition(".")[0]
        if word.endswith((".yaml", ".yml", ".json")) and not is_deepspeeds:
            return own_word(word.rpartition("=")[2])
    return None


Words = Callable[[Situation], str]
Command = Callable[[Situation], str | None]
"""None if the run does not tell what belongs in the command."""


def always(text: str) -> Callable[[Situation], str]:
    """Words that are the same for every run."""
    return lambda situation: text


def tune(situation: Situation) -> str | None:
    return situation.config and f"gpusetup tune {situation.config}"


def benchmark(situation: Situation) -> str | None:
    return situation.config and f"gpusetup tune {situation.config} --benchmark"


def plan(situation: Situation) -> str | None:
    return situation.config and f"gpusetup plan {situation.config}"


def torchrun(situation: Situation) -> str | None:
    if situation.script is None:
        return None
    return f"torchrun --nproc_per_node={situation.working_gpus} {situation.script}"


def show_where_it_waits(situation: Situation) -> str:
    pid = "PID" if situation.pid is None else situation.pid
    return f"py-spy dump --pid {pid}"


def where_it_waits(situation: Situation) -> str:
    run = situation.run
    if len(run.gpus) == 1 and run.nodes == 1 and not run.launched:
        return "See where the process waits: the command prints what it is doing now"
    return (
        "See where the process waits. If there are several ranks, look at each: the rank that "
        "waits elsewhere is the cause. NCCL_DEBUG=INFO and TORCH_NCCL_TRACE_BUFFER_SIZE=2000 "
        "name the collective"
    )


def watch_the_command(situation: Situation) -> str | None:
    command, pid = situation.run.command, situation.pid
    if command:
        return f"gpusetup monitor -- {' '.join(map(own_word, command))}"
    return None if pid is None else f"gpusetup monitor --pid {pid}"


def processes_by(column: str) -> Command:
    """The processes of the machine that use most of something, as `ps` names it."""
    return always(f"ps -eo pid,user,{column},comm --sort=-{column} | head")


def raise_the_limit(situation: Situation) -> str:
    watts = situation.figure(lambda subject: subject.could_draw)
    return f"sudo nvidia-smi -i {situation.gpu_label} -pl {watts}"


def higher_limit(situation: Situation) -> str:
    limit = situation.figure(lambda subject: subject.power_limit_watts)
    watts = situation.figure(lambda subject: subject.could_draw)
    return f"Raise the power limit from {limit} W to {watts} W, if the cooling allows it"


def more_workers(situation: Situation) -> str:
    worker_count = whole(situation.work.workers if situation.work else None)
    return (
        f"Use up to {useful_workers(situation.run)} loader workers (now {worker_count}). Then "
        "decode less per item, or cache decoded items"
    )


def other_programs(situation: Situation) -> str:
    cpu = situation.figure(lambda subject: subject.others_cpu)
    return (
        f"End other programs: they use {cpu} % CPU of this machine's "
        f"{situation.run.host_cores} cores (100 % is one core)"
    )


def the_link(situation: Situation) -> str:
    rate = megabytes(situation.subject.gpu.link_limit if situation.subject else None)
    return (
        f"Check the PCIe link: it carries {rate} in one direction; with 16 lanes it "
        "would carry at least 15000 MB/s. Check the slot, the riser and the lanes in the "
        "firmware's settings, and copy less data in each step"
    )


def who_uses_the_cpu(situation: Situation) -> str:
    busy = whole(situation.work.host_share if situation.work else None)
    return (
        f"Find out who uses the CPU ({busy} % is busy). If it is the data loaders, "
        "do less per item or use more cores"
    )


def first_workers(situation: Situation) -> str:
    return f"Load with workers: num_workers={useful_workers(situation.run)}, pin_memory=True"


def run_ahead(situation: Situation) -> str:
    return (
        "Let the loader work in advance: persistent_workers=True, a larger prefetch_factor, up to "
        f"{useful_workers(situation.run)} workers"
    )


def more_cores(situation: Situation) -> str:
    cores = or_zero(situation.run.usable_cores)
    return f"Give the command more CPU cores: it uses all {cores:g}"


def more_threads(situation: Situation) -> str:
    cores = or_zero(situation.run.usable_cores)
    return (
        f"Compute on more of the {cores:g} cores: set OMP_NUM_THREADS or torch.set_num_threads, or "
        "load data in worker processes. If this machine has a GPU for torch, `gpusetup doctor` "
        "says why it is not used"
    )


def its_error(situation: Situation) -> str:
    return f"Read the command's error: it ended with exit code {situation.run.exit}"


def early_error(situation: Situation) -> str:
    return f"{its_error(situation)}, and nothing had run on the GPU"


def watch_longer(situation: Situation) -> str:
    seconds = whole(situation.run.seconds)
    return (
        f"Watch longer: nothing ran on the GPU in the first {seconds} s. The command may still be "
        "loading or downloading. If nothing changes, see where the process waits"
    )


def unlock(situation: Situation) -> str:
    return f"sudo nvidia-smi -i {situation.gpu_label} -rgc"


def reset_clocks(situation: Situation) -> str:
    application_clocks = f"sudo nvidia-smi -i {situation.gpu_label} -rac"
    return f"{application_clocks}; {unlock(situation)}"


def other_gpus(situation: Situation) -> str:
    run = situation.run
    unused = [gpu.label for gpu in run.unused_gpus]
    return (
        f"{len(unused)} of {len(run.gpus)} GPUs did nothing (GPU {', '.join(unused)}). If they are "
        "yours, train on all of them: start one process for each GPU with torchrun"
    )
