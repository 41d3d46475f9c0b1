"""The next steps: a table. Pure.

A step has signs that it needs and signs that rule it out, above all those that say it is so
already. Of the steps of a verdict the first that fits the run is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import own_word
from gpusetup.monitor.brakes import active_brake
from gpusetup.monitor.facts import GpuFacts, RunFacts
from gpusetup.monitor.marks import CONTEXT, IDLE, MEMORY_HIGH
from gpusetup.monitor.programs import kind_of
from gpusetup.monitor.signs import Seen, shows_any
from gpusetup.monitor.team import at_work
from gpusetup.monitor.values import NextStep

MOST_WORKERS = 16
"""More loader workers than this per GPU are seldom worth their memory."""

TUNE = "gpusetup tune {config}"
BENCHMARK = "gpusetup tune {config} --benchmark"
BATCH_SIZE = "gpusetup tune --batch-size --code MODULE:FUNCTION"
TORCHRUN = "torchrun --nproc_per_node={gpus} {script}"


class Step(Frozen):
    text: str
    command: str | None = None
    needs: tuple[str, ...] = ()
    """One of these signs."""
    unless: tuple[str, ...] = ()


def step(text: str, command: str | None = None, *, needs: str = "", unless: str = "") -> Step:
    needed, against = (
        tuple(name.strip() for name in names.split(",") if name.strip())
        for names in (needs, unless)
    )
    return Step(text=text, command=command, needs=needed, unless=against)


# `{workers}`, `{config}` and such stand for what fits the run. Sources: the acceleration and the
# multi-GPU guides; PyTorch's performance tuning guide (workers, pinning, compile, DDP) and its
# page on DDP communication hooks; vLLM's optimisation page; `nvidia-smi --help`.
STEPS: dict[str, Step] = {
    "load-with-workers": step(
        "Load with workers: num_workers={workers}, pin_memory=True", TUNE,
        unless="workers, simulation, no training, cores used up"),
    "more-workers": step(
        "Up to {workers} loader workers (now {now}); then decode less per item or cache it", TUNE,
        unless="cores used up, others full, enough workers"),
    "cheaper-items": step(
        "Decode less per item: cache it decoded, store it smaller, or decode on the GPU"),
    "more-cores": step("Give the command more CPU: it uses all of {cores} cores"),
    "free-the-cpu": step(
        "Free the CPU: other processes of this machine use {others} of its {host_cores} cores",
        "ps -eo pid,user,pcpu,comm --sort=-pcpu | head"),
    "faster-storage": step(
        "Bring the data nearer: a local disk or memory, in fewer and larger files"),
    "free-host-memory": step(
        "Free the machine's memory, which swaps: fewer workers, a smaller prefetch_factor, arrays "
        "rather than lists of objects that each worker copies",
        "ps -eo pid,user,rss,comm --sort=-rss | head"),
    "run-ahead": step(
        "Let the loader run ahead: persistent_workers=True, a larger prefetch_factor, up to "
        "{workers} workers", TUNE),
    "off-the-loop": step(
        "Take the CPU's work out of the loop: prepare it once, in other processes, or on the GPU"),
    "speed-up-the-producers": step(
        "Let the CPU side produce more: {more_of_them}cheaper environments, or on the GPU"),
    "see-where-it-waits": step(
        "See where the process waits{which_rank}", "py-spy dump --pid {pid}"),
    "see-why-it-was-lost": step(
        "See why the GPU was lost: the kernel's log names an Xid (79: it fell off the bus); then "
        "its power, seat and heat, and `gpusetup doctor`",
        "sudo dmesg -T | grep -iE 'nvrm|xid|aer'"),
    "larger-work": step(
        "Give the GPU more per kernel: a larger batch", BENCHMARK, unless="memory high"),
    "compile-or-graphs": step(
        "Start fewer kernels: torch.compile, CUDA graphs, fused optimizers", BENCHMARK,
        unless="compiled"),
    "more-in-parallel": step(
        "Put more on the GPU at once: a larger problem, more requests together, or several runs "
        "beside each other (MPS)", needs="server, physics"),
    "fewer-bytes": step(
        "Move fewer bytes: bf16 autocast, channels_last, torch.compile to fuse small steps",
        BENCHMARK),
    "fewer-bytes-between-gpus": step(
        "Exchange less often or less: accumulate gradients, a bf16 hook of DDP, larger buckets, "
        "shard within one node", "nvidia-smi topo -m"),
    "stay-on-the-gpu": step(
        "Keep on the GPU what travels each step: less offload, pinned memory, copies beside the "
        "computing", "gpusetup plan {config}"),
    "leave-a-margin": step(
        "Find the largest batch that leaves a margin, and accumulate gradients", BATCH_SIZE),
    "find-the-leak": step(
        "Find what keeps tensors: losses kept with their graph, lists of outputs, caches; "
        "torch.cuda.memory._record_memory_history shows it"),
    "cool": step("Cool it: fans, dust, airflow, neighbours",
                 "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"),
    "check-the-supply": step("Check the power cables, the supply and the slot",
                             "nvidia-smi -q -d POWER,PERFORMANCE"),
    "raise-the-power-limit": step(
        "Raise the power limit from {limit} W to {rated} W, where its cooling allows it",
        "sudo nvidia-smi -i {gpu} -pl {rated}"),
    "draw-less": step(
        "The card cannot be given more power: a laptop on its charger in performance mode, else "
        "lower precision or fewer bytes per step"),
    "plug-it-in": step(
        "Put the laptop on its charger and in its performance mode: less power reaches the card "
        "than it may draw", "nvidia-smi -q -d POWER,PERFORMANCE", needs="laptop"),
    "look-outside": step(
        "Look outside the card, which may draw more than it gets: the power budget of the chassis "
        "(BMC) or of a module, the supply, a limit that the firmware enforces",
        "nvidia-smi -q -d POWER,PERFORMANCE"),
    "unlock-the-clocks": step(
        "See what holds its clocks: locked with `nvidia-smi -lgc`? Then take it back; else "
        "`nvidia-smi -q -d CLOCK,PERFORMANCE` tells more", "sudo nvidia-smi -i {gpu} -rgc"),
    "reset-the-clocks": step("Take back the clocks that were set",
                             "sudo nvidia-smi -i {gpu} -rac; sudo nvidia-smi -i {gpu} -rgc"),
    "see-who-uses-the-cpu": step(
        "See who uses the CPU, of which {machine} % is busy: loaders of this job (less work per "
        "item, or more cores) or others", "ps -eo pid,user,pcpu,comm --sort=-pcpu | head"),
    "read-its-error": step(
        "Read what the command said when it ended with exit {exit}: nothing had run on the GPU"),
    "read-how-it-ended": step("Read what the command said when it ended with exit {exit}"),
    "watch-longer": step(
        "Watch longer: nothing ran on the GPU in the first {seconds} s{rose}; it may still be "
        "loading or fetching"),
    "ask-dcgm": step(
        "Ask DCGM, which tells what each MIG instance does (`dcgmi discovery -c` names them for "
        "`-i`); keep it as a file and `gpusetup monitor --replay FILE` judges it",
        "dcgmi dmon -e 1001,1002,1004,1005"),
    "ask-the-driver": step(
        "See what the driver tells of this card; memory, temperature and power are judged where "
        "it tells them", "nvidia-smi -q -d UTILIZATION"),
    "spread-the-streams": step(
        "Its video engine is the limit: fewer or smaller streams, a faster preset, a second card"),
    "look-at-the-link": step(
        "Look at the link: {link} GB/s one way is that of one to four lanes; its slot, a riser, "
        "the firmware's lanes; and keep on the GPU what travels each step",
        "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max,"
        "pcie.link.width.current,pcie.link.width.max --format=csv", needs="slow link"),
    "see-whether-torch-can": step(
        "Nothing ran on the GPU: see whether this torch can use it", "gpusetup doctor"),
    "move-to-the-gpu": step(
        "The CPU computes while the GPU only holds memory: move the model and each batch there, "
        'model.to("cuda"); `gpusetup doctor` says whether this torch can'),
    "watch-the-command": step(
        "See what the process does meanwhile: let the monitor watch it too, `gpusetup monitor -- "
        "COMMAND`", "gpusetup monitor {watch}", unless="watched"),
    "prepare-once": step("Prepare the data once and keep it: so far only the CPU worked"),
    "send-more-requests": step(
        "Nothing to mend if requests are rare: send more at once, or a second service beside it"),
    "release-between-cells": step(
        "Nothing to mend between cells; write a slow one to a script and watch that alone "
        "(`gpusetup monitor -- python SCRIPT`); shut the kernel down when the card is not needed"),
    "overlap-the-pauses": step(
        "Shorten what stands between: keep scenes and data loaded, prepare the next piece while "
        "the GPU works, or run a second instance beside it", needs="no training"),
    "shorter-pauses": step(
        "Shorten what stands between: evaluate on the GPU or less often, save beside the training "
        "(torch.distributed.checkpoint.async_save)"),
    "one-process-each": step("Start one process for each GPU", TORCHRUN),
    "balance-the-work": step(
        "Give every rank the same work: batches of like length, a DistributedSampler, layers "
        "shared out evenly; see what the busiest rank does more"),
    "see-why-no-gpu": step("See why no GPU can be watched", "gpusetup doctor"),
}  # fmt: skip

ALREADY = {
    "compiled": re.compile(r"--?(torch[_-])?compile\b(?![= ](0|false|no)\b)", re.I),
    "mixed": re.compile(
        r"(bf16|fp16|float16|bfloat16|--?(use[_-])?amp\b|mixed[_-]precision)"
        r"(?![= ](0|false|no|none)\b)", re.I),
}  # fmt: skip
"""What a command's words say is so already."""


