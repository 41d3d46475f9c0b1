"""The next steps and the ordered advice: tables, and the figures that their sentences name. Pure.

A step fits where its signs are seen; most are those that say that it is not so already. Of the
steps of a verdict the first that fits the run is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple

from gpusetup.model.shell import own_word
from gpusetup.monitor import signs as s
from gpusetup.monitor.documents import NextStep
from gpusetup.monitor.marks import MEMORY_HIGH
from gpusetup.monitor.run import Run
from gpusetup.monitor.signs import Seen, Sign, useful_workers

TUNE = "gpusetup tune {config}"
BENCHMARK = "gpusetup tune {config} --benchmark"
BATCH_SIZE = "gpusetup tune --batch-size --code MODULE:FUNCTION"
TORCHRUN = "torchrun --nproc_per_node={gpus} {script}"


class Step(NamedTuple):
    """`{useful_workers}`, `{config}` and such stand for what fits the run."""

    text: str
    command: str | None = None
    when: Sign | None = None


WORKERS_HELP = ~(s.cores_used_up | s.others_full | s.enough_workers)

# Sources: the acceleration and the multi-GPU guides; PyTorch's performance tuning guide (workers,
# pinning, compile, DDP) and its page on DDP communication hooks; vLLM's optimisation page;
# `nvidia-smi --help`.
STEPS: dict[str, Step] = {
    "load-with-workers": Step(
        "Load with workers: num_workers={useful_workers}, pin_memory=True", TUNE,
        when=~(s.workers | s.no_training | s.cores_used_up)),
    "more-workers": Step(
        "Use up to {useful_workers} loader workers (now {work.workers:.0f}). Then decode less per "
        "item, or cache decoded items", TUNE,
        when=WORKERS_HELP),
    "cheaper-items": Step(
        "Decode less per item: cache decoded items, store smaller ones, or decode on the GPU"),
    "more-cores": Step("Give the command more CPU cores: it uses all {its_cores:g}"),
    "free-the-cpu": Step(
        "End other programs: they use {seen.others_cpu:.0f} % CPU of this machine's "
        "{run.host_cores} cores (100 % is one core)",
        "ps -eo pid,user,pcpu,comm --sort=-pcpu | head"),
    "faster-storage": Step(
        "Move the data to a local disk or memory, in fewer and larger files"),
    "free-host-memory": Step(
        "The machine swaps. Use less of the machine's memory: fewer workers, a smaller "
        "prefetch_factor, arrays instead of lists of objects (each worker copies a list)",
        "ps -eo pid,user,rss,comm --sort=-rss | head"),
    "run-ahead": Step(
        "Let the loader work in advance: persistent_workers=True, a larger prefetch_factor, up to "
        "{useful_workers} workers", TUNE),
    "off-the-loop": Step(
        "Move CPU work out of the training loop: do it once, in other processes, or on the GPU"),
    "speed-up-the-producers": Step(
        "Generate training data faster: use cheaper environments, or environments on the GPU"),
    "see-where-it-waits": Step(
        "See where the process waits. If there are several ranks, look at each: the rank that "
        "waits elsewhere is the cause. NCCL_DEBUG=INFO and TORCH_NCCL_TRACE_BUFFER_SIZE=2000 "
        "name the collective",
        "py-spy dump --pid {pid}"),
    "see-why-it-was-lost": Step(
        "Find out why the GPU was lost: the kernel log has an error number (Xid; 79 means that "
        "the GPU fell off the bus). Check its power, seat and heat, and run `gpusetup doctor`",
        "sudo dmesg -T | grep -iE 'nvrm|xid|aer'"),
    "larger-work": Step(
        "Give the GPU more work at once: use a larger batch", BENCHMARK, when=~s.memory_high),
    "compile-or-graphs": Step(
        "Start fewer kernels: torch.compile, CUDA graphs, fused optimizers", BENCHMARK),
    "more-in-parallel": Step(
        "Give the GPU more work at once: a larger problem, more requests together, or several "
        "runs at the same time (MPS)", when=s.server | s.physics),
    "fewer-bytes": Step(
        "Move fewer bytes: bf16 autocast, channels_last, torch.compile to fuse small steps",
        BENCHMARK),
    "fewer-bytes-between-gpus": Step(
        "Exchange less data between GPUs: accumulate gradients, use DDP's bf16 hook or larger "
        "buckets, or shard within one node", "nvidia-smi topo -m"),
    "stay-on-the-gpu": Step(
        "Copy less to the GPU in each step: offload less, use pinned memory, copy while the GPU "
        "computes", "gpusetup plan {config}"),
    "free-the-card": Step(
        "Other processes use this GPU: end them, or use another GPU",
        "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv",
        when=s.shared_with_others | s.used_by_others),
    "leave-a-margin": Step(
        "Find the largest batch that leaves a margin, and accumulate gradients", BATCH_SIZE),
    "find-the-leak": Step(
        "Find out what keeps tensors in memory: losses with their graph, lists of outputs, "
        "caches. torch.cuda.memory._record_memory_history shows it"),
    "cool": Step("Improve the GPU's cooling: check fans, dust, airflow and neighbouring cards",
                 "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"),
    "check-the-supply": Step("Check the power cables, the power supply and the slot",
                             "nvidia-smi -q -d POWER,PERFORMANCE"),
    "raise-the-power-limit": Step(
        "Raise the power limit from {limit:.0f} W to {seen.could_draw:.0f} W, if the cooling "
        "allows it",
        "sudo nvidia-smi -i {gpu.label} -pl {seen.could_draw:.0f}"),
    "draw-less": Step(
        "The power limit cannot be raised. On a laptop, connect the charger and choose the "
        "performance mode. Otherwise use a lower precision or less data per step"),
    "plug-it-in": Step(
        "Connect the charger and choose the performance mode: the GPU gets less power than its "
        "limit allows", "nvidia-smi -q -d POWER,PERFORMANCE", when=s.laptop),
    "look-outside": Step(
        "The GPU gets less power than its limit allows. Check the power budget of the chassis "
        "(BMC) or of the module, the power supply, and limits in the firmware",
        "nvidia-smi -q -d POWER,PERFORMANCE"),
    "unlock-the-clocks": Step(
        "Find out what slows the clocks down. If `nvidia-smi -lgc` locked them, reset them; else "
        "`nvidia-smi -q -d CLOCK,PERFORMANCE` tells more", "sudo nvidia-smi -i {gpu.label} -rgc"),
    "reset-the-clocks": Step(
        "Reset the clocks",
        "sudo nvidia-smi -i {gpu.label} -rac; sudo nvidia-smi -i {gpu.label} -rgc"),
    "see-who-uses-the-cpu": Step(
        "Find out who uses the CPU ({work.host_share:.0f} % is busy). If it is the data loaders, "
        "do less per item or use more cores",
        "ps -eo pid,user,pcpu,comm --sort=-pcpu | head"),
    "read-its-error": Step(
        "Read the command's error: it ended with exit code {run.exit}, and nothing had run on the "
        "GPU"),
    "read-how-it-ended": Step("Read the command's error: it ended with exit code {run.exit}"),
    "watch-longer": Step(
        "Watch longer: nothing ran on the GPU in the first {run.seconds:.0f} s. The command may "
        "still be loading or downloading. If nothing changes, see where the process waits",
        "py-spy dump --pid {pid}"),
    "ask-the-driver": Step(
        "See what the driver reports about this card. With MIG, only NVIDIA's DCGM shows how busy "
        "an instance is: `dcgmi dmon -e 1001,1002,1004,1005`",
        "nvidia-smi -q -d UTILIZATION"),
    "look-at-the-link": Step(
        "Check the PCIe link: it carries {gpu.link_limit:MB/s} in one direction; with 16 lanes it "
        "would carry at least 15000 MB/s. Check the slot, the riser and the lanes in the "
        "firmware's settings, and copy less data in each step",
        "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max,"
        "pcie.link.width.current,pcie.link.width.max --format=csv", when=s.slow_link),
    "see-whether-torch-can": Step(
        "Nothing ran on the GPU: check whether this torch can use the GPU", "gpusetup doctor"),
    "move-to-the-gpu": Step(
        "The CPU computes while the GPU only holds memory. Move the model and each batch to the "
        'GPU: model.to("cuda"); `gpusetup doctor` says whether this torch can use it'),
    "watch-the-command": Step(
        "Let the monitor watch the process too: `gpusetup monitor -- COMMAND`",
        "gpusetup monitor {watch}", when=~s.watched),
    "prepare-once": Step("Only the CPU worked so far: prepare the data once and store the result"),
    "send-more-requests": Step(
        "If requests are rare, this is normal. Otherwise send more requests at once, or run a "
        "second service too"),
    "release-between-cells": Step(
        "A pause between cells is normal. Write a slow cell to a script and watch the script "
        "(`gpusetup monitor -- python SCRIPT`). If you do not need the card, stop the kernel"),
    "overlap-the-pauses": Step(
        "Shorten the pauses: keep scenes and data loaded, prepare the next piece while the GPU "
        "works, or run a second instance at the same time", when=s.no_training),
    "shorter-pauses": Step(
        "Shorten the pauses: evaluate on the GPU or less often, keep loader workers alive "
        "(persistent_workers=True), save while the training runs "
        "(torch.distributed.checkpoint.async_save)"),
    "one-process-each": Step("Start one process for each GPU", TORCHRUN),
    "balance-the-work": Step(
        "Give every rank the same amount of work: batches of similar length, a "
        "DistributedSampler, evenly split layers. Find out what the busiest rank does that the "
        "others do not"),
    "see-why-no-gpu": Step("Find out why the monitor can watch no GPU", "gpusetup doctor"),
}  # fmt: skip


def next_step(ids: Sequence[str], seen: Seen | None, run: Run) -> NextStep | None:
    """The first that fits, filled in for this run; None where there is nothing to do."""
    for name in ids:
        row = STEPS[name]
        if seen is None or row.when is None or row.when(seen):
            command = row.command and sentence(row.command, run, seen)
            known = command and UNKNOWN not in command
            text = sentence(row.text, run, seen)
            return NextStep(id=name, text=text, command=command if known else None)
    return None


MIXED = re.compile(
    r"(bf16|fp16|float16|bfloat16|--?(use[_-])?amp\b|mixed[_-]precision)"
    r"(?![= ](0|false|no|none)\b)",
    re.I,
)


class Advice(NamedTuple):
    """One of the acceleration guide's three, and the verdicts, or their causes, that it helps."""

    text: str
    helps: tuple[str, ...]
    fits: Callable[[Seen], bool]


