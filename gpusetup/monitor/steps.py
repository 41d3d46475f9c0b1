"""The next steps: a table, and which of them fits a run. Pure.

A step fits where its signs are seen; most of them say that it is not so already. Of the steps of a
verdict the first that fits the run is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpusetup.model.shell import own_word
from gpusetup.monitor import command_signs as c
from gpusetup.monitor import signs as s
from gpusetup.monitor.documents import NextStep
from gpusetup.monitor.evidence import UNKNOWN, megabytes, whole
from gpusetup.monitor.run import Run, useful_workers
from gpusetup.monitor.subject import Sign, Subject
from gpusetup.monitor.work import Work


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
        return len([gpu for gpu in self.run.gpus if gpu.lost_at is None])

    @property
    def gpu_label(self) -> str:
        return self.subject.gpu.label if self.subject else UNKNOWN


Words = Callable[[Situation], str]
Command = Callable[[Situation], str | None]
"""None if the run does not tell what belongs in the command."""


class Step(NamedTuple):
    text: Words
    command: Command | None = None
    when: Sign | None = None
    """It is given only where this is seen."""


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


def processes_by(what: str) -> Command:
    """The processes of the machine that use most of something, as `ps` names it."""
    return always(f"ps -eo pid,user,{what},comm --sort=-{what} | head")


def raise_the_limit(situation: Situation) -> str:
    watts = situation.figure(lambda subject: subject.could_draw)
    return f"sudo nvidia-smi -i {situation.gpu_label} -pl {watts}"


def higher_limit(situation: Situation) -> str:
    limit = situation.figure(lambda subject: subject.power_limit_watts)
    watts = situation.figure(lambda subject: subject.could_draw)
    return f"Raise the power limit from {limit} W to {watts} W, if the cooling allows it"


def more_workers(situation: Situation) -> str:
    now = whole(situation.work.workers if situation.work else None)
    return (
        f"Use up to {useful_workers(situation.run)} loader workers (now {now}). Then decode less "
        "per item, or cache decoded items"
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


def other_gpus(situation: Situation) -> str:
    run = situation.run
    unused = [gpu.label for gpu in run.unused_gpus]
    return (
        f"{len(unused)} of {len(run.gpus)} GPUs did nothing (GPU {', '.join(unused)}). If they are "
        "yours, train on all of them: start one process for each GPU with torchrun"
    )


WORKERS_HELP = ~(c.cores_used_up | c.others_full | c.enough_workers)

# Sources: the acceleration and the multi-GPU guides; PyTorch's performance tuning guide (workers,
# pinning, compile, DDP) and its page on DDP communication hooks; vLLM's optimisation page;
# `nvidia-smi --help`.
STEPS: dict[str, Step] = {
    "load-with-workers": Step(
        lambda it: f"Load with workers: num_workers={useful_workers(it.run)}, pin_memory=True",
        tune, when=~(c.workers | c.no_training | c.cores_used_up)),
    "more-workers": Step(more_workers, tune, when=WORKERS_HELP),
    "cheaper-items": Step(always(
        "Decode less per item: cache decoded items, store smaller ones, or decode on the GPU")),
    "more-cores": Step(
        lambda it: f"Give the command more CPU cores: it uses all {it.run.usable_cores or 0:g}"),
    "free-the-cpu": Step(other_programs, processes_by("pcpu")),
    "faster-storage": Step(always(
        "Move the data to a local disk or memory, in fewer and larger files")),
    "free-host-memory": Step(always(
        "The machine swaps. Use less of the machine's memory: fewer workers, a smaller "
        "prefetch_factor, arrays instead of lists of objects (each worker copies a list)"),
        processes_by("rss")),
    "run-ahead": Step(
        lambda it: "Let the loader work in advance: persistent_workers=True, a larger "
        f"prefetch_factor, up to {useful_workers(it.run)} workers", tune),
    "off-the-loop": Step(always(
        "Move CPU work out of the training loop: do it once, in other processes, or on the GPU")),
    "speed-up-the-producers": Step(always(
        "Generate training data faster: use cheaper environments, or environments on the GPU")),
    "see-where-it-waits": Step(where_it_waits, show_where_it_waits),
    "see-why-it-was-lost": Step(always(
        "Find out why the GPU was lost: the kernel log has an error number (Xid; 79 means that "
        "the GPU fell off the bus). Check its power, seat and heat, and run `gpusetup doctor`"),
        always("sudo dmesg -T | grep -iE 'nvrm|xid|aer'")),
    "larger-work": Step(always(
        "Give the GPU more work at once: use a larger batch"), benchmark, when=~s.memory_high),
    "compile-or-graphs": Step(always(
        "Start fewer kernels: torch.compile, CUDA graphs, fused optimizers"), benchmark),
    "more-in-parallel": Step(always(
        "Give the GPU more work at once: a larger problem, more requests together, or several "
        "runs at the same time (MPS)"), when=c.server | c.physics),
    "fewer-bytes": Step(always(
        "Move fewer bytes: bf16 autocast, channels_last, torch.compile to fuse small steps"),
        benchmark),
    "fewer-bytes-between-gpus": Step(always(
        "Exchange less data between GPUs: accumulate gradients, use DDP's bf16 hook or larger "
        "buckets, or shard within one node"), always("nvidia-smi topo -m")),
    "stay-on-the-gpu": Step(always(
        "Copy less to the GPU in each step: offload less, use pinned memory, copy while the GPU "
        "computes"), plan),
    "free-the-card": Step(always(
        "Other processes use this GPU: end them, or use another GPU"),
        always("nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv"),
        when=s.shared_with_others | s.used_by_others),
    "leave-a-margin": Step(always(
        "Find the largest batch that leaves a margin, and accumulate gradients"),
        always("gpusetup tune --batch-size --code MODULE:FUNCTION")),
    "find-the-leak": Step(always(
        "Find out what keeps tensors in memory: losses with their graph, lists of outputs, "
        "caches. torch.cuda.memory._record_memory_history shows it")),
    "cool": Step(always(
        "Improve the GPU's cooling: check fans, dust, airflow and neighbouring cards"),
        always("nvidia-smi -q -d TEMPERATURE,PERFORMANCE")),
    "check-the-supply": Step(always("Check the power cables, the power supply and the slot"),
        always("nvidia-smi -q -d POWER,PERFORMANCE")),
    "raise-the-power-limit": Step(higher_limit, raise_the_limit),
    "draw-less": Step(always(
        "The power limit cannot be raised. On a laptop, connect the charger and choose the "
        "performance mode. Otherwise use a lower precision or less data per step")),
    "plug-it-in": Step(always(
        "Connect the charger and choose the performance mode: the GPU gets less power than its "
        "limit allows"), always("nvidia-smi -q -d POWER,PERFORMANCE"), when=s.laptop),
    "look-outside": Step(always(
        "The GPU gets less power than its limit allows. Check the power budget of the chassis "
        "(BMC) or of the module, the power supply, and limits in the firmware"),
        always("nvidia-smi -q -d POWER,PERFORMANCE")),
    "unlock-the-clocks": Step(always(
        "Find out what slows the clocks down. If `nvidia-smi -lgc` locked them, reset them; else "
        "`nvidia-smi -q -d CLOCK,PERFORMANCE` tells more"),
        lambda it: f"sudo nvidia-smi -i {it.gpu_label} -rgc"),
    "reset-the-clocks": Step(always("Reset the clocks"),
        lambda it: f"sudo nvidia-smi -i {it.gpu_label} -rac; "
        f"sudo nvidia-smi -i {it.gpu_label} -rgc"),
    "see-who-uses-the-cpu": Step(who_uses_the_cpu, processes_by("pcpu")),
    "read-its-error": Step(
        lambda it: f"Read the command's error: it ended with exit code {it.run.exit}, and nothing "
        "had run on the GPU"),
    "read-how-it-ended": Step(
        lambda it: f"Read the command's error: it ended with exit code {it.run.exit}"),
    "watch-longer": Step(
        lambda it: f"Watch longer: nothing ran on the GPU in the first {whole(it.run.seconds)} s. "
        "The command may still be loading or downloading. If nothing changes, see where the "
        "process waits", show_where_it_waits),
    "ask-the-driver": Step(always(
        "See what the driver reports about this card. With MIG, only NVIDIA's DCGM shows how busy "
        "an instance is: `dcgmi dmon -e 1001,1002,1004,1005`"),
        always("nvidia-smi -q -d UTILIZATION")),
    "look-at-the-link": Step(the_link, always(
        "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max,"
        "pcie.link.width.current,pcie.link.width.max --format=csv"), when=s.slow_link),
    "see-whether-torch-can": Step(always(
        "Nothing ran on the GPU: check whether this torch can use the GPU"),
        always("gpusetup doctor")),
    "move-to-the-gpu": Step(always(
        "The CPU computes while the GPU only holds memory. Move the model and each batch to the "
        'GPU: model.to("cuda"); `gpusetup doctor` says whether this torch can use it')),
    "watch-the-command": Step(always(
        "Let the monitor watch the process too: `gpusetup monitor -- COMMAND`"),
        watch_the_command, when=~c.watched),
    "watch-the-training": Step(always(
        "Watch the training itself to see why: `gpusetup monitor -- python train.py`, with your "
        "own command after the `--`")),
    "prepare-once": Step(always(
        "Only the CPU worked so far: prepare the data once and store the result")),
    "send-more-requests": Step(always(
        "If requests are rare, this is normal. Otherwise send more requests at once, or run a "
        "second service too")),
    "release-between-cells": Step(always(
        "A pause between cells is normal. Write a slow cell to a script and watch the script "
        "(`gpusetup monitor -- python SCRIPT`). If you do not need the card, stop the kernel")),
    "overlap-the-pauses": Step(always(
        "Shorten the pauses: keep scenes and data loaded, prepare the next piece while the GPU "
        "works, or run a second instance at the same time"), when=c.no_training),
    "shorter-pauses": Step(always(
        "Shorten the pauses: evaluate on the GPU or less often, keep loader workers alive "
        "(persistent_workers=True), save while the training runs "
        "(torch.distributed.checkpoint.async_save)")),
    "one-process-each": Step(always("Start one process for each GPU"), torchrun),
    "use-the-other-gpus": Step(other_gpus, torchrun, when=c.leaves_gpus_unused),
    "balance-the-work": Step(always(
        "Give every rank the same amount of work: batches of similar length, a "
        "DistributedSampler, evenly split layers. Find out what the busiest rank does that the "
        "others do not")),
    "more-threads": Step(
        lambda it: f"Compute on more of the {it.run.usable_cores or 0:g} cores: set "
        "OMP_NUM_THREADS or torch.set_num_threads, or load data in worker processes. If this "
        "machine has a GPU for torch, `gpusetup doctor` says why it is not used",
        always("gpusetup doctor")),
    "use-a-gpu": Step(always(
        "The CPU does what it can. If this machine has a GPU for torch, find out why it is not "
        "used"), always("gpusetup doctor")),
    "use-less-host-memory": Step(always(
        "Use less of the machine's memory: fewer workers, a smaller prefetch_factor, arrays "
        "instead of lists of objects (each worker copies a list)"), processes_by("rss")),
    "see-why-no-gpu": Step(always("Find out why the monitor can watch no GPU"),
        always("gpusetup doctor")),
}  # fmt: skip


def next_step(ids: Sequence[str], subject: Subject | None, run: Run) -> NextStep | None:
    """The first of the steps that fits, in the words of this run; None if none does."""
    situation = Situation(run, subject)
    for name in ids:
        step = STEPS[name]
        fits = subject is None or step.when is None or step.when(subject)
        if fits:
            command = step.command(situation) if step.command else None
            return NextStep(id=name, text=step.text(situation), command=command)
    return None


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