def next_step(ids: Sequence[str], seen: Seen | None, facts: RunFacts) -> NextStep | None:
    """The first that fits, filled in for this run; None where there is nothing to do."""
    for name in ids:
        if seen is None or _fits(STEPS[name], seen):
            return _filled(name, facts, seen)
    return None


def _fits(row: Step, seen: Seen) -> bool:
    known = [name for name in row.unless if name not in OWN]
    own = any(OWN[name](seen) for name in row.unless if name in OWN)
    return (not row.needs or shows_any(seen, row.needs)) and not (own or shows_any(seen, (*known,)))


OWN: dict[str, Callable[[Seen], bool]] = {
    "compiled": lambda seen: _says("compiled", seen.run),
    "enough workers": lambda seen: seen.work.workers >= useful_workers(seen.run) * seen.together,
}
"""Signs that only steps ask for."""


def _says(name: str, facts: RunFacts) -> bool:
    return bool(facts.command and ALREADY[name].search(" ".join(facts.command)))


def _filled(name: str, facts: RunFacts, seen: Seen | None) -> NextStep:
    words, row = _words(facts, seen), STEPS[name]
    return NextStep(id=name, text=row.text.format(**words), command=_command(row.command, words))


def _command(row: str | None, words: Mapping[str, str]) -> str | None:
    """None where a word of it is not known: nothing is made up."""
    if row is None or any(not word and f"{{{name}}}" in row for name, word in words.items()):
        return None
    return row.format(**words)