STARVED = ("input-starved/workers", "input-starved/by-itself", "input-starved/slow-items")
ADVICE = (
    Advice("larger batch with less accumulation (the same effective batch)", ("launch-bound",),
           lambda seen: all((gpu.memory.p95 or 0) < MEMORY_HIGH for gpu in seen.run.gpus)),
    Advice("DataLoader with num_workers={useful_workers}, pin_memory, persistent_workers",
           STARVED, WORKERS_HELP),
    Advice("mixed precision: torch.amp.autocast in bfloat16 from compute capability 8.0 on, "
           "else float16 with a GradScaler", ("launch-bound",),
           lambda seen: not MIXED.search(" ".join(seen.run.command or ()))),
)  # fmt: skip
"""The order of the acceleration guide for utilisation below half: batch, loader, AMP. Each helps
work that comes in short pieces too."""


def ordered_advice(seen: Seen | None, verdict: str | None, cause: str) -> tuple[str, ...]:
    """What helps against this cause, without what is so already, and for a training alone."""
    if seen is None or seen.run.kind not in ("training", ""):
        return ()
    run, sentences = seen.run, []
    for row in ADVICE:
        if {verdict, f"{verdict}/{cause}"} & {*row.helps, "bursty/short-pieces"} and row.fits(seen):
            sentences.append(sentence(row.text, run))
    return tuple(sentences)


