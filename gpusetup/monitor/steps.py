"""The table of next steps, and the choice of the step that fits a run. Pure functions.

A step fits a run if its condition `when` is true; most conditions make sure that the run does not
do this already. A verdict lists several steps, and the first one that fits the run is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.monitor import clock_fixes as f
from gpusetup.monitor import command_signs as c
from gpusetup.monitor import signs as s
from gpusetup.monitor import situation as w
from gpusetup.monitor.documents import NextStep
from gpusetup.monitor.run import WatchedRun
from gpusetup.monitor.situation import Command, Situation, Words, always
from gpusetup.monitor.subject import Sign, Subject


class StepRule(NamedTuple):
    text: Words
    command: Command | None = None
    when: Sign | None = None
    """The step is shown only if this sign is true."""


WORKERS_HELP = ~(c.cores_used_up | c.others_full | c.enough_workers)

# Sources: the acceleration guide and the multi-GPU guide; PyTorch's performance tuning guide
# (workers, pinning, compile, DDP) and its page on DDP communication hooks; vLLM's optimisation
# page; `nvidia-smi --help`.
STEPS: dict[str, StepRule] = {
    "load-with-workers": StepRule(
        w.first_workers, w.tune, when=~(c.workers | c.no_training | c.cores_used_up)),
    "more-workers": StepRule(w.more_workers, w.tune, when=WORKERS_HELP),
    "cheaper-items": StepRule(always(
        "Decode less per item: cache decoded items, store smaller ones, or decode on the GPU")),
    "more-cores": StepRule(w.more_cores),
    "free-the-cpu": StepRule(w.other_programs, w.processes_by("pcpu")),
    "faster-storage": StepRule(always(
        "Move the data to a local disk or memory, in fewer and larger files")),
    "free-host-memory": StepRule(always(
        "The machine swaps. Use less of the machine's memory: fewer workers, a smaller "
        "prefetch_factor, arrays instead of lists of objects (each worker copies a list)"),
        w.processes_by("rss")),
    "run-ahead": StepRule(w.run_ahead, w.tune),
    "fetch-in-advance": StepRule(w.fetch_in_advance, when=c.workers_rest),
    "off-the-loop": StepRule(always(
        "Move CPU work out of the training loop: do it once, in other processes, or on the GPU")),
    "speed-up-the-producers": StepRule(always(
        "Generate training data faster: use cheaper environments, or environments on the GPU")),
    "help-the-host": StepRule(w.help_the_host, w.watch_the_command),
    "see-where-it-waits": StepRule(w.where_it_waits, w.show_where_it_waits),
    "reset-the-gpu": StepRule(always(
        "Save a checkpoint, stop the run and reset the GPU (or hand it back, if it is rented): "
        "results on faulty memory may be wrong. If errors come back after the reset, have the card "
        "replaced"), w.reset_the_gpu),
    "replace-the-gpu": StepRule(always(
        "Save a checkpoint, stop the run and have this GPU replaced (or hand it back, if it is "
        "rented): it has no spare memory left for its faulty places"),
        always("nvidia-smi -q -d ECC,ROW_REMAPPER")),
    "see-why-it-was-lost": StepRule(always(
        "Find out why the GPU was lost: the kernel log has an error number (Xid; 79 means that "
        "the GPU fell off the bus). Check its power, seat and heat, and run `gpusetup doctor`"),
        always("sudo dmesg -T | grep -iE 'nvrm|xid|aer'")),
    "larger-work": StepRule(always(
        "Give the GPU more work at once: use a larger batch"), w.benchmark, when=~s.memory_high),
    "compile-or-graphs": StepRule(always(
        "Start fewer kernels: torch.compile, CUDA graphs, fused optimizers"), w.benchmark),
    "more-in-parallel": StepRule(always(
        "Give the GPU more work at once: a larger problem, more requests together, or several "
        "runs at the same time (MPS)"), when=c.server | c.physics),
    "fewer-bytes": StepRule(always(
        "Move fewer bytes: bf16 autocast, channels_last, torch.compile to fuse small steps"),
        w.benchmark),
    "fewer-bytes-between-gpus": StepRule(always(
        "Exchange less data between GPUs: accumulate gradients, use DDP's bf16 hook or larger "
        "buckets, or shard within one node. With several machines, check the network: with "
        "NCCL_DEBUG=INFO the log shows NET/IB or the slower NET/Socket; nccl-tests measures it"),
        always("nvidia-smi topo -m")),
    "stay-on-the-gpu": StepRule(always(
        "Copy less to the GPU in each step: offload less, use pinned memory, copy while the GPU "
        "computes"), w.plan),
    "free-the-card": StepRule(w.other_users,
        always("nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv"),
        when=s.shared_with_others | s.used_by_others | s.held_by_others | s.several_holders),
    "leave-a-margin": StepRule(always(
        "Find the largest batch that leaves a margin, and accumulate gradients"),
        always("gpusetup tune --batch-size --code MODULE:FUNCTION")),
    "find-the-leak": StepRule(always(
        "Find out what keeps tensors in memory: losses with their graph, lists of outputs, "
        "caches. torch.cuda.memory._record_memory_history shows it")),
    "read-the-log": StepRule(always(
        "Read the program's log where it ended: `gpusetup doctor --report LOG` explains it. "
        "If it ran out of memory, use a smaller batch, or find out what keeps tensors in memory "
        "(losses with their graph, lists of outputs)")),
    "see-how-it-ended": StepRule(always(
        "See whether the program finished or failed: read the end of its log (`gpusetup doctor "
        "--report LOG` explains an error) and, if it was killed, the kernel log"),
        always("sudo dmesg -T | grep -iE 'killed process|xid'")),
    "see-whose-they-are": StepRule(w.whose_they_are, always(
        "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv")),
    "find-the-holder": StepRule(always(
        "Find out who holds the GPU's memory: the driver lists no process, so it is one in another "
        "container, or one that has died without giving its memory back. End it; if nothing is "
        "found, reset the GPU"),
        always("sudo fuser -v /dev/nvidia*")),
    "record-longer": StepRule(always(
        "Record longer: a minute or more after the start shows how the work itself runs")),
    "cool": StepRule(f.cool, f.details("TEMPERATURE,PERFORMANCE")),
    "check-the-supply": StepRule(f.check_the_supply, f.details("POWER,PERFORMANCE")),
    "raise-the-power-limit": StepRule(f.higher_limit, f.raise_the_limit),
    "draw-less": StepRule(always(
        "The power limit cannot be raised. On a laptop, connect the charger and choose the "
        "performance mode. Otherwise use a lower precision or less data per step")),
    "plug-it-in": StepRule(f.plug_it_in, f.details("POWER,PERFORMANCE"), when=s.laptop),
    "look-outside": StepRule(f.look_outside, f.details("POWER,PERFORMANCE")),
    "unlock-the-clocks": StepRule(f.find_the_lock, f.unlock),
    "reset-the-clocks": StepRule(f.reset, f.reset_clocks),
    "see-who-uses-the-cpu": StepRule(w.who_uses_the_cpu, w.processes_by("pcpu")),
    "read-its-error": StepRule(w.early_error),
    "read-how-it-ended": StepRule(w.its_error),
    "watch-longer": StepRule(w.watch_longer, w.show_where_it_waits),
    "ask-the-driver": StepRule(always(
        "See what the driver reports about this card. With MIG, only NVIDIA's DCGM shows how busy "
        "an instance is: `dcgmi dmon -e 1001,1002,1004,1005`"),
        always("nvidia-smi -q -d UTILIZATION")),
    "look-at-the-link": StepRule(w.the_link, always(
        "nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max,"
        "pcie.link.width.current,pcie.link.width.max --format=csv"),
        when=s.slow_link | s.narrow_link),
    "see-whether-torch-can": StepRule(always(
        "Nothing ran on the GPU: check whether this torch can use the GPU"),
        always("gpusetup doctor")),
    "move-to-the-gpu": StepRule(always(
        "The CPU computes while the GPU only holds memory. Move the model and each batch to the "
        'GPU: model.to("cuda"); `gpusetup doctor` says whether this torch can use it')),
    "log-the-utilisation": StepRule(always(
        "Log the utilisation too: the recording has no column for it"), always(
        "nvidia-smi --query-gpu=timestamp,index,name,utilization.gpu,memory.used,memory.total,"
        "power.draw,power.limit,temperature.gpu,clocks.sm,clocks.max.sm --format=csv -l 1")),
    "watch-the-command": StepRule(w.watching_words,
        w.watch_the_command, when=~c.watched),
    "watch-the-training": StepRule(always(
        "Watch the training itself to see why: `gpusetup monitor -- python train.py`, with your "
        "own command after the `--`")),
    "prepare-once": StepRule(always(
        "Only the CPU worked so far: prepare the data once and store the result")),
    "send-more-requests": StepRule(always(
        "If requests are rare, this is normal. Otherwise send more requests at once, or run a "
        "second service too")),
    "release-between-cells": StepRule(always(
        "A pause between cells is normal. Write a slow cell to a script and watch the script "
        "(`gpusetup monitor -- python SCRIPT`). If you do not need the card, stop the kernel")),
    "overlap-the-pauses": StepRule(always(
        "Shorten the pauses: keep scenes and data loaded, prepare the next piece while the GPU "
        "works, or run a second instance at the same time"), when=c.no_training),
    "shorter-pauses": StepRule(always(
        "Shorten the pauses: evaluate on the GPU or less often, keep loader workers alive "
        "(persistent_workers=True), save while the training runs "
        "(torch.distributed.checkpoint.async_save)")),
    "one-process-each": StepRule(w.one_process_each, w.torchrun),
    "use-the-other-gpus": StepRule(w.other_gpus, w.torchrun, when=c.leaves_gpus_unused),
    "balance-the-work": StepRule(w.balance),
    "more-threads": StepRule(w.more_threads, always("gpusetup doctor")),
    "use-a-gpu": StepRule(always(
        "The CPU does what it can. If this machine has a GPU for torch, find out why it is not "
        "used"), always("gpusetup doctor")),
    "use-less-host-memory": StepRule(always(
        "Use less of the machine's memory: fewer workers, a smaller prefetch_factor, arrays "
        "instead of lists of objects (each worker copies a list)"), w.processes_by("rss")),
    "see-why-no-gpu": StepRule(always("Find out why monitor cannot watch a GPU"),
        always("gpusetup doctor")),
}  # fmt: skip


def next_step(ids: Sequence[str], subject: Subject | None, run: WatchedRun) -> NextStep | None:
    """The first of these next steps that fits the run, with its text and command; None if none
    fits."""
    situation = Situation(run, subject)
    for name in ids:
        step = STEPS[name]
        # Signs test a subject, which a verdict on the whole run does not have, so show its step
        # without a test.
        fits = subject is None or step.when is None or step.when(subject)
        if fits:
            # The command is left out if the run lacks a part of it, such as the script's name.
            command = step.command(situation) if step.command else None
            text = step.text(situation)
            return NextStep(id=name, text=text, command=command)
    return None