class Advice(Frozen):
    """One of the acceleration guide's three, and the verdicts, or their causes, that it helps."""

    text: str
    command: str | None
    helps: tuple[str, ...]
    fits: Callable[[RunFacts], bool]


STARVED_BY_WORKERS = ("workers", "by-itself", "slow-items")
ADVICE = (
    Advice(
        text="larger batch, the effective one kept by accumulation",
        command=BATCH_SIZE,
        helps=("launch-bound", "bursty/short-pieces"),
        fits=lambda facts: all(
            (gpu.memory_p95_share or 0) < MEMORY_HIGH.value for gpu in facts.gpus
        ),
    ),
    Advice(
        text="DataLoader with num_workers={workers}, pin_memory, persistent_workers",
        command=TUNE,
        helps=(*(f"input-starved/{cause}" for cause in STARVED_BY_WORKERS), "bursty/short-pieces"),
        fits=lambda facts: (
            max((gpu.work.workers for gpu in facts.gpus if gpu.work), default=0.0)
            < useful_workers(facts)
        ),
    ),
    Advice(
        text="mixed precision: torch.amp.autocast in bfloat16 from compute capability 8.0 on, "
        "else float16 with a GradScaler",
        command=None,
        helps=("launch-bound", "bursty/short-pieces"),
        fits=lambda facts: not _says("mixed", facts),
    ),
)
"""The order of the acceleration guide for utilisation below half: batch, loader, AMP."""


def ordered_advice(facts: RunFacts, verdict: str | None, cause: str) -> tuple[str, ...]:
    """What helps against this cause, without what is so already, and for a training alone."""
    if kind_of(facts.command) not in ("training", ""):
        return ()
    about, words = {verdict, f"{verdict}/{cause}"}, _words(facts, None)
    rows = [row for row in ADVICE if about & {*row.helps} and row.fits(facts)]
    commands = [_command(row.command, words) for row in rows]
    return tuple(
        row.text.format(**words) + (f": `{command}`" if command else "")
        for row, command in zip(rows, commands, strict=True)
    )