# --- sentences ------------------------------------------------------------------------------------

UNKNOWN = "?"


class _Sentence(Formatter):
    """Fills a sentence: an unknown value is a question mark; `MB/s` formats bytes a second."""

    def format_field(self, value: Any, spec: str) -> Any:
        if value is None:
            return UNKNOWN
        return f"{value / 1e6:.0f} MB/s" if spec == "MB/s" else format(value, spec)


def sentence(text: str, run: Run, seen: Seen | None = None) -> str:
    """A text of a table, filled in for this run and the GPU that it is about."""
    return _Sentence().vformat(text, (), _values(run, seen))


def _values(run: Run, seen: Seen | None) -> Mapping[str, object]:
    pids = [pid for gpu in run.gpus for pid in sorted(gpu.holders)]
    words = run.command or ()
    scripts = [word for word in words if word.endswith(".py")]
    command = f"-- {' '.join(map(own_word, words))}" if words else None
    return {
        "run": run,
        "seen": seen,
        "gpu": seen and seen.gpu,
        "work": seen and seen.work,
        "limit": seen and seen.gpu.latest.power_limit_watts,
        "useful_workers": useful_workers(run),
        "its_cores": run.cores or run.host_cores or 0,
        "config": config_of(words),
        "script": own_word(scripts[0]) if scripts else None,
        "watch": command or (f"--pid {pids[0]}" if pids else None),
        "gpus": sum(gpu.lost_at is None for gpu in run.gpus),
        "pid": pids[0] if pids else "PID",
    }


def config_of(command: tuple[str, ...]) -> str | None:
    """The configuration that the command names.

    >>> config_of(("python", "train.py", "--config=conf/a.yaml"))
    'conf/a.yaml'
    >>> config_of(("deepspeed", "train.py", "--deepspeed_config", "zero3.json"))
    """
    for last, word in zip(("", *command), command, strict=False):
        deepspeed = "deepspeed" in f"{last} {word}".partition(".")[0]
        if word.endswith((".yaml", ".yml", ".json")) and not deepspeed:
            return own_word(word.rpartition("=")[2])
    return None