def _words(facts: RunFacts, seen: Seen | None) -> dict[str, str]:
    gpu, work = (seen.gpu, seen.work) if seen else (None, None)
    others = ((work.host_cpu or 0) - (work.cpu or 0)) / 100 if work else 0
    rated = (gpu.power_default or gpu.power_max or 0) if gpu else 0
    if gpu and gpu.power_limit and rated <= gpu.power_limit:
        rated = gpu.power_max or rated
    pids = [pid for one in facts.gpus for pid in one.holders]
    return {
        "workers": str(useful_workers(facts)),
        "now": f"{work.workers:.0f}" if work else "0",
        "cores": f"{facts.cores or facts.host_cores or 0:g}",
        "host_cores": str(facts.host_cores or "?"),
        "others": f"{others:.1f}",
        "config": own_word(config) if (config := config_of(facts.command)) else "",
        "script": own_word(script) if (script := script_of(facts.command)) else "",
        "machine": f"{work.host_share or 0:.0f}" if work else "",
        "seconds": f"{facts.seconds:.0f}",
        "rose": _rose(facts),
        "exit": str(facts.exit),
        "link": f"{(gpu.link_limit or 0) / 1e9:.1f}" if gpu else "",
        "watch": _watch(facts, pids),
        "which_rank": _which_rank(facts),
        "more_of_them": "" if seen and shows_any(seen, ("cores used up",)) else MORE_OF_THEM,
        "gpus": str(len([gpu for gpu in facts.gpus if gpu.lost_at is None])),
        "gpu": ",".join(_alike(gpu, facts)) if gpu else "0",
        "limit": f"{gpu.power_limit or 0:.0f}" if gpu else "",
        "rated": f"{rated:.0f}",
        "pid": str(pids[0]) if pids else "PID",
    }


def _alike(gpu: GpuFacts, facts: RunFacts) -> list[str]:
    """The GPUs that the same holds down: what is done for one is done for all."""
    brakes = [
        (one.label, active_brake(one.work, one)) for one in facts.gpus
        if one.work and one.power_limit == gpu.power_limit
    ]  # fmt: skip
    mine = dict(brakes).get(gpu.label)
    same = [label for label, brake in brakes if mine and brake and brake.cause == mine.cause]
    return same or [gpu.label]


def _rose(facts: RunFacts) -> str:
    most = max(map(memory_rose, facts.gpus), default=0)
    return f", and its memory rose by {most / 2**30:.1f} GiB" if most >= CONTEXT.value else ""


def memory_rose(gpu: GpuFacts) -> int:
    """Bytes, from the first sample to the last."""
    return (gpu.memory_used_bytes or 0) - (gpu.memory_first_bytes or 0)


MORE_OF_THEM = "more environments at once, "


def _watch(facts: RunFacts, pids: Sequence[int]) -> str:
    if facts.command:
        return f"-- {' '.join(map(own_word, facts.command))}"
    return f"--pid {pids[0]}" if pids else ""


def _which_rank(facts: RunFacts) -> str:
    several = bool(facts.collective_threads) or (facts.ranks or len(at_work(facts))) > 1
    told = ", of several ranks each: the one that is elsewhere is the cause; NCCL_DEBUG=INFO and "
    return f"{told}TORCH_NCCL_TRACE_BUFFER_SIZE=2000 name the collective" if several else ""


def useful_workers(facts: RunFacts) -> int:
    """The usable cores, shared by the GPUs at work; 4 where the cores are not known. Where a quota
    holds the command back, the cores that it got.

    >>> useful_workers(RunFacts(samples=0, seconds=0, cores=12))
    12
    """
    used = sum((gpu.utilization or 0.0) >= IDLE.value for gpu in facts.gpus)
    held = any(gpu.work and gpu.work.held_back for gpu in facts.gpus)
    cores = min(facts.cores or 4, (facts.cpu or 0) / 100) if held else facts.cores or 4
    return max(1, min(MOST_WORKERS, round(cores) // max(1, used)))


def config_of(command: tuple[str, ...] | None) -> str | None:
    """The configuration that the command names.

    >>> config_of(("python", "train.py", "--config=conf/a.yaml"))
    'conf/a.yaml'
    >>> config_of(("deepspeed", "train.py", "--deepspeed_config", "zero3.json"))
    """
    pairs = zip(command or (), ("", *(command or ())), strict=False)
    words = [(word.rpartition("=")[2], f"{last} {word}") for word, last in pairs]
    return next(
        (word for word, told in words if word.endswith((".yaml", ".yml", ".json"))
         and "deepspeed" not in told.partition(".")[0]), None)  # fmt: skip


def script_of(command: tuple[str, ...] | None) -> str | None:
    """The Python file that the command runs.

    >>> script_of(("python", "-u", "train.py", "--lr", "1"))
    'train.py'
    """
    return next((word for word in command or () if word.endswith(".py")), None)
